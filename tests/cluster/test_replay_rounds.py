#!/usr/bin/env python3
# ctest: labels=full libs=worker beside=yes timeout=300 long=900
"""Served rounds are what the papers' rules make of the models: rounds of real clusters with their
guesses, q and p are replayed by tests/programs/prog_replay.c, which computes q and p from the
models alone, draws the guesses with their coins, runs the acceptance rule and compares every token.
One wrong coin, q, p or decision shows, so this finds at once what statistics of draws need
thousands for; test_accept.c and test_tree_statistics.c show that the rules are right.

Usage: test_replay_rounds.py BUILD_FOLDER
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from far_cluster import FarCluster
from generations import DRAFT, TARGET, GenerationCluster, Report, golden_prompts, order

SMALL = "synthetic:tiny,seed=5,agree=0.7"
LONG = "OUTRIDER_TEST_LONG" in os.environ
N_SEEDS = 10 if LONG else 1
N_TOKENS = 48
ONE_THREAD = ["--threads", "1"]
# No guesses after siblings and none that are found beside the draft's: of those a trace does not
# say which guess they follow.
PLAIN_TREES = ["--trees", "siblings", "--lookup", "none"]
LEAST_ROUNDS = 2000  # of all cases
RULES = ("rejection", "block", "naive", "coupled", "greedy")
CUTS = {"no cut": {"temperature": 1}, "temperature 0.7": {"temperature": 0.7},
        "top_k 20": {"temperature": 1, "top_k": 20},
        "top_k 40, top_p 0.9": {"temperature": 1.2, "top_k": 40, "top_p": 0.9}}
WAYS = ({"n_draft": 1}, {"n_draft": 3}, {"n_draft": 8}, {"n_draft": 5, "full_rows": 1},
        {"strategy": "threshold", "n_draft": 8, "threshold": 0.3},
        {"strategy": "heuristic", "n_draft": 16}, {"strategy": "planned", "n_draft": 16})


def cases(ways=WAYS, rules=RULES, cuts=CUTS):
    """[(prompt, fields of an order)]"""
    stories = [one["ids"] for one in golden_prompts()]
    made = []
    for rule in rules:
        for cut in [{"temperature": 0}] if rule == "greedy" else cuts.values():
            for way in ways:
                for seed in range(100, 100 + N_SEEDS):
                    made.append((stories[len(made) % len(stories)],
                                 {"rule": rule, "seed": seed + 10 * len(made), **cut, **way}))
    return made


def record(asked, done, seed_change=0):
    """The lines of prog_replay. seed_change: tells it other coins than those that were used."""
    lines = []
    for (prompt, fields), one in zip(asked, done):
        words = ["text", fields["seed"] + seed_change, one["rule"], fields["temperature"],
                 fields.get("top_k", 0), fields.get("top_p", 1), fields.get("full_rows", 0),
                 len(prompt), *prompt]
        lines.append(" ".join(map(str, words)))
        if len(one["committed"]) != len(one["shown"]) or sum(one["committed"]) != len(one["ids"]):
            raise RuntimeError("the rounds of a text do not make it up")
        ids = iter(one["ids"])
        for n, told in zip(one["committed"], one["shown"]):
            words = ["round", told["kept"], int(told["drafter"] == "model"), told["next_p"], n,
                     *[next(ids) for _ in range(n)], len(told["guesses"])]
            words += [value for guess in told["guesses"] for value in guess]
            lines.append(" ".join(map(str, words)))
    return "\n".join(lines) + "\n"


def replay(build, lines, target, draft):
    run = subprocess.run([os.path.join(build, "tests", "prog_replay"), target, draft], input=lines,
                         capture_output=True, encoding="utf-8", timeout=600, check=False)
    if run.returncode:
        raise RuntimeError(run.stderr)
    return json.loads(run.stdout)


def check(build, report, cluster, name, asked, in_flight=32, least_siblings=0, is_found=False):
    """Returns the rounds that were replayed, and their record."""
    done = cluster.generate([order(prompt, max_tokens=N_TOKENS, ignore_eos=1, show_drafts=1,
                                   **fields) for prompt, fields in asked], in_flight=in_flight)
    draft = "none" if is_found else cluster.draft
    seen = replay(build, record(asked, done), cluster.target, draft)
    n_rounds = sum(len(one["shown"]) for one in done)
    n_guesses = sum(len(told["guesses"]) for one in done for told in one["shown"])
    report.check(seen["wrong"] == 0 and seen["rounds"] == n_rounds > 0 and
                 seen["guesses"] == n_guesses > 0 and seen["siblings"] >= least_siblings and
                 (seen["drawn"] > 0) != is_found,
                 f"{name}: {seen['rounds']} rounds with {seen['tokens']} tokens and "
                 f"{seen['guesses']} guesses, {seen['siblings']} of them siblings, and "
                 f"{seen['rows']} rows of p" +
                 (f"; {seen['wrong']} are wrong, first {seen['first']}" if seen["wrong"] else ""))
    return n_rounds, asked, done


def check_control(build, report, asked, done):
    """The replay with other coins must find most texts wrong."""
    seen = replay(build, record(asked, done, seed_change=1), TARGET, DRAFT)
    report.check(seen["wrong"] > len(done),
                 f"with other coins {seen['wrong']} figures of {len(done)} texts are wrong")


def check_pair(build, report):
    n_rounds = 0
    with GenerationCluster(build, worker_flags=ONE_THREAD,
                           coordinator_flags=PLAIN_TREES) as cluster:
        n, asked, done = check(build, report, cluster, "tales pair", cases())
        n_rounds += n
        drawn = [i for i, (_, fields) in enumerate(asked) if fields["rule"] in RULES[:2]]
        check_control(build, report, [asked[i] for i in drawn], [done[i] for i in drawn])
        cluster.use("--draft-staged", "on")
        n_rounds += check(build, report, cluster, "tales pair, staged",
                          cases(WAYS[1:3], RULES[:2], {"no cut": CUTS["no cut"]}), in_flight=1)[0]
        cluster.use("--lookup", "session", draft="none")
        n_rounds += check(build, report, cluster, "guesses that are found",
                          [(prompt[:12] * 2, fields) for prompt, fields in cases(WAYS[1:3])],
                          is_found=True)[0]
    return n_rounds


def check_two_ranks(build, report):
    with GenerationCluster(build, n_ranks=2) as cluster:
        return check(build, report, cluster, "tales pair, two ranks",
                     cases((WAYS[1], WAYS[3]), RULES[:2]))[0]


def check_small(build, report):
    """The pair and the cut of test_distribution.py, with the first rounds of many seeds."""
    with GenerationCluster(build, target=SMALL, draft=SMALL + ",draft=1",
                           worker_flags=ONE_THREAD) as cluster:
        asked = [([338], {"rule": rule, "seed": seed, "n_draft": 3, **CUTS["top_k 20"]})
                 for rule in ("rejection", "block") for seed in range(20 * N_SEEDS)]
        return check(build, report, cluster, "small pair", asked)[0]


def check_siblings(build, report):
    """Trees of a chain and siblings that are drawn without replacement: as many as the planner
    wants over far ranks, and three guesses for one place."""
    draft = SMALL + ",draft=1"
    rules = [RULES[i % len(RULES)] for i in range(30 * N_SEEDS)]
    asked = [([338, 7 + i % 5], {"rule": rule, "seed": 500 + i, "top_k": 20,
                                 "temperature": 0 if rule == "greedy" else 1})
             for i, rule in enumerate(rules)]
    with FarCluster(build, worker_flags=ONE_THREAD, target=SMALL, draft=draft,
                    coordinator_flags=PLAIN_TREES) as cluster:
        planned = [(prompt, {**fields, **WAYS[-1]}) for prompt, fields in asked]
        n_rounds = check(build, report, cluster, "planned siblings", planned, in_flight=4,
                         least_siblings=1)[0]
        cluster.use("--trees", "3", "--lookup", "none", draft=draft)
        fixed = [(prompt, {**fields, "n_draft": 1}) for prompt, fields in asked]
        return n_rounds + check(build, report, cluster, "siblings of one guess", fixed,
                                in_flight=4, least_siblings=len(fixed) * N_TOKENS // 2)[0]


def main():
    build = sys.argv[1]
    report = Report()
    n_rounds = sum(part(build, report) for part in (check_pair, check_two_ranks, check_small,
                                                    check_siblings))
    report.check(n_rounds >= LEAST_ROUNDS, f"{n_rounds} rounds are replayed")
    return report.status()


if __name__ == "__main__":
    sys.exit(main())
