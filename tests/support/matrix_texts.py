"""Checks of tests/cluster/test_matrix.py: every K and strategy, cuts, ends, row forms, drafts that
read ahead, and other drafts than that of the pair."""
import os
import subprocess
import tempfile

from cluster import SOURCE
from generations import DRAFT, TARGET, Edits, golden_prompts, order
from matrix import ALL, GREEDY_AND_COUPLED, N_SEEDS, PLANNED, Total
from parallel_draft import write_parallel_draft
from plain_texts import CONTEXT, CUTS, KINDS
from random_model import write_random_model

ALL_K = range(9)
RANDOM_SEED = 7
MASK_TOKEN = 4001
CERTAIN_MARGIN = 0.1  # a lead of the reference's best token that bf16 cannot turn
# Four ranks on two cores take most of the time. What they may get wrong, two ranks would too, but
# for sums of four parts, which every K has. Their texts are shorter for the same reason.
GREEDY_K = {1: ALL_K, 2: ALL_K, 4: (0, 1, 3, 8)}
COUPLED_K = {1: {"coupled at 0.7": (0, 2, 5, 8), "coupled at 1": ALL_K},
             2: {"coupled at 0.7": (5,), "coupled at 1": (0, 2, 5, 8)},
             4: {"coupled at 0.7": (5,), "coupled at 1": (0, 5)}}
RANDOM_GREEDY_K = {1: (1, 4, 8), 2: (3,), 4: (3,)}
RANDOM_COUPLED_K = {1: {"coupled at 0.7": (3, 8), "coupled at 1": (1, 3, 5, 8)},
                    2: {"coupled at 1": (3, 8)}, 4: {"coupled at 0.7": (3,)}}
PARALLEL_K = {1: ((1, 3, 16), {"coupled at 0.7": (3,), "coupled at 1": (1, 8)}),
              2: ((8,), {"coupled at 1": (3,)})}
TEXT_TOKENS = {1: 150, 2: 100, 4: 60}
CONTEXT_K = {1: (0, 3, 8), 2: (3, 8) if ALL else (8,), 4: (8,)}
CUT_K = {1: (0, 3, 8), 2: (0, 3, 8) if ALL else (3,), 4: (3,)}
WAYS = ({"strategy": "planned"}, {"strategy": "threshold"}, {"strategy": "heuristic"},
        {"strategy": "threshold", "threshold": 0.8})


def guesses_at(k, strategy="fixed"):
    """Holds where every text of more than one token has guesses exactly if K is more than 0."""
    return lambda total: all((one["drafted"] > 0) == (k > 0 and len(one["ids"]) > 1) or
                             strategy == "planned" for one in total.done) and \
        all(one["strategy"] == strategy for one in total.done)


def check_k(world, greedy, coupled):
    n_tokens = TEXT_TOKENS[world.cluster.n_ranks]
    for name, ks in {"greedy": greedy, **coupled}.items():
        for k in ks:
            world.texts(name, guesses_at(k), n_draft=k, max_tokens=n_tokens)


def check_context(world):
    """Long texts, past every partition of attention, until the context is full; the last rounds
    have room for less than K guesses."""
    name = "greedy, until the context is full"
    n_left = CONTEXT - len(KINDS[name].prompts[0])
    for k in CONTEXT_K[world.cluster.n_ranks]:
        world.texts(name, lambda total: [(len(one["ids"]), one["finish"]) for one in total.done] ==
                    [(n_left, "length")], n_draft=k)


def check_strategies(world):
    """K that comes from timings, from what was accepted before, from the draft's probabilities."""
    is_one = world.cluster.n_ranks == 1
    n_tokens = TEXT_TOKENS[world.cluster.n_ranks]
    for way in WAYS if is_one else WAYS[:2]:
        for name, k in (("greedy", 3), ("greedy", 16), ("coupled at 1", 16)):
            if is_one or k == 16:
                world.texts(name, guesses_at(k, way["strategy"]), n_draft=k, max_tokens=n_tokens,
                            **way)


def check_cuts(world):
    for name, cut in CUTS.items():
        for k in CUT_K[world.cluster.n_ranks]:
            for full_rows in (0, 1):
                world.texts(name, guesses_at(k), n_draft=k, full_rows=full_rows, n_seeds=1,
                            **({} if cut else {"max_tokens": 48}))


def check_short(world):
    """K is more than the number of tokens that are left."""
    for n_tokens in (1, 2, 3, 6):
        for k in (1, 4, 8, 16):
            guessed = guesses_at(k)
            world.texts("greedy", lambda total: guessed(total) and
                        {one["finish"] for one in total.done} == {"length"} and
                        {len(one["ids"]) for one in total.done} == {n_tokens}, n_draft=k,
                        max_tokens=n_tokens)


