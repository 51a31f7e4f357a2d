#!/usr/bin/env python3
# ctest: labels=full libs=worker beside=yes cores=2 timeout=900 long=1800
"""A draft model and a head at once change no text: greedy and `coupled` texts are compared with the
plain ones of tests/golden/texts, with K fixed and planned, alone and in company, on one rank and
two, and where texts lose their places. With a K of their own they have the guesses that the head
makes alone; the planner uses both drafters. Under `rejection` and `block` the first tokens are
distributed as the target's (`tests/run long` makes all draws). While the head proves itself, the
draft guesses. Planned texts for which a head is useless stop asking for features.
Usage: test_drafts_cluster.py BUILD_FOLDER [PART]   PART: worlds whose function has this in its name
"""
import json
import os
import re
import sys
import tempfile
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import TALES, bound, wait_until
from eagle1 import write_head
from generations import DRAFT, TARGET, Report, order, side_by_side
from matrix import GREEDY_AND_COUPLED, MOST_BATCHES, PLANNED
from matrix_texts import SOME, decide, guesses_at
from plain_texts import KINDS, PlainTexts
from test_heads_cluster import (LITTLE_DRAFT, N_DRAFT, ONE_THREAD, SMALL, check_decisions,
                                check_fit, check_places, run_world)

HEAD = os.path.join(TALES, "head")
ALONE = ["--lookup", "none"]  # nothing but the models guesses
TEXT_K = {"greedy": (1, 4, 16), "coupled at 0.7": (5,), "coupled at 1": (3,)}


def use(world, *flags):
    world.use("--head", HEAD, "--head-unchecked", "--tokenizer", TARGET, *flags)
    world.options = " ".join(["draft and head", *flags])


def count(world, family="drafter_tokens_total"):
    """{drafter: tokens} of the models."""
    with urllib.request.urlopen(f"{world.cluster.url}/metrics", timeout=bound(30)) as page:
        lines = page.read().decode().splitlines()
    return {name: sum(float(line.split()[-1]) for line in lines if f"outrider_{family}{{" in line
                      and f'drafter="{name}"' in line) for name in ("model", "head")}


def check_fixed(world, ways, max_tokens):
    """The head guesses, whatever K is, and the draft never does."""
    for name, ks in ways.items():
        for k in ks:
            guessed = guesses_at(k)
            world.texts(name, lambda total: guessed(total) and 0 < total.accepted < total.drafted,
                        in_flight=8, n_draft=k, max_tokens=max_tokens)
    made = count(world)
    world.check(made["model"] == 0 < made["head"], f"with a K of their own: {made}")


def check_planned(world):
    """Both guess: of a new pair, each of them is timed and tried."""
    for flags in (ALONE, []):
        use(world, *flags)
        world.plan_until(lambda _: min(count(world).values()) > 0, max_tokens=100)
        made, kept = count(world), count(world, "drafter_accepted_tokens_total")
        world.check(min(made.values()) > 0 and sum(kept.values()) > 0,
                    f"planned guesses: {made}, of which {kept} stay")
    use(world, "--trees", "dynamic:3,2,1")
    world.plan_until(lambda _: count(world)["model"] > 0, max_tokens=80)
    for name in GREEDY_AND_COUPLED:
        world.texts(name, in_flight=8, max_tokens=80, n_draft=3)
    made, n = count(world), count(world, "sibling_tokens_total")
    world.check(n["head"] > 0 < made["model"], f"guesses {made}, siblings {n}")


def check_reuse(world):
    """A prompt that is sent again, and a longer one: all models take up what they have read."""
    name = "greedy, until the context is full"
    text = KINDS[name].prompts[0] + world.plain.of(name)[0]
    use(world, *ALONE)
    for n in (90, 90, 171, 171):
        for way in ({"n_draft": 4}, PLANNED):
            [one] = world.cluster.generate([order(text[:n], max_tokens=40, temperature=0,
                                                  ignore_eos=1, **way)])
            world.check(one["ids"] == text[n:n + 40], f"a prompt of {n} tokens: "
                        f"{one['accepted']} of {one['drafted']} guesses stay")
    described = json.loads(world.cluster.outrider("describe", "--json").stdout)
    world.check(described["draft_model"] == "draft+head", described["draft_model"])
    load = described["load"]
    world.check(load["draft_prompt_tokens_reused"] > 0 < load["prompt_tokens_reused"],
                f"{load['draft_prompt_tokens_reused']} tokens of prompts were read before")


