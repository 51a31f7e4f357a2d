#!/usr/bin/env python3
"""Two groups behind one coordinator over one, and how fast a lost group is noticed and used again.

    bench/groups.py BUILD [--clients 16] [--tokens 64] [--turns 20] [--k 0] [--pair tales]
                    [--losses 10]

Both clusters are there all the time, each with ranks of one compute thread, and the one that is not
measured sleeps. In each turn both answer the same requests, --clients of them at once, for about a
second; the order changes from turn to turn. --k: guesses of each round, or planned. --pair:
deploy/models/tales, or a synthetic pair such as synthetic:llama-3.2-1b,seed=1,agree=0.8.

Printed: tokens per second of all clients, and the ratio as the median of the turns with quartiles.
Then --losses times one of two groups is killed (SIGKILL) and started again: the time until the
coordinator does not use it any more, and the time from its health saying yes until it is used.
"""
import json
import os
import statistics
import subprocess
import time

import bench_util
from bench_util import SOURCE, quartiles_text
from cluster import TALES, wait_until
from fleet import Fleet

FLAGS = ["--threads", "1"]


def models(pair):
    if pair == "tales":
        return os.path.join(TALES, "target"), os.path.join(TALES, "draft")
    return pair, f"{pair},draft=1"


def measure(fleet, args, turn):
    """Tokens per second."""
    guesses = [] if args.k == "planned" else ["-K", args.k]
    report = os.path.join(fleet.folder, "bench.json")
    prompts = ["--prompts", os.path.join(SOURCE, "bench/prompts/tales.txt")]
    done = subprocess.run(
        fleet.command("bench", "-c", str(args.clients), "-n", str(args.tokens), "--requests",
                      str(args.requests), "--seed", str(turn + 1), "--temperature", "1",
                      "--rule", "coupled", "--ignore-eos", "--warmup", "0", "--quiet",
                      "--json", report, *guesses, *(prompts if args.pair == "tales" else [])),
        env=fleet.client_environment(), capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise SystemExit(f"outrider bench failed: {done.stderr}")
    with open(report, encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    return statistics.mean(row["tokens_per_second"] for row in rows)


def compare(one, two, args):
    rates = {one: [], two: []}
    for fleet in rates:
        measure(fleet, args, 0)  # pages are touched, the planner has begun to learn
    for turn in range(args.turns):
        for fleet in (one, two) if turn % 2 else (two, one):
            rates[fleet].append(measure(fleet, args, turn))
    print(f"{args.pair}, K={args.k}, {args.clients} clients, {args.turns} turns")
    print(f"one group   {statistics.median(rates[one]):8.0f} tokens/s")
    print(f"two groups  {statistics.median(rates[two]):8.0f} tokens/s")
    ratios = [b / a for a, b in zip(rates[one], rates[two])]
    print(f"two over one  {quartiles_text(ratios)}", flush=True)


def watch(condition):
    began = time.monotonic()
    wait_until(condition, 30, "the coordinator sees it")
    return time.monotonic() - began


def lose(fleet, args):
    noticed, used = [], []
    if not args.losses:
        return
    for i in range(args.losses):
        group = fleet.groups[i % 2]
        group.kill()
        noticed.append(watch(lambda g=group: not fleet.serves(g)))
        group.start(place=(group.place + 1) % 2)
        group.wait_ready()
        used.append(watch(lambda g=group: fleet.serves(g)))
    print(f"lost group noticed after {max(noticed):.2f} s at most; used again {max(used):.2f} s "
          f"at most after its health says yes ({args.losses} losses; the look takes "
          f"{looks(fleet):.2f} s)")


def looks(fleet):
    began = time.monotonic()
    fleet.serving()
    return time.monotonic() - began


def main():
    parser = bench_util.build_parser(__doc__)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--requests", type=int, default=0,
                        help="in a turn; default --clients, with tales six times as many")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--k", default="0")
    parser.add_argument("--pair", default="tales")
    parser.add_argument("--losses", type=int, default=10)
    args = parser.parse_args()
    args.requests = args.requests or args.clients * (6 if args.pair == "tales" else 1)
    target, draft = models(args.pair)
    options = {"target": target, "draft": draft, "worker_flags": FLAGS, "coordinator_flags": FLAGS}
    with Fleet(args.build, (1,), **options) as one, Fleet(args.build, (1, 1), **options) as two:
        if args.turns:
            compare(one, two, args)
        lose(two, args)


if __name__ == "__main__":
    main()
