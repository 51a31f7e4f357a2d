#!/usr/bin/env python3
# ctest: labels=full libs=worker beside=yes timeout=300
"""Layers of the target as the draft: greedy and `coupled` texts are the plain ones, and the core of
a synthetic target drafts exactly as its draft does. What is wrong with a list is said at the start.
Usage: test_layers_draft.py BUILD_FOLDER
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from generations import TARGET, GenerationCluster, Report, golden_prompts, order

N_TOKENS = 48
PAIR = "synthetic:tiny,layers=4,seed=3,agree=0.7"
CASES = [("greedy", {"temperature": 0}), ("coupled", {"temperature": 1, "rule": "coupled"})]


def texts(cluster, prompts, k, **fields):
    """The texts, and how often guesses were made and kept."""
    done = cluster.generate([order(ids, n_draft=k, max_tokens=N_TOKENS, ignore_eos=1, seed=11,
                                   **fields) for ids in prompts])
    return [one["ids"] for one in done], [(one["drafted"], one["accepted"]) for one in done]


def check_texts(report, cluster, prompts, drafts):
    """Returns {(draft, case): [(drafted, accepted), ...]}."""
    plain = {name: texts(cluster, prompts, 0, **fields)[0] for name, fields in CASES}
    counts = {}
    for draft in drafts:
        cluster.use_draft(draft, draft)
        for name, fields in CASES:
            got, counts[draft, name] = texts(cluster, prompts, 4, **fields)
            drafted, accepted = map(sum, zip(*counts[draft, name]))
            report.check(got == plain[name] and drafted > 0,
                         f"{name}, {os.path.basename(draft)}: {accepted} of {drafted} guesses stay")
    return counts


def check_refusals(report, cluster):
    for tail, part in [("99", "there is no layer 99"), ("3-1", "the range 3-1 is reversed"),
                       ("1,1", "layer 1 follows layer 1"), ("", "does not begin with")]:
        run = subprocess.run([os.path.join(cluster.bin, "outrider-coordinator"), "--target",
                              cluster.worker_addresses[0], "--draft", f"{TARGET},layers={tail}",
                              "--listen", f"unix:{cluster.folder}/refused"],
                             capture_output=True, encoding="utf-8", timeout=60, check=False)
        report.check(run.returncode == 78 and part in run.stdout + run.stderr,
                     f"layers={tail} is refused")


def main():
    build = sys.argv[1]
    report = Report()
    with GenerationCluster(build) as cluster:
        prompts = [prompt["ids"] for prompt in golden_prompts()[:4]]
        check_texts(report, cluster, prompts,
                    [TARGET + ",layers=0-1", TARGET + ",layers=0,2", TARGET + ",layers=all"])
        check_refusals(report, cluster)
    with GenerationCluster(build, target=PAIR, draft=PAIR + ",draft=1", n_ranks=2) as cluster:
        prompts = [[1, 2, 3], [40, 50]]
        drafts = [PAIR + ",draft=1", PAIR + ",layers=0", PAIR + ",layers=0,2-3"]
        counts = check_texts(report, cluster, prompts, drafts)
        for name, _ in CASES:
            report.check(counts[drafts[0], name] == counts[drafts[1], name],
                         f"{name}: the core drafts as the pair's draft does")
    return report.status()


if __name__ == "__main__":
    sys.exit(main())
