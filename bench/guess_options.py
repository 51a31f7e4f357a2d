#!/usr/bin/env python3
"""Measures the gain in service of an option that changes guesses, and checks that no text changes.

    bench/guess_options.py BUILD [lookup|trees|draft-staged|lookup-append]
                           [--clients 1,8,32]
                           [--turns 20] [--tokens 400] [--target MODEL] [--draft MODEL] [--k K]
                           [--texts greedy,sampled] [--ranks 1] [--values ONE OTHER]
                           [--kernels avx2] [--device cuda] [--delay-ms 4] [--also "FLAG ..."]
                           [--request "FLAG ..."]

Two clusters run side by side, which differ in one option alone: --lookup session and none, --trees,
one of the others auto and off, or two other values of that option, each of which may be followed by
further flags of its cluster: --values "chains:3x4 --tree-rule=k-sequential" 3,1,1,1. In each turn
both get the same requests, one cluster after the other and in the next turn the other way around,
so that a change of the machine's speed affects both. One that has no requests does nothing. There
are two kinds of texts:
  greedy   temperature 0, which small models soon make repeat themselves: guesses are found
  sampled  temperature 1 under rule coupled: what is found is mostly wrong
and for lookup two kinds of clusters: without a draft model, and with one. Under both kinds of texts
the two clusters write the same tokens, which is checked, so that they differ in time alone. Further
kinds, whose texts differ, are rejection and block: temperature 1 under these rules. With
--k K all requests have a K of their own, which the draft model guesses. --delay-ms MS: the ranks
are so far away, each way. --also: further flags of both coordinators. --request: further flags of
all requests, such as "--repetition-penalty 1.2".

Printed: tokens per second of both (the sum over the streams, each from its first round on and by
the server's time), their ratio as the median of the turns with quartiles; of the first cluster
alpha, the shares of its guesses that were found, that took no pass of the draft of their own and
that were found after the draft's, and siblings per round; and of both committed tokens and guesses
per round, which a busy machine does not change where K is fixed.
"""
import concurrent.futures
import statistics
import time

import bench_util
from bench_util import numbers, quartiles_text
from cluster import Cluster
from far_cluster import FarRanks

OPTIONS = {"lookup": ("session", "none"), "trees": ("auto", "off"),
           "draft-staged": ("auto", "off"), "lookup-append": ("auto", "off")}
EQUAL = {"greedy": ("--temperature", "0"), "sampled": ("--temperature", "1", "--rule", "coupled")}
TEXTS = {**EQUAL, **{rule: ("--temperature", "1", "--rule", rule)
                     for rule in ("rejection", "block")}}


def ask(cluster, turn, client, tokens, words):
    prompt = bench_util.PROMPTS[(turn + client) % len(bench_util.PROMPTS)]
    seed = 1 + turn * 64 + client
    return bench_util.generate(cluster, prompt, "-n", str(tokens), "--ignore-eos", "--seed",
                               str(seed), *words)


class Slice:
    """Sends the requests of a turn to one cluster, at once."""

    def __init__(self, cluster, turn, clients, tokens, words):
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            begin = time.monotonic()
            self.answers = list(pool.map(lambda i: ask(cluster, turn, i, tokens, words),
                                         range(clients)))
            self.seconds = time.monotonic() - begin
        # The server's time, because the start of a client is no part of it.
        rates = [bench_util.decode_rate(answer) for answer in self.answers]
        self.rate = rates[0] if clients == 1 else sum(rates)

    def ids(self):
        return [answer["token_ids"] for answer in self.answers]


def total(slices, name):
    return sum(answer["counters"][name] for one in slices for answer in one.answers)


def per_round(slices, *names):
    """Without names: tokens."""
    n_tokens = sum(len(ids) for one in slices for ids in one.ids())
    n = sum(total(slices, name) for name in names) if names else n_tokens
    return n / max(1, total(slices, "rounds"))


def compare(kind, clusters, text, clients, args):
    found, without = [], []
    words = TEXTS[text] + (("-K", str(args.k)) if args.k is not None else ())
    words += tuple(args.request.split())
    for turn in range(-1, args.turns):  # the first one is for pages and the planner
        pair = [(clusters[0], found), (clusters[1], without)]
        for cluster, slices in pair if turn % 2 else reversed(pair):
            slices.append(Slice(cluster, max(turn, 0), clients, args.tokens, words))
        if text in EQUAL and found[-1].ids() != without[-1].ids():
            raise SystemExit(f"{kind}, {text}: the two clusters wrote different texts")
    found, without = found[1:], without[1:]
    ratios = [a.rate / b.rate for a, b in zip(found, without)]
    drafted, accepted = total(found, "drafted"), total(found, "accepted")
    alpha = accepted / max(1, accepted + total(found, "rejections"))
    print(f"{kind:9} {text:8} {clients:7}  {statistics.median(s.rate for s in found):8.1f} "
          f"{statistics.median(s.rate for s in without):8.1f}  {quartiles_text(ratios, 3)}  "
          f"{alpha:5.2f} {total(found, 'found') / max(1, drafted):5.2f} "
          f"{total(found, 'staged') / max(1, drafted):6.2f} "
          f"{total(found, 'appended') / max(1, drafted):8.2f} "
          f"{per_round(found, 'siblings'):8.2f}  "
          f"{per_round(found):5.3f}, {per_round(without):5.3f}  "
          f"{per_round(found, 'drafted', 'siblings'):5.2f}, "
          f"{per_round(without, 'drafted', 'siblings'):5.2f}", flush=True)


class FarCluster(FarRanks, Cluster):
    pass


def run_kind(kind, draft, args):
    threads = ["--threads", str(args.threads), "--kernels", args.kernels, "--device", args.device]
    flags = ["--tokenizer", args.target, *args.also.split(), "--" + args.option]
    FarCluster.delay_s = args.delay_ms / 1000
    kind_of = FarCluster if args.delay_ms else Cluster

    def cluster(value):
        return kind_of(args.build, n_ranks=args.ranks, target=args.target, draft=draft,
                       worker_flags=threads, coordinator_flags=[*threads, *flags, *value.split()])

    first, second = args.values or OPTIONS[args.option]
    with cluster(first) as one, cluster(second) as other:
        one.wait_serving(300)
        other.wait_serving(300)
        for text in args.texts.split(","):
            for clients in numbers(args.clients, int):
                compare(kind, (one, other), text, clients, args)


def main():
    parser = bench_util.build_parser(__doc__)
    tales = f"{bench_util.SOURCE}/deploy/models/tales"
    parser.add_argument("option", nargs="?", choices=OPTIONS, default="lookup")
    parser.add_argument("--values", nargs=2)
    parser.add_argument("--texts", default=",".join(EQUAL))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clients", default="1,8,32")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--k", type=int)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--target", default=f"{tales}/target")
    parser.add_argument("--draft", default=f"{tales}/draft")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--kernels", default="auto")
    parser.add_argument("--device", default="cpu", help="of the ranks and of the draft")
    parser.add_argument("--delay-ms", type=float, default=0)
    parser.add_argument("--also", default="")
    parser.add_argument("--request", default="")
    args = parser.parse_args()
    print("draft     texts    clients      with  without/s  ratio (quartiles)    alpha found "
          "staged appended siblings  tokens a round  guesses a round")
    for kind, draft in (("none", "none"), ("model", args.draft)):
        if kind == "model" or args.option == "lookup":
            run_kind(kind, draft, args)


if __name__ == "__main__":
    main()
