#!/usr/bin/env python3
"""Measures the cost of lookups in a round of a long text, which should not depend on its length.

    bench/long_sessions.py BUILD [--tokens 1000,10000,100000] [--new 60] [--turns 3] [--lists LIST]

The tales pair's target is served from a copy whose config.json allows longer texts: beyond 1,024
positions it writes nothing sensible, but rounds are what they are. A prompt is drawn from a few
hundred random phrases, so that ends of it have stood before at many lengths. For each length two
clusters get the same requests, one with --lookup LIST and one with none, both with temperature 1
under `coupled`, and write the same texts, which is checked.

Printed: per length the median over the turns of the coordinator's and the wire's part of a round
(overhead_p50_us) with and without, and the share of guesses that were accepted.
"""
import json
import os
import random
import shutil
import statistics
import tempfile

import bench_util
from cluster import Cluster

TARGET = os.path.join(bench_util.SOURCE, "deploy/models/tales/target")
FLAGS = ("--temperature", "1", "--rule", "coupled", "--ignore-eos")


def longer_model(folder, positions):
    for name in os.listdir(TARGET):
        shutil.copy(os.path.join(TARGET, name), folder)
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config["max_position_embeddings"] = positions
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    return folder


def make_prompt(n, seed):
    """A text of about n tokens."""
    coins = random.Random(seed)
    words = ["".join(coins.choices("aeiourstlnmdh", k=coins.randrange(2, 6))) for _ in range(800)]
    phrases = [" ".join(coins.choices(words, k=coins.randrange(2, 30))) for _ in range(300)]
    text = ""
    while len(text) < 2 * n:
        text += " " + coins.choice(phrases)
    return text


def ask(cluster, path, args, turn):
    return bench_util.generate(cluster, "--file", path, "-n", str(args.new), "--seed",
                               str(turn + 1), *FLAGS, timeout=1500)


def measure(build, folder, args, n, lookups):
    answers = {lookup: [] for lookup in lookups}
    room = 2 * n + args.new + 64
    path = os.path.join(folder, f"prompt-{n}.txt")
    for lookup in lookups:
        flags = ["--lookup", lookup, "--tokenizer", folder]
        with Cluster(build, n_ranks=1, target=folder, draft="none",
                     worker_flags=["--threads", "2", "--kv-tokens", str(room)],
                     coordinator_flags=flags) as cluster:
            cluster.wait_serving(300)
            for turn in range(args.turns):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(make_prompt(n, 7))
                answers[lookup].append(ask(cluster, path, args, turn))
    first, second = (answers[lookup] for lookup in lookups)
    if [a["token_ids"] for a in first] != [a["token_ids"] for a in second]:
        raise SystemExit(f"{n} tokens: the two clusters wrote different texts")
    return first, second


def main():
    parser = bench_util.build_parser(__doc__)
    parser.add_argument("--tokens", default="1000,10000,100000")
    parser.add_argument("--new", type=int, default=60)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--lists", default="session")
    args = parser.parse_args()
    print(" tokens  overhead, us: with  without  alpha   rounds: with  without")
    for n in bench_util.numbers(args.tokens, int):
        with tempfile.TemporaryDirectory() as folder:
            longer_model(folder, 2 * n + 4096)
            found, without = measure(args.build, folder, args, n, (args.lists, "none"))
        over = [statistics.median(a["counters"]["overhead_p50_us"] for a in answers)
                for answers in (found, without)]
        total = {key: sum(a["counters"][key] for a in found)
                 for key in ("accepted", "rejections", "rounds")}
        alpha = total["accepted"] / max(1, total["accepted"] + total["rejections"])
        print(f"{found[0]['prompt_tokens']:7}  {over[0]:18.0f}  {over[1]:7.0f}  {alpha:5.2f}  "
              f"{total['rounds']:13}  "
              f"{sum(a['counters']['rounds'] for a in without):7}", flush=True)


if __name__ == "__main__":
    main()
