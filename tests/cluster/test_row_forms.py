#!/usr/bin/env python3
# ctest: labels=statistics libs=worker beside=yes timeout=1800
"""Compact rows and whole rows through a real cluster: the same seed gives the same text and the
same decisions, and the texts of both have the target's distribution. Prints what a position costs
on the wire in each form.
Usage: test_row_forms.py BUILD_FOLDER
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from generations import (GenerationCluster, Report, chi_square, exact_pairs, fit_cells,
                         golden_prompts, order, side_by_side)

N_RANKS = 2
N_SEEDS = 10            # of each prompt and setting
TEXT_TOKENS = 24
PROMPT = [338]          # "The"
N_DRAFT = 3
N_DRAWS = 20000
BATCH = 5000
LEAST = 2e-4            # rarer pairs are one cell
P_LEAST = 1e-4
ONE_THREAD = ["--threads", "1"]
DECISIONS = ("ids", "committed", "accepted_in_round", "finish", "rounds", "drafted", "accepted",
             "rejections", "rows")
SETTINGS = {
    "temperature 1": {"temperature": 1},
    "temperature 0.7": {"temperature": 0.7},
    "top_k 20, top_p 0.9": {"temperature": 1, "top_k": 20, "top_p": 0.9},
}


def bytes_per_row(done):
    """Sent and received, over the rows of all rounds but the first."""
    rows = sum(one["rows"] for one in done)
    return (sum(one["bytes_sent"] for one in done) / rows,
            sum(one["bytes_received"] for one in done) / rows)


def check_same_decisions(cluster, report, rule, name, fields):
    def run(full_rows):
        return cluster.generate([order(prompt["ids"], repeat=N_SEEDS, seed=1, rule=rule,
                                       max_tokens=TEXT_TOKENS, n_draft=5, full_rows=full_rows,
                                       ignore_eos=1, **fields) for prompt in golden_prompts()])

    compact, full = run(0), run(1)
    n_other = sum(a[key] != b[key] for a, b in zip(compact, full) for key in DECISIONS)
    sent, received = bytes_per_row(compact)
    _, received_full = bytes_per_row(full)
    rejections = sum(one["rejections"] for one in compact)
    report.check(n_other == 0 and len(compact) == len(full) and rejections > 0,
                 f"{rule}, {name}: {len(compact)} texts with {rejections} rejections alike in "
                 f"{len(DECISIONS)} figures; a position sends {sent:.0f} B and answers "
                 f"{received:.0f} B compact, {received_full:.0f} B full"
                 + (f"; {n_other} figures differ" if n_other else ""))
    report.check(received < received_full / 2, f"{rule}, {name}: compact rows are smaller")


def draw(cluster, report, full_rows, first_seed):
    """The first two tokens after the prompt, without truncation: rejection draws outside of the
    draft's support, whose mass compact rows know only as a sum."""
    done = []
    while len(done) < N_DRAWS:
        done += cluster.generate([order(PROMPT, repeat=BATCH, seed=first_seed + len(done),
                                        max_tokens=N_DRAFT + 1, temperature=1, n_draft=N_DRAFT,
                                        rule="rejection", full_rows=full_rows, ignore_eos=1)])
        report.note(f"{'full' if full_rows else 'compact'} rows: {len(done)} of {N_DRAWS}")
    return [tuple(one["ids"][:2]) for one in done]


def describe(result):
    return (f"chi-square {result['chi_square']:.1f} over {result['cells']} cells, p = "
            f"{result['p_value']:.3g}; total variation of {result['detectable_tv']:.3f} would be "
            "found in 9 of 10 cases")


def main():
    build = sys.argv[1]
    report = Report()
    exact = exact_pairs(build, PROMPT, 0, LEAST)
    with GenerationCluster(build, n_ranks=N_RANKS) as cluster:
        for name, fields in SETTINGS.items():
            check_same_decisions(cluster, report, "rejection", name, fields)
        check_same_decisions(cluster, report, "block", "temperature 1", SETTINGS["temperature 1"])
    with GenerationCluster(build, worker_flags=ONE_THREAD) as cluster, \
            GenerationCluster(build, worker_flags=ONE_THREAD) as other:
        compact, full = side_by_side(lambda: draw(cluster, report, 0, 1),
                                     lambda: draw(other, report, 1, 500001))
    samples = {"compact": compact, "full": full}
    cells = {}
    for name, pairs in samples.items():
        cells[name] = fit_cells(pairs, exact)
        fit = chi_square(build, "fit", cells[name])
        report.check(fit["p_value"] > P_LEAST,
                     f"{name} rows, against the exact one: {describe(fit)}")
    counts = [(a, b) for (a, _), (b, _) in zip(cells["compact"], cells["full"])]
    same = chi_square(build, "same", counts)
    report.check(same["p_value"] > P_LEAST, f"compact against full: {describe(same)}")
    return report.status()


if __name__ == "__main__":
    sys.exit(main())
