#!/usr/bin/env python3
"""Layers of the target as the draft against the draft of the same pair, on real clusters.

    bench/layers_draft.py BUILD [--pair synthetic:llama-3.2-1b,seed=1,vocab=32000,agree=0.8]
                          [--layers 0] [--draft NAME] [--k 4] [--turns 20] [--tokens 120]
                          [--ranks 1] [--threads 2] [--rule coupled]

It starts two coordinators with a target group each. One drafts with the pair's draft (PAIR,draft=1
unless --draft says otherwise), the other with these layers of the target. In each turn both write
one text from the same prompt; which one begins alternates. While one writes, the other is idle.

Printed: whether all texts are equal and the guesses accepted are the same; the median rates in
tokens per second, by the server's own times without the prompt; the rate with layers over the
rate with the draft, as the median of the turns with quartiles.
"""
import statistics

import bench_util
from bench_util import decode_rate, quartiles_text
from cluster import Cluster

PROMPT_TOKENS = 64
PAIR = "synthetic:llama-3.2-1b,seed=1,vocab=32000,agree=0.8"


def generate(cluster, turn, args):
    ids = ",".join(str((turn * 1009 + i * 31) % 200 + 1) for i in range(PROMPT_TOKENS))
    return bench_util.generate(cluster, "--prompt-ids", ids, "-n", str(args.tokens), "-K",
                               str(args.k), "--temperature", "1", "--rule", args.rule, "--seed",
                               str(turn + 1), "--ignore-eos", timeout=600)


def run_turns(clusters, args):
    """[(answer with the draft, answer with layers)]"""
    for cluster in clusters:  # so that pages are touched
        generate(cluster, 0, args)
    turns = []
    for turn in range(args.turns):
        order = (0, 1) if turn % 2 == 0 else (1, 0)
        answers = {arm: generate(clusters[arm], turn, args) for arm in order}
        turns.append((answers[0], answers[1]))
    return turns


def counts(answer):
    return answer["counters"]["drafted"], answer["counters"]["accepted"]


def report(turns):
    same_text = sum(a["token_ids"] == b["token_ids"] for a, b in turns)
    same_guesses = sum(counts(a) == counts(b) for a, b in turns)
    drafted, accepted = map(sum, zip(*(counts(b) for _, b in turns)))
    rates = [statistics.median(decode_rate(turn[arm]) for turn in turns) for arm in (0, 1)]
    ratios = [decode_rate(b) / decode_rate(a) for a, b in turns]
    print(f"{same_text} of {len(turns)} texts are equal, {same_guesses} with as many guesses; "
          f"{accepted} of {drafted} guesses stay")
    print(f"tokens/s  draft {rates[0]:.2f}, layers {rates[1]:.2f}")
    print(f"layers over draft  {quartiles_text(ratios, 3)}")


def main():
    parser = bench_util.build_parser(__doc__)
    parser.add_argument("--pair", default=PAIR)
    parser.add_argument("--layers", default="0")
    parser.add_argument("--draft")
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rule", default="coupled")
    args = parser.parse_args()
    threads = ["--threads", str(args.threads)]
    common = {"n_ranks": args.ranks, "target": args.pair, "worker_flags": threads,
              "coordinator_flags": threads}
    with Cluster(args.build, draft=args.draft or args.pair + ",draft=1", **common) as drafting, \
            Cluster(args.build, draft=f"{args.pair},layers={args.layers}", **common) as skipping:
        for cluster in (drafting, skipping):
            cluster.wait_serving(300)
        report(run_turns((drafting, skipping), args))


if __name__ == "__main__":
    main()
