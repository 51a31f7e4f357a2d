#!/usr/bin/env python3
"""The planner's K against every fixed K and against plain decoding, on real clusters.

    bench/planned_rounds.py BUILD [--agree 0,0.3,0.6,0.8,0.9] [--shape llama-3.2-1b] [--ranks 1]
                            [--k 0,1,2,3,4,5,6,8] [--turns 20] [--tokens 200] [--rule coupled]
                            [--threads N] [--device cuda] [--also "FLAG ..."] [--alone]

It starts one cluster for each agreement, with a synthetic pair whose alpha is about that
(docs/architecture.md); agreement 0 is a draft of another seed. In each turn every arm (planned, and
each fixed K) generates one text from the same prompt. The order rotates, so that a change of the
machine's speed affects all arms. Under the rule `coupled` (default) all arms of a turn write the
same text, so that they differ in time alone; under `rejection` their random draws differ too.
Tokens per second are the server's own and count decode rounds, not the prompt.

Printed: the median rate of each arm; the best fixed K by that median; planned over it and over
plain as the median of the turns with quartiles; the planner's times at the end. The planner learns
from the rounds of the other arms too, as it learns from other requests in service. With --alone it
learns only from its own; the fixed arms then run afterwards, on a coordinator of their own, and
therefore not under the same conditions.
"""
import statistics

import bench_util
from bench_util import decode_rate, numbers, quartiles_text
from cluster import Cluster

PROMPT_TOKENS = 64
PLANNED = "planned"


def models(shape, agree):
    """The names of target and draft."""
    if agree == 0:  # a draft of another seed agrees with this target only by chance
        return f"synthetic:{shape},seed=1,agree=0.5", f"synthetic:{shape},seed=2,agree=0.5,draft=1"
    target = f"synthetic:{shape},seed=1,agree={agree:g}"
    return target, f"{target},draft=1"


def generate(cluster, arm, turn, tokens, rule):
    ids = ",".join(str((turn * 1009 + i * 31) % 200 + 1) for i in range(PROMPT_TOKENS))
    strategy = ("--strategy", PLANNED) if arm == PLANNED else ("-K", str(arm))
    return bench_util.generate(cluster, "--prompt-ids", ids, "-n", str(tokens), "--temperature",
                               "1", "--rule", rule, "--seed", str(turn + 1), "--ignore-eos",
                               *strategy, timeout=600)


def restart(cluster):
    cluster.coordinator.stop()
    cluster.start_coordinator()
    cluster.wait_serving()


def run_turns(cluster, arms, args):
    answers = {arm: [] for arm in arms}
    for arm in (PLANNED, 0):  # so that pages are touched and the planner has begun to learn
        generate(cluster, arm, 0, args.tokens, args.rule)
    for turn in range(args.turns):
        shift = turn % len(arms)
        for arm in arms[shift:] + arms[:shift]:
            answers[arm].append(generate(cluster, arm, turn, args.tokens, args.rule))
    return answers


def report(agree, answers):
    rates = {arm: statistics.median(map(decode_rate, found)) for arm, found in answers.items()}
    fixed = [arm for arm in rates if arm != PLANNED]
    best = max(fixed, key=rates.get)

    def over(arm):
        return quartiles_text([decode_rate(a) / decode_rate(b)
                               for a, b in zip(answers[PLANNED], answers[arm])], 3)

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
    threads = ["--threads", str(args.threads), "--device", args.device]
    with Cluster(args.build, n_ranks=args.ranks, target=target, draft=draft, worker_flags=threads,
                 coordinator_flags=[*threads, *args.also.split()]) as cluster:
        cluster.wait_serving(300)
        if not args.alone:
            return report(agree, run_turns(cluster, [PLANNED, *arms], args))
        answers = {arm: [] for arm in [PLANNED, *arms]}
        for part in ([PLANNED], arms):
            restart(cluster)
            answers.update(run_turns(cluster, part, args))
        return report(agree, answers)


def main():
    parser = bench_util.build_parser(__doc__)
    parser.add_argument("--agree", default="0,0.3,0.6,0.8,0.9")
    parser.add_argument("--shape", default="llama-3.2-1b")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--k", default="0,1,2,3,4,5,6,8")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rule", default="coupled")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="of the ranks and of the draft")
    parser.add_argument("--also", default="", help="further flags of the coordinator")
    parser.add_argument("--alone", action="store_true",
                        help="the planner learns from its own rounds only")
    args = parser.parse_args()
    for agree in numbers(args.agree, float):
        run_agreement(agree, args)


if __name__ == "__main__":
    main()
