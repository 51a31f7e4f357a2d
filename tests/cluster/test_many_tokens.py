#!/usr/bin/env python3
# ctest: labels=long libs=worker beside=yes timeout=7200
"""A million tokens of greedy and `coupled` texts with speculation are those of plain decoding: many
prompts, seeds and settings of several models, on one rank and two, with the options that make the
most of guesses. A setting's plain texts come from the same ranks with K = 0.

`OUTRIDER_TEST_TOKENS=N` compares N tokens in place of a million.
Usage: test_many_tokens.py BUILD_FOLDER [N]
"""
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cut_model import write_cut_model
from generations import (DRAFT, TARGET, GenerationCluster, Report, golden_prompts, order,
                         side_by_side)
from random_model import write_random_model
from family_models import write_mixed, write_windowed

MILLION = 1000000
SEED = 20261127
PAIR = "synthetic:tiny,seed=5,agree=0.7"
PAIR_IDS = 300      # ids of its prompts are below
N_TOKENS = 250      # of a text
N_TEXTS = 20        # compared with each set of options, then there are others
PROMPT_TOKENS = 60  # at most
CUT_VOCABULARY = 4000
RANKS = (1, 2)
# With one rank texts lose their places now and then.
WORKER = {1: ["--threads", "1", "--kv-tokens", "2048"], 2: ["--threads", "1"]}
IN_FLIGHT = 16
EVERYTHING = ["--draft-staged", "on", "--lookup", "session,store,recycled,lookahead",
              "--lookup-append", "on"]
# (coordinator's options, request's options)
OPTIONS = ((["--lookup", "none"], {"n_draft": 4}), (EVERYTHING, {"strategy": "planned"}),
           (["--trees", "3,2,1"], {"n_draft": 3}),
           (["--trees", "dynamic:3,2", *EVERYTHING], {"n_draft": 8}),
           (["--trees", "dynamic"], {"strategy": "planned"}))


def models(folder):
    """{name: (target, draft, ids of prompts are below)}"""
    def at(name):
        return os.path.join(folder, name)

    random_draft = write_random_model(at("random"), DRAFT, SEED)
    return {"tales": (TARGET, DRAFT, None), "random draft": (TARGET, random_draft, None),
            "windows": (write_windowed(at("t40"), TARGET, 40),
                        write_windowed(at("d24"), DRAFT, 24), None),
            "mixed layers": (write_mixed(at("mixed"), TARGET, 24), DRAFT, None),
            "small vocabulary": (write_cut_model(at("cut"), TARGET, CUT_VOCABULARY), DRAFT,
                                 CUT_VOCABULARY),
            "random target": (write_random_model(at("target"), TARGET, SEED + 1), random_draft,
                              None),
            "synthetic pair": (PAIR, PAIR + ",draft=1", PAIR_IDS)}


def make_orders(rng, n, below):
    """Returns functions of a request's options that make n orders."""
    stories = [one["ids"] + one["greedy_ids"] for one in golden_prompts()]
    made = []
    for _ in range(n):
        story = rng.choice(stories)
        begin = rng.randrange(len(story) - PROMPT_TOKENS // 2)
        ids = story[begin:begin + rng.randrange(1, PROMPT_TOKENS)]
        ids = [i % below for i in ids] if below else ids
        way = {"temperature": 0} if rng.random() < 0.4 else {
            "temperature": round(rng.uniform(0.4, 1.4), 2), "rule": "coupled",
            "seed": rng.randrange(1 << 32), "top_k": rng.choice((0, 0, 20, 200)),
            "top_p": rng.choice((1, 1, 0.9))}
        made.append((ids, way))
    return lambda **more: [order(ids, max_tokens=N_TOKENS, ignore_eos=1, **way, **more)
                           for ids, way in made]


def compare(build, report, name, pair, n_ranks, n_tokens):
    """Returns how many tokens were compared, at least n_tokens."""
    target, draft, below = pair
    rng = random.Random(f"{SEED} {name} {n_ranks}")
    n_texts = max(1, min(N_TEXTS, n_tokens // (N_TOKENS * len(OPTIONS))))
    n_done, n_drafted = 0, [0] * len(OPTIONS)
    with GenerationCluster(build, target=target, draft=draft, n_ranks=n_ranks,
                           worker_flags=WORKER[n_ranks]) as cluster:
        while n_done < n_tokens:
            orders = make_orders(rng, n_texts, below)
            plain = [one["ids"] for one in cluster.generate(orders(n_draft=0))]
            for i, (flags, way) in enumerate(OPTIONS):
                cluster.use(*flags, draft=draft)
                done = cluster.generate(orders(**way), in_flight=IN_FLIGHT)
                n_other = sum(one["ids"] != ids for one, ids in zip(done, plain))
                n_done += sum(map(len, plain))
                n_drafted[i] += sum(one["drafted"] for one in done)
                drafted, accepted, preemptions = (
                    sum(one[key] for one in done) for key in ("drafted", "accepted", "preemptions"))
                report.check(n_other == 0 and len(done) == n_texts and
                             (drafted > 0 or way.get("strategy") == "planned"),
                             f"{name}, T = {n_ranks}, {' '.join(flags)}, {way}: {len(done)} texts, "
                             f"{accepted} of {drafted} guesses stay, {preemptions} preemptions" +
                             (f"; {n_other} texts differ" if n_other else ""))
        report.check(all(n_drafted),
                     f"{name}, T = {n_ranks}: {n_drafted} guesses of each option set")
    return n_done


def main(build, n_tokens=os.environ.get("OUTRIDER_TEST_TOKENS", MILLION)):
    report = Report()
    report.note(f"seed {SEED}")
    with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
        pairs = models(folder)
        part = -(-int(n_tokens) // (len(pairs) * len(RANKS)))
        n_done = sum(sum(side_by_side(*[
            lambda ranks=n_ranks: compare(build, report, name, pair, ranks, part)
            for n_ranks in RANKS])) for name, pair in pairs.items())
    report.check(n_done >= int(n_tokens), f"{n_done} tokens are those of plain decoding")
    return report.status()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
