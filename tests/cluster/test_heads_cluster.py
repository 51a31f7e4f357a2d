#!/usr/bin/env python3
# ctest: labels=full libs=worker beside=yes cores=2 timeout=900 long=1800
"""Heads change no text: one cluster for each set of ranks, whose coordinator is started again with
each head and each set of options. Greedy and `coupled` texts are compared with the plain ones of
tests/golden/texts. What is guessed and what stays is the same for one rank and two and in company;
under `rejection` and `block` the first tokens are distributed as the target's (`tests/run long`
makes all draws). Heads for other targets are refused in a sentence.
Usage: test_heads_cluster.py BUILD_FOLDER [PART]   PART: worlds whose function has this in its name
"""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import bigram_head
from cluster import SOURCE, TALES, Cluster, bound, wait_until
from generations import (TARGET, GenerationCluster, Report, chi_square, exact_pairs, fit_cells,
                         order, side_by_side)
from matrix import ALL, GREEDY_AND_COUPLED, PLANNED, Total, World
from matrix_texts import SAME, SOME, decide, guesses_at
from plain_texts import KINDS, PlainTexts
from safetensors_file import read_tensors, write_tensors

TRAINED = sorted(glob.glob(os.path.join(TALES, "head*")))
GOLDEN = os.path.join(SOURCE, "tests", "golden")
ONE_THREAD = ["--threads", "1"]
TEXT_K = {"greedy": (1, 4, 8, 16), "coupled at 0.7": (5,), "coupled at 1": (3,)}
TWO_RANKS_K = {"greedy": (4,), "coupled at 1": (8,)}
TREES = ("siblings", "static", "3,2,1", "dynamic:3,2,1")
# So few KV blocks that texts are in each other's way.
SMALL, LITTLE_DRAFT = ONE_THREAD + ["--kv-tokens", "640"], ["--draft-kv-tokens", "320"]
# The first token has no guess, because the head reads pairs of tokens; the second one comes from
# the next round.
PROMPT, TOP_K, N_DRAFT = [338], 20, 3
N_DRAWS = 8000 if ALL else 800
BATCH = 10000
P_LEAST = 1e-4


def use(world, head, *flags):
    """The head guesses from the first text on."""
    world.use("--head", head, "--head-unchecked", *flags, draft="none")
    world.options = " ".join([os.path.basename(head), *flags])


def check_texts(world, ways, max_tokens):
    """At every K every text must have guesses, of which some stay."""
    for name, ks in ways.items():
        for k in ks:
            guessed = guesses_at(k)
            world.texts(name, lambda total: guessed(total) and 0 < total.accepted < total.drafted,
                        in_flight=8, n_draft=k, max_tokens=max_tokens)


def check_planned(world, head):
    """The planner chooses between the head and what is found in the text, or has the head alone and
    tries it out."""
    use(world, head)
    for name in GREEDY_AND_COUPLED:
        world.texts(name, in_flight=8, **PLANNED)
    use(world, head, "--lookup", "none")
    n_made = world.plan_until(lambda n: n > 0, lambda total: total.found == 0)
    world.check(n_made > 0, f"the head alone makes {n_made} planned guesses")


def check_context(world):
    """The last rounds have room for less than K guesses, the head's cache for none more."""
    world.texts("greedy, until the context is full", lambda total: total.accepted > 0, n_draft=8)


def check_trees(world, head):
    for shape in TREES:
        use(world, head, "--trees", shape)
        named = shape[0].isdigit() or ":" in shape
        for name in GREEDY_AND_COUPLED:
            world.texts(name, lambda total: not named or 0 < total.siblings_accepted <
                        total.siblings, in_flight=8, max_tokens=80, n_draft=3)
            world.texts(name, in_flight=8, max_tokens=80, **PLANNED)
    use(world, head, "--trees", "chains:3x3", "--tree-rule", "multi-path")
    for name in GREEDY_AND_COUPLED:
        world.texts(name, lambda total: total.siblings > 0, in_flight=8, max_tokens=80, n_draft=3)