def check_ends(world, n_ends, has_inside=True):
    """The end of sequence among the guesses: the text ends there, or with ignore_eos goes on."""
    n_inside = 0
    for end in world.plain.ends[:n_ends]:
        done = world.cluster.generate([
            order(end["prompt"], seed=end["seed"], n_draft=k, max_tokens=30, temperature=1,
                  rule="coupled", ignore_eos=ignore) for ignore in (0, 1) for k in ALL_K])
        stopping, going_on = done[:len(ALL_K)], done[len(ALL_K):]
        right = all(one["ids"] == end["rest"] and one["finish"] == "stop" for one in stopping)
        right &= all(one["ids"] == end["going_on"] for one in going_on)
        # Accepted as a guess: the token after it is discarded.
        n_inside += sum(one["accepted"] + one["rounds"] > len(one["ids"]) for one in stopping)
        world.check(right, f"seed {end['seed']}: the end of sequence after "
                    f"{len(end['prompt'] + end['rest'])} tokens, K = 0 to 8")
    world.check(n_inside > 0 or not has_inside, f"{n_inside} of these ends were guesses in a round")


def check_defaults(world, n_ends):
    n_ranks = world.cluster.n_ranks
    check_k(world, GREEDY_K[n_ranks], COUPLED_K[n_ranks])
    check_context(world)
    check_strategies(world)
    check_cuts(world)
    check_short(world)
    check_ends(world, n_ends)


def check_random_draft(world):
    """A draft with random weights, which guesses badly."""
    n_ranks = world.cluster.n_ranks
    with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
        world.use(draft=write_random_model(os.path.join(folder, "random"), DRAFT, RANDOM_SEED))
        if n_ranks == 1:
            check_strategies(world)
        check_k(world, RANDOM_GREEDY_K[n_ranks], RANDOM_COUPLED_K[n_ranks])
        check_ends(world, 2, has_inside=False)


def check_parallel_draft(world):
    """A draft that makes all guesses of a round in one pass, as chains and as trees."""
    n_ranks = world.cluster.n_ranks
    with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
        draft = write_parallel_draft(os.path.join(folder, "parallel"), DRAFT, MASK_TOKEN)
        shown = world.cluster.outrider("describe", draft)
        world.check(f"{MASK_TOKEN} (\"pard_token\")" in shown.stdout,
                    "describe shows the mask token")
        world.use(draft=draft)
        for way in WAYS[:2] if n_ranks == 1 else ():
            for name in GREEDY_AND_COUPLED:
                world.texts(name, guesses_at(16, way["strategy"]), n_draft=16,
                            max_tokens=TEXT_TOKENS[n_ranks], **way)
        check_k(world, *PARALLEL_K[n_ranks])
        check_ends(world, 1)
        for trees in ("3,2,1", "dynamic:3,2,1"):
            world.use("--trees", trees, draft=draft)
            for name in GREEDY_AND_COUPLED:
                world.texts(name, lambda total: 0 < total.siblings_accepted < total.siblings,
                            in_flight=12, max_tokens=TEXT_TOKENS[n_ranks], n_draft=3)


def check_reference(report, plain):
    """Plain greedy text against another implementation, up to its first near tie."""
    n_same = 0
    for golden, ids in zip(golden_prompts(), plain.of("greedy")):
        wanted = golden["greedy_ids"]
        sure = next((i for i, margin in enumerate(golden["greedy_margins"])
                     if margin < CERTAIN_MARGIN), len(wanted))
        n_same += sure
        report.check(ids[:sure] == wanted[:sure],
                     f"{sure} tokens as the reference after {golden['text']!r}")
    report.check(n_same > 0 and len(plain.ends) >= 2,
                 f"{n_same} tokens compared with the reference; {len(plain.ends)} stories that end")


# ---- decisions: what a draft that reads ahead must not change ----

RULES = {"greedy": {"temperature": 0}, "coupled": {"temperature": 0.6, "rule": "coupled"},
         "rejection": {"temperature": 0.6, "rule": "rejection"},
         "block": {"temperature": 0.6, "rule": "block"},
         "naive": {"temperature": 1, "rule": "naive"}}
OWN = {"K = 1": {"n_draft": 1}, "K = 3": {"n_draft": 3}, "K = 12": {"n_draft": 12},
       "K = 16": {"n_draft": 16}, "heuristic": {"strategy": "heuristic", "n_draft": 16},
       "threshold": {"strategy": "threshold", "n_draft": 8, "threshold": 0.3},
       "K = 5, 7 tokens": {"n_draft": 5, "max_tokens": 7},
       "K = 4, stop": {"n_draft": 4, "stop": "the"},
       "K = 8, edited": {"n_draft": 8, "edits": Edits(repetition=1.1, biased=[300, 301], bias=1.5,
                                                      bans=[[262]])}}
SOME = ("K = 1", "K = 16", "threshold", "K = 4, stop")
SAME = ("ids", "rounds", "drafted", "accepted", "rejections", "accepted_in_round", "finish")


def decision_orders(ways=OWN):
    """{(rule, way): orders}. Plain prompts, whose greedy texts soon repeat themselves, and prompts
    that say the same twice."""
    plain = [one["ids"] for one in golden_prompts()[:3 if ALL else 1]]
    prompts = plain + [(ids[:16] * 4)[:60] for ids in plain]
    return {(rule, way): [order(ids, seed=seed, **{"max_tokens": 96, "ignore_eos": 1,
                                                   **RULES[rule], **fields})
                          for seed in (31, 32)[:N_SEEDS] for ids in prompts]
            for rule in RULES for way, fields in OWN.items() if way in ways}


