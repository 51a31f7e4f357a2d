#!/usr/bin/env python3
# ctest: labels=full libs=worker beside=yes timeout=600
"""A draft that reads ahead what it is expected to guess changes nothing but the number of its
passes: for every rule, texts and guesses with a K of their own are those of --draft-staged off,
alone and in company, with drafting ahead, and with little KV. Texts of the planned strategy are
compared where their rule promises the text.

Usage: test_draft_staged_cluster.py BUILD_FOLDER
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from generations import (DRAFT, TARGET, Edits, GenerationCluster, Report, check_word_is_refused,
                         golden_prompts, order, side_by_side)

N_TOKENS = 96
N_PROMPTS = 3
SEEDS = (31, 32)
WORKER = ["--threads", "1"]
RULES = {"greedy": {"temperature": 0}, "coupled": {"temperature": 0.6, "rule": "coupled"},
         "rejection": {"temperature": 0.6, "rule": "rejection"},
         "block": {"temperature": 0.6, "rule": "block"}}
OWN = {"K = 3": {"n_draft": 3}, "K = 12": {"n_draft": 12},
       "heuristic": {"strategy": "heuristic", "n_draft": 16},
       "threshold": {"strategy": "threshold", "n_draft": 8, "threshold": 0.3}}
PLANNED = {"strategy": "planned", "n_draft": 16}
EDITS = Edits(repetition=1.1, biased=[300, 301], bias=1.5, bans=[[262]])
SAME = ("ids", "rounds", "drafted", "accepted", "rejections", "accepted_in_round")


def prompts():
    """Plain ones, whose greedy texts soon repeat themselves, and texts that say the same twice."""
    plain = [one["ids"] for one in golden_prompts()[:N_PROMPTS]]
    return plain + [(ids[:16] * 4)[:60] for ids in plain]


def orders(rule, way, edits=None):
    return [order(ids, seed=seed, max_tokens=N_TOKENS, ignore_eos=1, edits=edits, **RULES[rule],
                  **way) for seed in SEEDS for ids in prompts()]


def cases():
    """{(rule, way): orders}"""
    made = {(rule, way): orders(rule, OWN[way]) for rule in RULES for way in OWN}
    made.update({(rule, "K = 8, edited"): orders(rule, {"n_draft": 8}, EDITS) for rule in RULES})
    made.update({(rule, "planned"): orders(rule, PLANNED) for rule in ("greedy", "coupled")})
    return made


def run(build, mode, in_flight, *coordinator, worker=()):
    with GenerationCluster(build, target=TARGET, draft=DRAFT, worker_flags=[*WORKER, *worker],
                           coordinator_flags=["--threads", "1", "--draft-staged", mode,
                                              *coordinator]) as world:
        return {case: world.generate(listed, in_flight=in_flight)
                for case, listed in cases().items()}


def compare(report, name, plain, staged, is_auto=False):
    n_staged = {rule: 0 for rule in RULES}
    for (rule, way), done in staged.items():
        names = ("ids",) if way == "planned" else SAME
        n_other = sum(any(one[key] != other[key] for key in names)
                      for one, other in zip(done, plain[rule, way]))
        drafted, count = (sum(one[key] for one in done) for key in ("drafted", "staged"))
        is_off = all(one["staged"] == 0 for one in plain[rule, way])
        n_staged[rule] += 0 if way == "planned" else count
        report.check(n_other == 0 and is_off and count < drafted,
                     f"{name}, {rule}, {way}: {count} of {drafted} guesses took no pass" +
                     (f"; {n_other} of {len(done)} answers differ" if n_other else ""))
    for rule, count in n_staged.items():
        report.check(count > 0 or is_auto, f"{name}, {rule}: {count} guesses took no pass")
    count, drafted = (sum(one[key] for one in staged["greedy", "K = 12"])
                      for key in ("staged", "drafted"))
    report.check(count > drafted / 20 or is_auto, f"{name}, greedy, K = 12: {count} of {drafted}")


def main():
    build = sys.argv[1]
    report = Report()
    alone = ("--draft-ahead", "off")
    plain, staged, auto = side_by_side(
        lambda: run(build, "off", 1, *alone), lambda: run(build, "on", 1, *alone),
        lambda: run(build, "auto", 1))
    compare(report, "alone", plain, staged)
    compare(report, "auto", plain, auto, is_auto=True)
    ahead, many, little = side_by_side(
        lambda: run(build, "on", 1, "--draft-ahead", "on"), lambda: run(build, "on", 12),
        lambda: run(build, "on", 12, "--draft-kv-tokens", "640", worker=["--kv-tokens", "640"]))
    compare(report, "drafting ahead", plain, ahead)
    compare(report, "12 at once", plain, many)
    compare(report, "12 at once, little KV", plain, little)
    for rule in RULES:
        n = sum(one["preemptions"] for (named, _), done in little.items() if named == rule
                for one in done)
        report.check(n > 0, f"12 at once, little KV, {rule}: {n} times a text lost its place")
    check_word_is_refused(build, report, "--draft-staged")
    return report.status()


if __name__ == "__main__":
    sys.exit(main())