def check_reuse(world, head, kind="EAGLE-3"):
    """Sends a prompt again, and longer ones: both models take up what they have read, and the
    guesses are those of a prompt that is read for the first time."""
    name = "greedy, until the context is full"
    text = KINDS[name].prompts[0] + world.plain.of(name)[0]

    def ask(n):
        [one] = world.cluster.generate([order(text[:n], max_tokens=40, temperature=0, n_draft=4,
                                              ignore_eos=1)])
        described = json.loads(world.cluster.outrider("describe", "--json").stdout)
        world.check(one["ids"] == text[n:n + 40] and
                    described["draft_model"] == os.path.basename(head) and
                    described["draft_kind"] == kind,
                    f"a prompt of {n} tokens: {one['accepted']} of {one['drafted']} guesses stay")
        return {key: one[key] for key in SAME}, described["load"]["draft_prompt_tokens_reused"]

    anew = []
    for n in (90, 171):
        use(world, head)
        one, n_reused = ask(n)
        anew.append(one)
        world.check(n_reused == 0, "nothing is reused")
    use(world, head)
    ask(60)
    counts = [0]
    for n, wanted in ((90, anew[0]), (90, anew[0]), (171, anew[1]), (171, anew[1])):
        one, n_reused = ask(n)
        counts.append(n_reused)
        world.check(one == wanted, "the guesses are those of a text that is read anew")
    grown = [after - before for before, after in zip(counts, counts[1:])]
    world.check(all(n > at for n, at in zip(grown, (60, 60, 100, 150))),
                f"the head reuses {grown} tokens of 90, 90, 171 and 171")


def check_decisions(report, title, found, reference):
    """Compares generations by rule and K (matrix_texts.decide)."""
    wrong = [" ".join(case) for case, done in found.items() if any(
        one[key] != other[key] for key in SAME
        for one, other in zip(done, reference[case], strict=True))]
    total = Total([one for done in found.values() for one in done])
    report.check(not wrong and 0 < total.accepted < total.drafted,
                 f"{title}: the same decisions of {len(found)} rules and K: {total}" +
                 (f"; they differ for {', '.join(wrong)}" if wrong else ""))


def check_fit(world, build, first_seed, title, **way):
    """The first tokens of many texts are distributed as the target's, and some guesses stay."""
    exact = exact_pairs(build, PROMPT, TOP_K)
    done = []
    while len(done) < N_DRAWS:
        done += world.cluster.generate([order(
            PROMPT, repeat=min(BATCH, N_DRAWS - len(done)), seed=first_seed + len(done),
            max_tokens=N_DRAFT + 2, temperature=1, top_k=TOP_K, ignore_eos=1, **way)])
    n_kept, n_made = (sum(one[key] for one in done) for key in ("accepted", "drafted"))
    fit = chi_square(build, "fit", fit_cells([tuple(one["ids"][:2]) for one in done], exact))
    world.check(fit["p_value"] > P_LEAST and 0 < n_kept < n_made,
                f"{title}: chi-square {fit['chi_square']:.1f} over {fit['cells']} cells, p = "
                f"{fit['p_value']:.3g}; total variation of {fit['detectable_tv']:.4f} would be "
                f"found in 9 of 10 cases; {n_kept} of {n_made} guesses stay")


def check_distribution(world, build):
    for rule, first_seed in (("rejection", 1), ("block", 1000001)):
        check_fit(world, build, first_seed, rule, rule=rule, n_draft=N_DRAFT)


