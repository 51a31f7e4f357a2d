#!/usr/bin/env python3
# ctest: labels=full libs=worker timeout=300
"""Weights of 8 and 4 bits in a real cluster: text with speculation is the text without, greedy and
`coupled`, on 1, 2 and 4 ranks, with a draft in the same form or in another.

Usage: test_quant_text.py BUILD_FOLDER
"""
import sys

from generations import GenerationCluster, Report, golden_prompts, order

GREEDY_TOKENS = 120
SAMPLED_TOKENS = 80


def texts(cluster, prompts, k, **fields):
    """The ids that follow each prompt, and how many guesses were accepted."""
    done = cluster.generate([order(ids, n_draft=k, ignore_eos=1, **fields) for ids in prompts])
    return [one["ids"] for one in done], sum(one["accepted"] for one in done)


def kinds():
    yield "greedy", {"max_tokens": GREEDY_TOKENS, "temperature": 0}
    yield "coupled", {"max_tokens": SAMPLED_TOKENS, "temperature": 1, "rule": "coupled", "seed": 5}


def run(report, build, weights, n_ranks, draft_weights, ks, plain):
    prompts = [prompt["ids"] for prompt in golden_prompts()]
    with GenerationCluster(build, n_ranks=n_ranks, worker_flags=["--weights", weights],
                           coordinator_flags=["--weights", draft_weights]) as cluster:
        report.check(f"arithmetic=cpu-{weights}" in cluster.coordinator.log(),
                     f"{weights}, T = {n_ranks}: the arithmetic is called cpu-{weights}")
        for kind, fields in kinds():
            for k in ks:
                ids, accepted = texts(cluster, prompts, k, **fields)
                wanted = plain.setdefault((weights, kind), ids)
                report.check(ids == wanted and (accepted > 0) == (k > 0),
                             f"{weights}, T = {n_ranks}, draft {draft_weights}, {kind}, K = {k}: "
                             f"{accepted} guesses accepted")


def main():
    build = sys.argv[1]
    report = Report()
    plain = {}
    run(report, build, "bf16", 1, "int8", (0, 4), plain)
    for weights in ("int8", "int4"):
        run(report, build, weights, 1, weights, (0, 1, 3, 5, 8), plain)
        run(report, build, weights, 2, "bf16", (0, 5), plain)
        run(report, build, weights, 4, "int4", (2, 7), plain)
        report.check(plain[weights, "coupled"] != plain["bf16", "coupled"],
                     f"{weights} has other bits than bf16: its text is another")
    return report.status()


if __name__ == "__main__":
    sys.exit(main())
