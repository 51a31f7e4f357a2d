#!/usr/bin/env python3
"""Decoding beside another engine on the same weights, request by request in turn.

    bench/compare_engines.py BUILD --target FOLDER [--draft FOLDER] [-K N] [--ranks 1]
                             [--threads 2] [--draft-threads 1] [--draft-ahead auto]
                             [--weights bf16] [--tokens 64] [--pairs 20]
                             --other NAME::PATTERN::COMMAND [--other ...]

The other engine is a command that decodes about as many tokens with as many threads and prints its
tokens per second, which the first group of PATTERN (a regular expression) must match. It is started
anew for every pair, while our cluster (workers, coordinator, client of BUILD; greedy, end of
sequence ignored) is idle. The time that it needs to load is not counted, and neither is our
prompt's. The first run of each warms up and is dropped. Printed: both rates and our rate over
theirs, as medians with quartiles of the pairs.
"""
import re
import shlex
import subprocess

from bench_util import PROMPTS, build_parser, decode_rate, generate_prompt, quartiles_text
from cluster import Cluster


def parse():
    parser = build_parser(__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft")
    parser.add_argument("-K", type=int, default=0, dest="k", help="-1: as the coordinator plans it")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--draft-threads", type=int, default=1)
    parser.add_argument("--draft-ahead", default="auto")
    parser.add_argument("--weights", default="bf16")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--other", action="append", required=True, metavar="NAME::PATTERN::COMMAND")
    return parser.parse_args()


def other_rate(pattern, command):
    done = subprocess.run(shlex.split(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=600, check=False)
    text = done.stdout.decode("utf-8", "replace")
    found = re.search(pattern, text)
    if done.returncode or not found:
        raise SystemExit(f"{command}: status {done.returncode}, no {pattern} in\n{text[-2000:]}")
    return float(found.group(1))


def main():
    args = parse()
    weights = ["--weights", args.weights] if args.weights != "bf16" else []
    others = [other.split("::", 2) for other in args.other]
    with Cluster(args.build, n_ranks=args.ranks, target=args.target, draft=args.draft,
                 worker_flags=["--threads", str(args.threads), *weights],
                 coordinator_flags=["--threads", str(args.draft_threads), *weights,
                                    "--draft-ahead", args.draft_ahead]) as cluster:
        ours, theirs = [], {name: [] for name, _, _ in others}
        answer = None
        for pair in range(args.pairs + 1):
            arms = [(None, None, None), *others]
            for name, pattern, command in arms if pair % 2 else reversed(arms):
                if name:
                    theirs[name].append(other_rate(pattern, command))
                else:
                    answer = generate_prompt(cluster, PROMPTS[pair % len(PROMPTS)], args.k, 0,
                                             args.tokens, 1)
                    ours.append(decode_rate(answer))
        c = answer["counters"]
        print(f"{args.target}, K {args.k}, {args.ranks} ranks x {args.threads} threads, "
              f"{answer['arithmetic']}; last request: alpha {answer['alpha'] or 0:.2f}, "
              f"{c['drafted']} drafted, {c['accepted']} accepted")
        print(f"ours  tokens/s {quartiles_text(ours[1:])}")
        for name, rates in theirs.items():
            ratios = [a / b for a, b in zip(ours[1:], rates[1:])]
            print(f"{name}  tokens/s {quartiles_text(rates[1:])}, ours over it "
                  f"{quartiles_text(ratios)}")


if __name__ == "__main__":
    main()