def check_distributions(world, build):
    """Texts with a K of their own, and planned ones, for which both models guess."""
    use(world, *ALONE)
    for rule, seed in (("rejection", 1), ("block", 1000001)):
        check_fit(world, build, seed, rule, rule=rule, n_draft=N_DRAFT)
    use(world, *ALONE)
    for rule, seed in (("rejection", 2000001), ("block", 3000001)):
        check_fit(world, build, seed, f"{rule}, planned", rule=rule, **PLANNED)
    made = count(world)
    world.check(min(made.values()) > 0, f"planned guesses: {made}")


def check_proof(world):
    """The draft guesses until the head has proven itself, which it does between requests; then the
    head guesses for requests with a K of their own."""
    world.use("--head", HEAD, "--pack-cache", "off", "--tokenizer", TARGET, *ALONE)
    world.options = "the head proves itself"
    log = world.cluster.coordinator.log
    world.texts("greedy", lambda total: total.drafted > 0, n_draft=4, max_tokens=40)
    made = count(world)
    is_early = "head_proven" not in log()
    world.check(made["head"] == 0 < made["model"] or not is_early, f"before that: {made}")
    wait_until(lambda: "head_proven" in log(), 120, "the head has proven itself")
    before = count(world)
    total = world.texts("greedy", lambda total: total.drafted > 0, n_draft=4, max_tokens=40)
    made = {name: n - before[name] for name, n in count(world).items()}
    world.check(made == {"model": 0, "head": total.drafted}, f"after that: {made}")


def feature_bytes(world):
    with urllib.request.urlopen(f"{world.cluster.url}/metrics", timeout=bound(30)) as page:
        return int(re.search(r"^outrider_feature_bytes_total{.*} (\d+)$", page.read().decode(),
                             re.M)[1])


def near_features(world, _):
    """Planned texts for which a head is never right stop asking for features, and are tried with it
    as seldom as the credit for probes pays; texts with a K of their own have them as before."""
    with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
        write_head(folder)
        for name, draft in (("with a draft", DRAFT), ("alone", "none")):
            of_target = [] if draft == "none" else ["--tokenizer", TARGET]
            world.use("--head", folder, "--head-unchecked", *of_target, *ALONE, draft=draft)
            world.options = f"a head that is never right, {name}"
            grown, before = [], 0
            while len(grown) < MOST_BATCHES and (not any(grown) or grown[-1] > 0):
                world.texts("greedy", in_flight=2, max_tokens=100, **PLANNED)
                sent = feature_bytes(world)
                grown.append(sent - before)
                before = sent
            world.check(any(grown) and grown[-1] == 0, f"bytes of features by batch: {grown}")
            world.texts("coupled at 1", lambda total: total.drafted > 0, in_flight=2, n_draft=4,
                        max_tokens=40)
            world.check(feature_bytes(world) > before, "with a K of their own there are more")


# ---- worlds ----

def near_one(world, made):
    world.use("--head", HEAD, "--head-unchecked", draft="none")
    made["the head alone"] = decide(world.cluster)
    use(world)
    check_fixed(world, TEXT_K, 100)
    made["draft and head"] = decide(world.cluster)
    made["in company"] = decide(world.cluster, 12)
    check_planned(world)
    check_reuse(world)
    check_distributions(world, world.cluster.build)
    check_proof(world)


def near_two(world, made):
    use(world)
    check_fixed(world, {"greedy": (4,), "coupled at 1": (8,)}, 60)
    made["two ranks"] = decide(world.cluster, ways=SOME)
    for name in GREEDY_AND_COUPLED:
        world.texts(name, in_flight=8, max_tokens=60, **PLANNED)


def near_little(world, made):
    """Texts lose what the models have read of them, too."""
    for flags in ([], LITTLE_DRAFT):
        use(world, *flags)
        check_places(world)
        made[" ".join(["little KV", *flags])] = decide(world.cluster, 12, SOME)


def main(build, part=""):
    report, plain, made = Report(), PlainTexts(), {}
    worlds = ((near_one, "one rank", [], 1), (near_two, "two ranks", ONE_THREAD, 2),
              (near_little, "one rank, little KV", SMALL, 1),
              (near_features, "one rank", ONE_THREAD, 1))
    side_by_side(*[lambda world=world: run_world(report, plain, build, *world, made)
                   for world in worlds if part in world[0].__name__])
    for title, found in made.items():
        if "the head alone" in made:
            check_decisions(report, title, found, made["the head alone"])
    return report.status()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