def decide(cluster, in_flight=1, ways=OWN):
    """{(rule, way): generations}"""
    cases = decision_orders(ways)
    done = iter(cluster.generate([one for orders in cases.values() for one in orders],
                                 in_flight=in_flight))
    return {case: [next(done) for _ in orders] for case, orders in cases.items()}


def check_decisions(world, reference, in_flight=1, staged=False, preempted=False, ways=OWN):
    """staged: such guesses must be there under every rule. False: none. None: there may be some."""
    found = decide(world.cluster, in_flight, ways)
    for rule in RULES:
        wrong = [way for way in ways if any(
            one[key] != other[key] for key in SAME
            for one, other in zip(found[rule, way], reference[rule, way], strict=True))]
        total = Total([one for way in ways for one in found[rule, way]])
        right = not wrong and total.staged < total.drafted
        right &= staged is None or (total.staged > 0) == staged
        right &= total.preemptions > 0 or not preempted
        world.check(right, f"decisions, {rule}, {in_flight} at once: {total}" +
                    (f"; they differ for {', '.join(wrong)}" if wrong else ""))
    if staged:
        total = Total(found["greedy", "K = 12"])
        world.check(total.staged > total.drafted / 20, "decisions, greedy, K = 12: "
                    f"{total.staged} of {total.drafted} guesses took no pass")
        for name in GREEDY_AND_COUPLED:
            world.texts(name, in_flight=in_flight, **PLANNED)


DECISIONS = SAME + ("committed", "rows")
SETTINGS = (("rejection", {"temperature": 1}), ("rejection", {"temperature": 0.7}),
            ("rejection", {"temperature": 1, "top_k": 20, "top_p": 0.9}),
            ("block", {"temperature": 1}))


def check_row_forms(world):
    """Compact rows and whole rows give the same decisions. Prints what a position costs on the
    wire in each form."""
    for rule, fields in SETTINGS:
        compact, full = (Total(world.cluster.generate([
            order(prompt["ids"], repeat=10 if ALL else 4, seed=1, rule=rule, max_tokens=24,
                  n_draft=5, full_rows=full_rows, ignore_eos=1, **fields)
            for prompt in golden_prompts()])) for full_rows in (0, 1))
        n_other = sum(a[key] != b[key] for a, b in zip(compact.done, full.done)
                      for key in DECISIONS)
        received = [total.bytes_received / total.rows for total in (compact, full)]
        world.check(n_other == 0 and compact.rejections > 0 and received[0] < received[1] / 2,
                    f"{rule}, {fields}: {len(compact.done)} texts with {compact.rejections} "
                    f"rejections are alike in {len(DECISIONS)} figures; a position asks "
                    f"{compact.bytes_sent / compact.rows:.0f} B and answers "
                    f"{received[0]:.0f} B compact, {received[1]:.0f} B full" +
                    (f"; {n_other} figures differ" if n_other else ""))


# ---- other drafts ----

def check_heads(world):
    """A draft that guesses among few tokens."""
    with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
        path = os.path.join(folder, "counted")
        pages = [os.path.join(SOURCE, "docs", name) for name in ("design.md", "models.md")]
        subprocess.run([os.path.join(world.cluster.bin, "outrider"), "count", "-m", DRAFT, "-o",
                        path, *pages], check=True, capture_output=True)
        for n in ("1", "200", ""):
            world.use("--draft-vocab", f"{path}:{n}" if n else path)
            for name in ("greedy", "coupled at 0.7", "coupled at 1"):
                for k in (1, 3, 4, 8):
                    guessed = guesses_at(k)
                    world.texts(name, lambda total: guessed(total) and
                                (n == "1" or total.accepted > 0), n_draft=k, max_tokens=72)


def check_layers(world, drafts, names):
    """Layers of the target as the draft. Returns {(draft, text): decisions}."""
    decided = {}
    for draft in drafts:
        world.use(draft=draft)
        for name in names:
            total = world.texts(name, lambda total: total.drafted > 0, n_draft=4, max_tokens=48)
            decided[draft, name] = [(one["drafted"], one["accepted"]) for one in total.done]
    return decided


def check_refused_layers(world):
    for tail, part in [("99", "there is no layer 99"), ("3-1", "the range 3-1 is reversed"),
                       ("1,1", "layer 1 follows layer 1"), ("", "does not begin with")]:
        run = subprocess.run([os.path.join(world.cluster.bin, "outrider-coordinator"), "--target",
                              world.cluster.worker_addresses[0], "--draft",
                              f"{TARGET},layers={tail}", "--listen",
                              f"unix:{world.cluster.folder}/refused"],
                             capture_output=True, encoding="utf-8", timeout=60, check=False)
        world.check(run.returncode == 78 and part in run.stdout + run.stderr,
                    f"layers={tail} is refused")
