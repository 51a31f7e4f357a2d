#!/usr/bin/env python3
"""Compares what `outrider replay` predicts for texts with what serving them has brought.

    bench/replay_served.py BUILD [--turns 10] [--tokens 400] [--target MODEL] [--ranks 1]
                          [--least 1.5]

One cluster without a draft model serves greedy texts, planned with --lookup session and plainly
(K = 0), in turns, so that a change of the machine's speed affects both. Then `outrider replay -d
session` goes through the same texts with the times that this coordinator has kept
(`--pack-cache`). Printed, by the server's time of decoding: the speed-up as served, the median of
the turns with quartiles and that of all texts together; the one predicted for all of them; and the
one over the other. Then the same of those texts alone for which, each by itself, replay predicts
--least or more: they are the ones that loop.
"""
import glob
import json
import os
import subprocess
import tempfile

import bench_util
from bench_util import decode_rate, quartiles_text
from cluster import Cluster


def ids_of(cluster, prompt):
    done = cluster.outrider("tokenize", "-m", cluster.target, prompt)
    return [int(line.split()[0]) for line in done.stdout.splitlines() if line.strip()]


def ask(cluster, ids, tokens, words):
    return bench_util.generate(cluster, "--prompt-ids", ",".join(map(str, ids)), "-n", str(tokens),
                               "--ignore-eos", "--temperature", "0", *words)


def run_turns(cluster, args):
    """The texts, and for each the us of its answer, plainly and planned."""
    texts, us = [], []
    for turn in range(-1, args.turns):  # the first one is for pages and the planner
        prompt = bench_util.PROMPTS[turn % len(bench_util.PROMPTS)]
        ids = ids_of(cluster, prompt + " So" * (turn + 2))
        arms = [(), ("-K", "0")]
        found = [ask(cluster, ids, args.tokens, words)
                 for words in (arms if turn % 2 else arms[::-1])]
        planned, plain = found if turn % 2 else found[::-1]
        if planned["token_ids"] != plain["token_ids"]:
            raise SystemExit("the planned text is another one than the plain one")
        if turn < 0:
            continue
        us.append([args.tokens / decode_rate(plain), args.tokens / decode_rate(planned)])
        texts.append({"prompt_ids": ids, "answer_ids": planned["token_ids"]})
    return texts, us


def predict(cluster, texts, folder):
    times = glob.glob(os.path.join(folder, "**", "times-*.json"), recursive=True)
    path = os.path.join(folder, "texts.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(text) + "\n" for text in texts)
    done = subprocess.run([os.path.join(cluster.bin, "outrider"), "replay", "-d", "session",
                           "--times", times[0], "--json", path],
                          capture_output=True, encoding="utf-8", check=True)
    return json.loads(done.stdout)["speedup"]


def report(name, us, predicted):
    ratios = [plain / planned for plain, planned in us]
    served = sum(plain for plain, _ in us) / sum(planned for _, planned in us)
    print(f"{name}: {len(us)} texts")
    print(f"  served     {quartiles_text(ratios, 3)}, all together {served:.3f}")
    print(f"  predicted  {predicted:.3f}, over served {predicted / served:.3f}")


def main():
    parser = bench_util.build_parser(__doc__)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--target", default=f"{bench_util.SOURCE}/deploy/models/tales/target")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--least", type=float, default=1.5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, \
            Cluster(args.build, n_ranks=args.ranks, target=args.target, draft="none",
                    coordinator_flags=["--tokenizer", args.target, "--pack-cache",
                                       folder]) as cluster:
        cluster.wait_serving(300)
        texts, us = run_turns(cluster, args)
        cluster.coordinator.stop()  # it writes its times when it ends
        report("all", us, predict(cluster, texts, folder))
        looping = [i for i, text in enumerate(texts)
                   if predict(cluster, [text], folder) >= args.least]
        if looping:
            report(f"predicted {args.least} or more", [us[i] for i in looping],
                   predict(cluster, [texts[i] for i in looping], folder))


if __name__ == "__main__":
    main()
