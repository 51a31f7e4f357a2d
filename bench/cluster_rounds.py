#!/usr/bin/env python3
"""Speculation against plain decoding on a real cluster, and where a round's time goes.

    bench/cluster_rounds.py BUILD [--ranks 1,2] [--k 1,2,3,4,5,6,8] [--temperature 0,1]
                            [--pairs 20] [--tokens 200] [--target MODEL --draft MODEL] [--tcp]

For each T and temperature it starts one cluster (workers, coordinator, the client of BUILD) on this
machine. For every K the arms "K guesses" and "plain" (K = 0) alternate request by request over the
prompts, so that a change of the machine's speed affects both. Tokens per second are the server's
own and count decode rounds, not the prompt. Printed per K: the two rates, their ratio as the median
of the pairs with quartiles, alpha, tokens per round, and two predictions from what was measured in
the same run:
  thm 3.8   (1 - a^(K+1)) / ((1 - a) (K c + 1)): Leviathan et al. 2023, Theorem 3.8
  design 7  plain round / ((K t_d + t_v(K + 1) + overhead) / tokens per round): section 7 of
            docs/design.md
with a = alpha, c = t_d / t_v(1), t_d the draft's time per guess, t_v the slowest rank's step. The
overhead is coordinator and wire: a round less draft, compute and collective; it is the P50 of the
rounds of each request, and of those the median over requests.
"""
import os
import statistics

from bench_util import (PROMPTS, build_parser, decode_rate, generate_prompt, numbers,
                        quartiles_text)
from cluster import Cluster, TALES

def per_round(answer, key):
    c = answer["counters"]
    return c[key] / max(1, c["rounds"] - 1)


def guess_us(c):
    """Time of a guess. draft_us leaves out the first round, so the number of guesses does, too."""
    timed = c["drafted"] * (c["rounds"] - 1) / max(1, c["rounds"])
    return c["draft_us"] / max(1, timed)


def compare(cluster, k, temperature, args):
    fast, plain = [], []
    for i in range(args.pairs):
        prompt = PROMPTS[i % len(PROMPTS)]
        arms = [(k, fast), (0, plain)]
        for arm_k, answers in arms if i % 2 else reversed(arms):
            answers.append(generate_prompt(cluster, prompt, arm_k, temperature, args.tokens,
                                           i + 1))
    median = statistics.median
    total = {key: sum(a["counters"][key] for a in fast)
             for key in ("accepted", "rejections", "drafted", "rounds")}
    alpha = total["accepted"] / max(1, total["accepted"] + total["rejections"])
    per = median(decode_rate(a) * per_round(a, "rounds_us") * 1e-6 for a in fast)
    t_d = median(guess_us(a["counters"]) for a in fast)
    t_v = {name: median(per_round(a, "verify_us") + per_round(a, "collective_us") for a in answers)
           for name, answers in (("K", fast), ("1", plain))}
    overhead = {name: median(a["counters"]["overhead_p50_us"] for a in answers)
                for name, answers in (("K", fast), ("1", plain))}
    c = t_d / t_v["1"]
    drafted = total["drafted"] / total["rounds"]
    expected = (1 - alpha ** (k + 1)) / (1 - alpha) if alpha < 1 else k + 1
    theorem = expected / (k * c + 1)
    design = (t_v["1"] + overhead["1"]) / ((drafted * t_d + t_v["K"] + overhead["K"]) / per)
    ratios = [decode_rate(a) / decode_rate(b) for a, b in zip(fast, plain)]
    print(f"{k:2d}  {median(map(decode_rate, fast)):8.0f} {median(map(decode_rate, plain)):8.0f}  "
          f"{quartiles_text(ratios):22s} {theorem:8.2f} {design:9.2f}  "
          f"{alpha:5.3f} {per:6.2f} {c:6.3f}  "
          f"{t_d:6.0f} {t_v['1']:7.0f} {t_v['K']:7.0f}  {overhead['1']:6.0f} {overhead['K']:6.0f}",
          flush=True)


def main():
    parser = build_parser(__doc__)
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--k", default="1,2,3,4,5,6,8")
    parser.add_argument("--temperature", default="0,1")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--target", default=os.path.join(TALES, "target"))
    parser.add_argument("--draft", default=os.path.join(TALES, "draft"))
    parser.add_argument("--tcp", action="store_true",
                        help="TCP on loopback instead of unix sockets")
    args = parser.parse_args()
    for n_ranks in numbers(args.ranks, int):
        for temperature in numbers(args.temperature, float):
            print(f"\nT = {n_ranks}, temperature {temperature:g}, {args.tokens} tokens, "
                  f"{args.pairs} pairs, {'tcp' if args.tcp else 'unix sockets'}")
            print(" K   K tok/s  plain     speed-up (quartiles)    thm 3.8  design 7  "
                  "alpha tok/rd     c     t_d us t_v(1)  t_v(K)  overhead us: 1, K")
            with Cluster(args.build, n_ranks=n_ranks, target=args.target, draft=args.draft,
                         transport="tcp" if args.tcp else "unix") as cluster:
                for k in numbers(args.k, int):
                    compare(cluster, k, temperature, args)


if __name__ == "__main__":
    main()
