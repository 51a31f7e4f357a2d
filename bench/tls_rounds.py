#!/usr/bin/env python3
"""Measures the cost of mutual TLS between coordinator and workers in a round.

    bench/tls_rounds.py BUILD [--ranks 2] [--k 0,4] [--temperature 0,1] [--turns 60] [--tokens 100]
                        [--target MODEL --draft MODEL]

It starts three clusters of T ranks on this machine that differ in their connections alone: unix
sockets, plain TCP on loopback, and TCP with mutual TLS (certificates of deploy/tls/make-ca). In
each turn every cluster generates one text from the same prompt; the order rotates, so that a change
of the machine's speed affects all of them. The time of a round that is compared is what neither the
draft nor the ranks' computing and adding takes (overhead_p50_us, the median of a request's rounds):
coordinator and wire. Printed: its median over the turns for each kind, and the differences, turn by
turn, as medians with quartiles. The bar is 60 us for mutual TLS over plain TCP with two ranks.
"""
import os

import bench_util
from bench_util import PROMPTS, generate_prompt, numbers, quartiles_text
from cluster import Cluster, TALES
from made_ca import MadeCa

KINDS = ("unix", "tcp", "mtls")


def start(kind, ca, args):
    secure = kind == "mtls"
    return Cluster(args.build, n_ranks=args.ranks, target=args.target, draft=args.draft,
                   transport="unix" if kind == "unix" else "tcp",
                   worker_flags=ca.door("worker") if secure else [],
                   coordinator_flags=ca.caller("--target", "coordinator") if secure else [])


def wire_bytes(answer):
    """To and from all ranks, of a round."""
    counters = answer["counters"]
    return (counters["bytes_sent"] + counters["bytes_received"]) / counters["rounds"]


def measure(clusters, k, temperature, args):
    answers = {kind: [] for kind in KINDS}
    for turn in range(-2, args.turns):  # the first two warm up
        shift = turn % len(KINDS)
        for kind in KINDS[shift:] + KINDS[:shift]:
            answer = generate_prompt(clusters[kind], PROMPTS[turn % len(PROMPTS)], k, temperature,
                                     args.tokens, turn + 3)
            if turn >= 0:
                answers[kind].append(answer)
    times = {kind: [a["counters"]["overhead_p50_us"] for a in found]
             for kind, found in answers.items()}
    n_bytes = sum(map(wire_bytes, answers["tcp"])) / args.turns
    print(f"{k:2d} {temperature:4g} {n_bytes:8.0f}  " +
          "  ".join(f"{quartiles_text(times[kind], 0):>20s}" for kind in KINDS) + "  " +
          "  ".join(f"{quartiles_text([a - b for a, b in zip(times[one], times[other])], 0):>20s}"
                    for one, other in (("tcp", "unix"), ("mtls", "tcp"))), flush=True)


def main():
    parser = bench_util.build_parser(__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--k", default="0,4")
    parser.add_argument("--temperature", default="0,1")
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--target", default=os.path.join(TALES, "target"))
    parser.add_argument("--draft", default=os.path.join(TALES, "draft"))
    args = parser.parse_args()
    print(f"T = {args.ranks}, {args.tokens} tokens, {args.turns} turns; us of a round besides "
          "drafting, computing and adding: median (quartiles)")
    print(" K temp  bytes  " + "  ".join(f"{kind:>20s}" for kind in KINDS) +
          f"  {'tcp - unix':>20s}  {'mtls - tcp':>20s}")
    with MadeCa("worker=127.0.0.1", "coordinator") as ca, \
            start("unix", ca, args) as unix, start("tcp", ca, args) as tcp, \
            start("mtls", ca, args) as mtls:
        clusters = {"unix": unix, "tcp": tcp, "mtls": mtls}
        for k in numbers(args.k, int):
            for temperature in numbers(args.temperature, float):
                measure(clusters, k, temperature, args)


if __name__ == "__main__":
    main()
