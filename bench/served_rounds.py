#!/usr/bin/env python3
"""Tokens per second of a served pair for several numbers of clients, plain and planned, and whether
every text under load is the one that is generated alone.

    bench/served_rounds.py BUILD [--shape llama-3.1-8b] [--agree 0.8] [--clients 1,8,32,64]
                           [--requests 2] [--prompt-tokens 128] [--tokens 128] [--ranks 1]
                           [--device cuda] [--worker-flags ...] [--check-s 25] [--json FILE]

One worker (or --ranks of them under mpirun) serves the synthetic pair of that agreement, and a
coordinator on the same device drafts for it. For each number of clients, in a closed loop and
greedily, the arms "plain" (K = 0) and "planned" (the coordinator's own number of guesses) answer
--requests requests of each client, after one of each that is not counted. No prompt is sent twice
while times are measured, so that no cache of prefixes helps.

Afterwards texts are generated once more, one at a time, for --check-s seconds at most: in turn of
each number of clients and arm the text of the next client. One that differs ends the program with
status 1. Needs grpcio.
"""
import json
import random
import shlex
import sys
import time

# First, because it starts the script anew with the Python that has grpcio.
from bench_util import build_parser, numbers
from load_generator import Coordinator, LoadError, Request, run_slice

from cluster import Cluster, ClusterError
from planned_rounds import models

FIRST_ID = 300
ARMS = {"plain": 0, "planned": -1}  # K
START_S = 300
LEAST = 4  # requests of a slice


def parse():
    parser = build_parser(__doc__)
    parser.add_argument("--shape", default="llama-3.1-8b")
    parser.add_argument("--agree", type=float, default=0.8)
    parser.add_argument("--clients", type=lambda text: numbers(text, int), default=[1, 8, 32, 64])
    parser.add_argument("--requests", type=int, default=2, help="of each client")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--device", default="cuda", help="of the ranks and of the draft")
    parser.add_argument("--worker-flags", default="", metavar="FLAGS", help="more of them, quoted")
    parser.add_argument("--coordinator-flags", default="", metavar="FLAGS")
    parser.add_argument("--check-s", type=float, default=25)
    parser.add_argument("--json", help="write the figures there too")
    return parser.parse_args()


def cluster_of(args):
    """Room for every client's text in the KV caches, with guesses."""
    most = max(args.clients)
    kv_tokens = 2 * most * (args.prompt_tokens + args.tokens + 64)
    target, draft = models(args.shape, args.agree)
    return Cluster(args.build, n_ranks=args.ranks, target=target, draft=draft,
                   worker_flags=["--device", args.device, "--slots", str(most),
                                 "--kv-tokens", str(kv_tokens), *shlex.split(args.worker_flags)],
                   coordinator_flags=["--device", args.device, "--sequences", str(most),
                                      "--queue", str(most + 64),
                                      "--draft-kv-tokens", str(kv_tokens),
                                      *shlex.split(args.coordinator_flags)])


class Bench:
    def __init__(self, args, address):
        self.args = args
        self.servers = {arm: Coordinator(address, k, keeps_texts=True) for arm, k in ARMS.items()}
        self.vocabulary = self.servers["plain"].vocabulary()
        self.rng = random.Random(1)

    def requests(self, n):
        ids = range(min(FIRST_ID, self.vocabulary // 2), self.vocabulary)
        return [Request(self.rng.choices(ids, k=self.args.prompt_tokens), self.args.tokens)
                for _ in range(n)]

    def measure(self, n_clients):
        """{arm: answers}, and prints a line."""
        slices = {}
        for arm, server in self.servers.items():
            run_slice(server, self.requests(n_clients), n_clients)
            n_requests = max(LEAST, n_clients * self.args.requests)
            slices[arm] = run_slice(server, self.requests(n_requests), n_clients)
        rates = {arm: done.tokens_per_second() for arm, done in slices.items()}
        firsts = sorted(a.first_token_s() for a in slices["planned"].answers)
        print(f"{n_clients} clients: plain {rates['plain']:.1f} tokens/s, planned "
              f"{rates['planned']:.1f} tokens/s, planned over plain "
              f"{rates['planned'] / rates['plain']:.3f}, first token (planned, median) "
              f"{1e3 * firsts[len(firsts) // 2]:.0f} ms", flush=True)
        return slices

    def check(self, answers):
        """Generates texts alone as long as there is time. Returns how many of them differ."""
        end, n_checked, n_different = time.monotonic() + self.args.check_s, 0, 0
        turns = max(map(len, answers.values()))
        in_turn = [(where, found[i]) for i in range(turns) for where, found in answers.items()
                   if i < len(found)]
        for where, answer in in_turn:
            if time.monotonic() > end:
                break
            alone = run_slice(self.servers["planned"], [answer.request], 1).answers[0]
            n_checked += 1
            if alone.token_ids() != answer.token_ids():
                n_different += 1
                print(f"{where}: a text differs from the one generated alone", flush=True)
        print(f"texts: {n_checked} of {len(in_turn)} generated alone, {n_different} of them differ")
        return n_different


def main():
    args = parse()
    figures, answers = [], {}
    start = time.monotonic()
    with cluster_of(args) as cluster:
        cluster.wait_serving(START_S)
        print(f"ready after {time.monotonic() - start:.1f} s, {args.shape}, agree {args.agree:g}, "
              f"{args.prompt_tokens} tokens in, {args.tokens} out", flush=True)
        bench = Bench(args, cluster.address)
        for n_clients in args.clients:
            slices = bench.measure(n_clients)
            figures.append({"clients": n_clients,
                            **{arm: done.tokens_per_second() for arm, done in slices.items()},
                            "generator_ratio": max(d.generator_ratio for d in slices.values())})
            for arm, done in slices.items():
                answers[f"{n_clients} clients, {arm}"] = done.answers
        n_different = bench.check(answers)
    print("  generator    at most "
          f"{max(figure['generator_ratio'] for figure in figures):.3f} of a core")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"points": figures, "different": n_different}, file, indent=1)
    return 1 if n_different else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LoadError, ClusterError) as failure:
        sys.exit(f"bench/served_rounds.py: {failure}")