def check_replay(world, head, folder):
    """`outrider replay` makes the rounds that the server makes, from recorded features."""
    prompts, out = os.path.join(folder, "prompts"), os.path.join(folder, "recorded")
    kind, n_tokens = KINDS["greedy"], 60
    with open(prompts, "w", encoding="ascii") as file:
        file.write("\n".join(json.dumps({"prompt_ids": ids}) for ids in kind.prompts))
    use(world, head, "--serve-features")
    total = world.texts("greedy", n_draft=4, max_tokens=n_tokens)

    def record(out, boundaries, temperature="0"):
        done = world.cluster.outrider(
            "record", "--prompts", prompts, "--out", out, "--boundaries", boundaries, "-n",
            str(n_tokens), "--temperature", temperature, "--ignore-eos")
        assert done.returncode == 0, done.stderr
        return sorted(glob.glob(os.path.join(out, "*.safetensors")))

    def replay(files, *words):
        return world.cluster.outrider("replay", "--head", head, *words, "-K", "4", "--json", *files)

    boundaries = range(7) # all that there are: the head finds its own
    files = record(out, ",".join(map(str, boundaries)))
    told = json.loads(replay(files, "-m", TARGET).stdout)
    [drafter] = told["drafters"]
    n_kept = sum(kept for _, kept in drafter["tested_accepted"])
    tested = [n for n, _ in drafter["tested_accepted"]]
    world.check((told["texts"], told["tokens"], told["rounds"], n_kept) ==
                (len(kind.prompts), total.completion_tokens, total.rounds, total.accepted),
                f"a replay makes the same {total.rounds} rounds, in which {n_kept} guesses stay; "
                f"guesses that were tested: {tested}")
    shutil.rmtree(out)
    few = record(out, "2")
    drawn = record(out + "-drawn", ",".join(map(str, boundaries)), "0.7")
    for files, words, part in ((files[:1], [], "--model is missing"),
                               (few, ["-m", TARGET], "reads boundary 4, which"),
                               (drawn, ["-m", TARGET], "record it with --temperature 0"),
                               ([os.path.join(head, "model.safetensors")], ["-m", TARGET],
                                "is no text of outrider record"),
                               ([prompts], ["-m", TARGET], "prompts")):
        done = replay(files, *words)
        world.check(done.returncode != 0 and part in done.stderr, done.stderr.strip())
    done = world.cluster.outrider("replay", "--head", f"{GOLDEN}/heads/eagle3_parallel", "-m",
                                  f"{GOLDEN}/models/llama_untied", "-K", "3", files[0])
    world.check(done.returncode != 0 and "guesses several tokens at once" in done.stderr,
                done.stderr.strip())


# ---- what is refused ----

def refusal(world, *flags):
    """Exit status of a coordinator with these flags, and the lines that it says."""
    cluster = world.cluster
    run = subprocess.run([os.path.join(cluster.bin, "outrider-coordinator"), "--target",
                          cluster.worker_addresses[0], "--listen", f"unix:{cluster.folder}/refused",
                          *flags], capture_output=True, encoding="utf-8", timeout=bound(60),
                         check=False)
    return run.returncode, (run.stdout + run.stderr).strip().splitlines()


def check_refusals(world, head, folder):
    far, narrow = os.path.join(folder, "far"), os.path.join(GOLDEN, "heads", "eagle3_layers")
    bigram_head.write_bigram_head(far, eagle_aux_hidden_state_layer_ids=[2, 4, 9])
    small = bigram_head.write_bigram_head(os.path.join(folder, "small"), vocab_size=2000)
    of_target = ["--tokenizer", TARGET]
    for status, part, flags in (
            (2, "--tokenizer is missing", ["--head", head]),
            (78, "there is no folder", ["--head", "/nowhere", *of_target]),
            (78, "it is a model and no head", ["--head", TARGET, *of_target]),
            (78, f"name its folder, {head}", ["--head", f"{head}/model.safetensors", *of_target]),
            (78, "there is no folder", ["--draft", "/nowhere", *of_target]),
            (78, "is a head: name it with --head", ["--draft", head]),
            (78, "is a head: name it with --head", ["--draft", head, *of_target]),
            (78, "name no such layers", ["--head", far, *of_target]),
            (78, "has the width 256", ["--head", narrow, *of_target]),
            (78, "within the vocabulary of 2000", ["--head", small, *of_target]),
            (78, "--draft-vocab", ["--head", head, "--draft-vocab", "/nowhere", *of_target])):
        found, lines = refusal(world, *flags)
        world.check(found == status and part in "".join(lines), f"status {found}: {lines[-1:]}")
        found, lines = refusal(world, *flags, "--check")
        world.check(found == status and part in lines[0] and (status == 2 or len(lines) == 1),
                    f"the same with --check: {lines}")
    world.check(refusal(world, "--head", head, *of_target, "--check") == (0, []),
                "--check takes the head")


def write_shallow_target(folder, n_layers):
    """The first layers of the tales target."""
    shutil.copytree(TARGET, folder)
    config, tensors = (os.path.join(folder, name) for name in ("config.json", "model.safetensors"))
    with open(config, encoding="ascii") as file:
        values = json.load(file)
    with open(config, "w", encoding="ascii") as file:
        json.dump({**values, "num_hidden_layers": n_layers}, file)
    write_tensors(tensors, {name: tensor for name, tensor in read_tensors(tensors).items()
                            if not name.startswith("model.layers.") or
                            int(name.split(".")[2]) < n_layers})
    return folder


