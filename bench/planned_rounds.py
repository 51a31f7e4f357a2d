#!/usr/bin/env python3
"""The planner's K against every fixed K and against plain decoding, on real clusters.

    bench/planned_rounds.py BUILD [--agree 0,0.3,0.6,0.8,0.9] [--shape llama-3.2-1b] [--ranks 1]
                            [--k 0,1,2,3,4,5,6,8] [--turns 20] [--tokens 200] [--rule coupled] [--threads N]

One cluster per agreement: a synthetic pair whose alpha is about that (docs/architecture.md); agreement 0
is a draft of another seed. In each turn every arm (planned, and each fixed K) generates one text from the
same prompt; the order rotates, so that all see the same weather. Under the rule `coupled` (default) all
arms of a turn write the same text, so that they differ in time alone; under `rejection` luck differs, too. Tokens per second are the server's
own (decode rounds, the prompt's left out). Printed: the median rate of each arm; the best fixed K by
that median; planned over it and over plain as the median of the turns with quartiles; the planner's
times at the end. The planner learns from the other arms' rounds too, as it does from other requests in
service; with --alone it learns from its own only: the fixed arms then run afterwards, on a coordinator
of their own, and see other weather.
"""
import argparse
import json
import os
import statistics
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(SOURCE, "tests/support"))
from cluster import Cluster  # noqa: E402

PROMPT_TOKENS = 64
PLANNED = "planned"


def numbers(text, kind):
    return [kind(word) for word in text.split(",")]


def models(shape, agree):
    """Names of target and draft."""
    if agree == 0: # a core of another seed knows nothing of this one
        return f"synthetic:{shape},seed=1,agree=0.5", f"synthetic:{shape},seed=2,agree=0.5,draft=1"
    target = f"synthetic:{shape},seed=1,agree={agree:g}"
    return target, f"{target},draft=1"


def generate(cluster, arm, turn, tokens, rule):
    ids = ",".join(str((turn * 1009 + i * 31) % 200 + 1) for i in range(PROMPT_TOKENS))
    way = ("--strategy", PLANNED) if arm == PLANNED else ("-K", str(arm))
    done = cluster.outrider("generate", "--prompt-ids", ids, "-n", str(tokens), "--temperature", "1",
                            "--rule", rule, "--seed", str(turn + 1), "--ignore-eos", "--json",
                            *way, timeout=600)
    if done.returncode:
        raise SystemExit(f"generate failed: {done.stderr}")
    return json.loads(done.stdout)


def rate(answer):
    c = answer["counters"]
    return (len(answer["token_ids"]) - c["first_round_tokens"]) * 1e6 / c["rounds_us"]


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def restart(cluster):
    cluster.coordinator.stop()
    cluster.start_coordinator()
    cluster.wait_serving()


def run_turns(cluster, arms, args):
    answers = {arm: [] for arm in arms}
    for arm in (PLANNED, 0): # pages are touched, the planner has begun
        generate(cluster, arm, 0, args.tokens, args.rule)
    for turn in range(args.turns):
        shift = turn % len(arms)
        for arm in arms[shift:] + arms[:shift]:
            answers[arm].append(generate(cluster, arm, turn, args.tokens, args.rule))
    return answers


def report(agree, answers):
    rates = {arm: statistics.median(map(rate, found)) for arm, found in answers.items()}
    fixed = [arm for arm in rates if arm != PLANNED]
    best = max(fixed, key=rates.get)

    def over(arm):
        return quartiles([rate(a) / rate(b) for a, b in zip(answers[PLANNED], answers[arm])])

    tested = sum(a["counters"]["accepted"] + a["counters"]["rejections"] for a in answers[best])
    alpha = sum(a["counters"]["accepted"] for a in answers[best]) / tested if tested else 0
    mean_k = statistics.mean(a["mean_k"] for a in answers[PLANNED])
    print(f"\nagree {agree:g}: alpha {alpha:.3f} at the best fixed K {best}; planned has mean K "
          f"{mean_k:.2f}")
    print("  tokens/s  " + "  ".join(f"{arm}: {rates[arm]:.1f}" for arm in rates))
    print(f"  planned over the best fixed K  {over(best)}")
    print(f"  planned over plain             {over(0)}")
    planner = answers[PLANNED][-1]["planner"]
    print("  " + ", ".join(f"{key} {planner[key]:.4g}" for key in
                           ("draft_us", "read_us", "step_us", "row_us", "rtt_us")), flush=True)


def run_agreement(agree, args):
    target, draft = models(args.shape, agree)
    arms = sorted(set(numbers(args.k, int)) | {0})
    threads = ["--threads", str(args.threads)]
    with Cluster(args.build, n_ranks=args.ranks, target=target, draft=draft, worker_flags=threads,
                 coordinator_flags=threads) as cluster:
        cluster.wait_serving(300)
        if not args.alone:
            return report(agree, run_turns(cluster, [PLANNED, *arms], args))
        answers = {arm: [] for arm in [PLANNED, *arms]}
        for part in ([PLANNED], arms):
            restart(cluster)
            answers.update(run_turns(cluster, part, args))
        return report(agree, answers)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build")
    parser.add_argument("--agree", default="0,0.3,0.6,0.8,0.9")
    parser.add_argument("--shape", default="llama-3.2-1b")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--k", default="0,1,2,3,4,5,6,8")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rule", default="coupled")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--alone", action="store_true",
                        help="the planner learns from its own rounds only")
    args = parser.parse_args()
    for agree in numbers(args.agree, float):
        run_agreement(agree, args)


if __name__ == "__main__":
    main()
