#!/usr/bin/env python3
"""Groups of ranks with a GPU each: their texts are those of one rank, and a rank that is killed
takes its group along, after which a new one serves.

    tests/gpu/led_texts.py BUILD --ranks 1,2,4 [--shape llama-3.1-8b] [--agree 0.8] [--tokens 48]
                           [--emulated FAKE_NCCL]

Ranks meet over NCCL without mpirun; the draft runs on GPU 0. For each number of ranks the same
texts are generated greedily and drawn, plainly and with guesses, and compared with those of the
first number. Of groups of several ranks the last rank, and of a second group rank 0, is killed
(SIGKILL) while a text is generated: the request must fail, all other ranks must end within
END_S seconds, and the group that is started then must write the same text. --emulated: all ranks
share an emulated GPU, and tests/support/fake_nccl.c is their NCCL. Exit status 1: a promise is
broken, which is said.
"""
import os
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "tests/support")]
import bench_util
from cluster import ClusterError
from led_cluster import EMULATED_FLAGS, LedCluster, emulated_environment
from planned_rounds import models

PROMPT_IDS = ",".join(str(7 * i % 200 + 1) for i in range(24))
LONG = 8 # times as many tokens as the other texts, so that a rank can be killed while it is made
START_S, END_S = 300, 20
RULES = {"greedy": ("--temperature", "0"), "drawn": ("--temperature", "0.8", "--seed", "5")}
GUESSES = {"plain": ("-K", "0"), "4 guesses": ("-K", "4"), "planned": ("--strategy", "planned")}


class Broken(Exception):
    """A sentence about a promise that was not kept."""


def cluster_of(args, n_ranks):
    target, draft = models(args.shape, args.agree)
    if args.emulated:
        return LedCluster(args.build, n_ranks, target=target, draft=draft,
                          rank_flags=EMULATED_FLAGS,
                          rank_environment=emulated_environment(args.emulated))
    return LedCluster(args.build, n_ranks, target=target, draft=draft,
                      coordinator_flags=("--device", "cuda:0"))


def flags_of(args, rule, guess, times=1):
    return ("--prompt-ids", PROMPT_IDS, "-n", str(times * args.tokens), "--ignore-eos",
            *RULES[rule], *GUESSES[guess])


def compare_texts(args, cluster, n_ranks, texts):
    for rule in RULES:
        for guess in GUESSES:
            ids = bench_util.generate(cluster, *flags_of(args, rule, guess))["token_ids"]
            if texts.setdefault(rule, ids) != ids:
                raise Broken(f"T = {n_ranks}, {rule}, {guess}: the text is not that of "
                             f"T = {args.ranks[0]}, plain")


def kill_in_a_text(args, cluster, killed, texts):
    """Kills that rank while a text is generated; then a new group serves under the old address."""
    text = cluster.popen("generate", *flags_of(args, "greedy", "plain", LONG),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with text:
        if not text.stdout.read(1):
            raise Broken(f"the text ended before it began: {text.stderr.read().decode()}")
        begin = time.monotonic()
        cluster.ranks[killed].process.kill()
        statuses = cluster.wait_ranks_end(END_S)
        seconds = time.monotonic() - begin
        _, said = text.communicate(timeout=60)
    others = [status for rank, status in enumerate(statuses) if rank != killed]
    if 0 in others:
        raise Broken(f"rank {killed} was killed, and the ranks' exit statuses are {statuses}")
    if text.returncode == 0:
        raise Broken(f"rank {killed} was killed, and the text that it made was finished")
    cluster.start_workers()
    cluster.wait_serving(START_S)
    ids = bench_util.generate(cluster, *flags_of(args, "greedy", "4 guesses"))["token_ids"]
    if ids != texts["greedy"]:
        raise Broken(f"after rank {killed} was killed a new group writes another text")
    if b"lost" not in said:
        raise Broken(f"rank {killed} was killed, and the client does not say so: {said.decode()}")
    print(f"T = {cluster.n_ranks}: rank {killed} was killed; the others ended within "
          f"{seconds:.1f} s with {sorted(set(others))}, and a new group served the same text",
          flush=True)


def run(args):
    texts = {}
    for n_ranks in args.ranks:
        begin = time.monotonic()
        with cluster_of(args, n_ranks) as cluster:
            cluster.wait_serving(START_S)
            ready_s = time.monotonic() - begin
            compare_texts(args, cluster, n_ranks, texts)
            print(f"T = {n_ranks}: ready in {ready_s:.1f} s, {len(RULES) * len(GUESSES)} texts are "
                  "equal", flush=True)
            for killed in (n_ranks - 1, 0) if n_ranks > 1 else ():
                kill_in_a_text(args, cluster, killed, texts)
    if texts["greedy"] == texts["drawn"]:
        raise Broken("the texts that were drawn are the greedy ones: nothing was compared")


def main():
    parser = bench_util.build_parser(__doc__)
    parser.add_argument("--ranks", type=lambda text: bench_util.numbers(text, int), default=[1, 2])
    parser.add_argument("--shape", default="llama-3.1-8b")
    parser.add_argument("--agree", type=float, default=0.8)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--emulated", metavar="FAKE_NCCL")
    args = parser.parse_args()
    try:
        run(args)
    except (Broken, ClusterError, OSError, subprocess.SubprocessError) as failure:
        print(f"tests/gpu/led_texts.py: {failure}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