def check_other_target(report, build, head, folder):
    """Ranks that serve a target of fewer layers than the head's."""
    shallow = write_shallow_target(os.path.join(folder, "shallow"), 4)
    with Cluster(build, target=shallow, draft=None) as cluster:
        cluster.coordinator.stop()
        cluster.coordinator_flags = ["--head", head, "--head-unchecked", "--tokenizer", TARGET]
        cluster.start_coordinator()
        wait_until(lambda: "a head for another target" in cluster.coordinator.log() or
                   not cluster.coordinator.is_alive(), 30, "the coordinator says what is wrong")
        report.check("a head for another target" in cluster.coordinator.log() and
                     not cluster.is_serving(), "ranks of a shallower target are not used")


# ---- worlds ----

def check_two_ranks(world, head, made, ways):
    use(world, head)
    check_texts(world, ways, 60)
    made[head, "two ranks"] = decide(world.cluster, ways=SOME)
    use(world, head, "--trees", "dynamic:3,2,1")
    world.texts("coupled at 1", lambda total: 0 < total.siblings_accepted < total.siblings,
                in_flight=8, max_tokens=60, n_draft=3)


def check_places(world):
    """Texts lose their places again and again."""
    n = sum(world.texts(name, in_flight=12, n_draft=4).preemptions +
            world.texts(name, in_flight=12, **PLANNED).preemptions for name in GREEDY_AND_COUPLED)
    world.check(n > 0, f"{n} times a text lost its place")


def check_little(world, head, made):
    for flags in ([], LITTLE_DRAFT, [*LITTLE_DRAFT, "--trees", "3,2,1"]):
        use(world, head, *flags)
        check_places(world)
    for flags in ([], LITTLE_DRAFT):
        use(world, head, *flags)
        made[head, " ".join(["little KV", *flags])] = decide(world.cluster, 12, SOME)


def near_one(world, heads, made, folder):
    for head in heads:
        use(world, head)
        check_texts(world, TEXT_K, 100)
        check_context(world)
        check_reuse(world, head)
        made[head, "alone"] = decide(world.cluster)
        made[head, "in company"] = decide(world.cluster, 12)
        check_distribution(world, world.cluster.build)
        check_planned(world, head)
        check_trees(world, head)
    check_replay(world, heads[0], folder)
    check_refusals(world, heads[0], folder)


def near_two(world, heads, made, _):
    for head in heads:
        check_two_ranks(world, head, made, TWO_RANKS_K)


def near_little(world, heads, made, _):
    """Beside a worker that applies the first head's fc."""
    for head in heads:
        use(world, head)
        features = "projected" if head == heads[0] else "plain"
        world.check(f" features={features} " in world.cluster.coordinator.log(),
                    f"the worker sends {features} features")
        check_little(world, head, made)


def run_world(report, plain, build, function, name, flags, n_ranks, *arguments):
    cluster = GenerationCluster(build, n_ranks=n_ranks, worker_flags=flags, http=True, draft=None)
    with cluster:
        function(World(report, plain, cluster, name), *arguments)
    report.note(f"{function.__name__} is done")


def main(build, part=""):
    report, plain, made = Report(), PlainTexts(), {}
    with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
        heads = [bigram_head.write_bigram_head(os.path.join(folder, "bigram")), *TRAINED]
        worlds = ((near_one, "one rank", [], 1), (near_two, "two ranks", ONE_THREAD, 2),
                  (near_little, "one rank, little KV", [*SMALL, "--head", heads[0]], 1))
        calls = [lambda world=world: run_world(report, plain, build, *world, heads, made, folder)
                 for world in worlds if part in world[0].__name__]
        if part in check_other_target.__name__:
            calls.append(lambda: check_other_target(report, build, heads[0], folder))
        side_by_side(*calls)
        for (head, name), found in made.items():
            if name != "alone" and (head, "alone") in made:
                check_decisions(report, f"{os.path.basename(head)}, {name}", found,
                                made[head, "alone"])
    return report.status()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
