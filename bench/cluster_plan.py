#!/usr/bin/env python3
"""Compares what `outrider plan --cluster` predicts of this machine with what is measured on it.

    bench/cluster_plan.py BUILD [--groups 1,2] [--ranks 1,2] [--delay 0,0.1,1,5] [--clients 4]
                          [--k 0,2] [--repetitions 4] [--out FILE] [--csv FILE]

It first measures the inputs: one group of T = 1 with one client and with --clients at K = 0, 1, 2
and 4 (guess, step, wire, coordinator, alpha), then T = 2 at K = 0 alone, for what a collective sum
and a further rank on the wire cost, and two clusters of T = 1 at once, for how much busy cores slow
each other down. No figure of two groups, of a delayed link or of guesses with T = 2 is an input.
These are written to --out as a file of `outrider plan --cluster`, with a question for each cell.

Then it measures each cell, --clients clients for each group, and prints predicted over measured.
Groups are one thread a rank on this machine, the link is bench_link (milliseconds one way; 0: no
link at all), and its own time is measured by an echo through it. Repetitions during which other
programs used more than 0.15 of a core are made again, up to four times as many; what remains is
printed.
"""
import csv
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import bench_util
from bench_util import SOURCE, numbers
from cluster_inputs import cycle_us, inputs_of, read_arms
from cluster import (MPI_ENVIRONMENT, MPI_FLAGS, Cluster, Program, descendants,
                     wait_until)

COORDINATOR_FLAGS = ["--threads", "1"]
WORKER_FLAGS = ["--threads", "1"]
LOAD = ["--prompts", os.path.join(SOURCE, "bench/prompts/tales.txt"), "--rule", "greedy",
        "--temperature", "0", "--ignore-eos", "--quiet"]
TOKENS = 100
SUMS = 2 * 6 + 1 # two a layer of the tales target, and one for the embedding
ECHOES = 400
QUIET_CORES = 0.15 # used by others: less than this is nothing
TRIES_RATIO = 4
busiest = [] # of each measurement: cores that others used in the worst repetition that counts


class Groups(Cluster):
    """Groups of ranks behind one coordinator, with a link of delay_us in between."""

    def __init__(self, build, n_groups, n_ranks, delay_us):
        self.n_groups, self.delay_us = n_groups, delay_us
        self.others, self.link = [], None
        super().__init__(build, n_ranks, worker_flags=WORKER_FLAGS,
                         coordinator_flags=COORDINATOR_FLAGS)
        self.ranks = [address for g in range(n_groups) for address in self._addresses_of(g)]
        links = [f"unix:{self.folder}/l{i}" for i in range(len(self.ranks))]
        self.worker_addresses = links if delay_us else self.ranks

    def _listen_of(self, group):
        return f"unix:{self.folder}/w{group}"

    def _addresses_of(self, group):
        listen = self._listen_of(group)
        return [f"{listen}.{r}" for r in range(self.n_ranks)] if self.n_ranks > 1 else [listen]

    def start_workers(self):
        for group in range(self.n_groups):
            command = [os.path.join(self.bin, "outrider-worker"), "--model", self.target,
                       "--listen", self._listen_of(group), *self.worker_flags]
            if self.n_ranks > 1:
                command = ["mpirun", *MPI_FLAGS, "-np", str(self.n_ranks), *command]
            name = f"workers{group}"
            self.others.append(Program(name, command, self._log_path(name), MPI_ENVIRONMENT))
        self.workers = self.others[0]
        paths = [address.partition(":")[2] for address in self.ranks]
        wait_until(lambda: all(map(os.path.exists, paths)), 60, "all ranks listen")
        if self.delay_us:
            self.link = start_link(self.build, self.folder, self.delay_us,
                                   zip(self.worker_addresses, self.ranks))

    def stop(self):
        programs = [*self.others[1:], *([self.link] if self.link else [])]
        try:
            return super().stop()
        finally:
            for program in programs:
                program.stop()


def start_link(build, folder, delay_us, pairs):
    paths = [address.partition(":")[2] for pair in pairs for address in pair]
    command = [os.path.join(build, "bench/bench_link"), str(delay_us), *paths]
    link = Program("link", command, os.path.join(folder, "link.log"), {})
    wait_until(lambda: all(map(os.path.exists, paths)), 10, "the link listens")
    return link


# ---- the link itself ----

def echo(server):
    peer, _ = server.accept()
    while True:
        data = peer.recv(4096)
        if not data:
            return
        peer.sendall(data)


def round_trip_us(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        times = []
        for _ in range(ECHOES):
            begin = time.perf_counter()
            client.sendall(b"x" * 300)
            client.recv(4096)
            times.append((time.perf_counter() - begin) * 1e6)
        return statistics.median(times)


def one_way_us(build, delay_us):
    """Returns what the link adds to a message, by the clock: its delay and its own work."""
    if not delay_us:
        return 0.0
    folder = tempfile.mkdtemp(prefix="outrider-link-")
    path = f"{folder}/echo"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        link = start_link(build, folder, delay_us, [(f"unix:{folder}/l", f"unix:{path}")])
        try:
            trips = []
            for way in (path, f"{folder}/l"):
                thread = threading.Thread(target=echo, args=(server,), daemon=True)
                thread.start()
                trips.append(round_trip_us(way))
                thread.join(5)
        finally:
            link.stop()
            shutil.rmtree(folder, ignore_errors=True)
    return (trips[1] - trips[0]) / 2


# ---- measuring ----

def ticks_of(pid):
    """CPU time of a process and of its children that have ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return sum(map(int, file.read().rpartition(")")[2].split()[11:15]))
    except OSError:
        return 0


def machine_ticks():
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq, *_ = map(int, file.readline().split()[1:])
    return user + nice + system + irq + softirq


class Others:
    """How many cores the rest of the machine has used since this was made."""

    def __init__(self):
        self.begin = time.monotonic()
        self.machine, self.own = machine_ticks(), self.own_ticks()

    @staticmethod
    def own_ticks():
        return sum(map(ticks_of, [os.getpid(), *descendants(os.getpid())]))

    def cores(self):
        ticks = machine_ticks() - self.machine - (self.own_ticks() - self.own)
        return ticks / os.sysconf("SC_CLK_TCK") / (time.monotonic() - self.begin)


def quietest(measure, repetitions):
    """The results of so many calls of measure during which nothing else ran, or of those with the
    least beside them, when that does not happen in TRIES_RATIO times as many."""
    results = []
    for _ in range(repetitions * TRIES_RATIO):
        others = Others()
        result = measure()
        results.append((others.cores(), result))
        if sum(cores < QUIET_CORES for cores, _ in results) == repetitions:
            break
    results.sort(key=lambda pair: pair[0])
    busiest.append(results[:repetitions][-1][0])
    return [result for _, result in results[:repetitions]]


def bench(cluster, clients, ks, repetitions, waves):
    """The arms of `outrider bench`, medians of the repetitions. Each arm is measured by itself,
    because others are more likely to be quiet for half a second than for ten; waves: requests of
    each client."""
    arms = []
    for c, k in ((c, k) for c in clients for k in ks):
        command = ["bench", *LOAD, "-n", str(TOKENS), "--sweep", f"C={c},K={k}", "--requests",
                   str(c * waves)]

        def measure(words=tuple(command)):
            path = os.path.join(cluster.folder, f"bench{time.monotonic_ns()}.csv")
            done = cluster.outrider(*words, "--csv", path, timeout=900)
            if done.returncode:
                raise SystemExit(f"bench/cluster_plan.py: {done.stderr}")
            return path

        arms += read_arms(*quietest(measure, repetitions))
    return arms


def together(first, second, repetitions):
    """The arms of both clusters under one plain client each, at the same time."""
    command = [*LOAD, "-n", str(TOKENS), "--sweep", "C=1,K=0", "--requests", "8"]

    def measure():
        paths = [os.path.join(c.folder, f"both{time.monotonic_ns()}.csv") for c in (first, second)]
        running = [cluster.popen("bench", *command, "--csv", path)
                   for cluster, path in zip((first, second), paths)]
        if any(process.wait(900) for process in running):
            raise SystemExit("bench/cluster_plan.py: a request failed")
        return paths

    return [arm for paths in zip(*quietest(measure, repetitions)) for arm in read_arms(*paths)]


# ---- inputs ----

def measure_inputs(args):
    """The file of `outrider plan --cluster`, without questions."""
    clients, r = args.clients, args.repetitions
    with Groups(args.build, 1, 1, 0) as one, Groups(args.build, 1, 1, 0) as other:
        arms = bench(one, [1], [0, 1, 2, 4], r, 5) + bench(one, [clients], [0, 1, 2, 4], r, 4)
        alone, = bench(one, [1], [0], r, 8)
        both = together(one, other, r)
    with Groups(args.build, 1, 2, 0) as two:
        # Many rows, so that what a row adds to a sum is more than what the sums vary.
        pair = bench(two, [1], [0], r, 5) + bench(two, [clients, 4 * clients], [0], r, 4)
    slowdown = statistics.mean(map(cycle_us, both)) / cycle_us(alone)
    return inputs_of(arms, pair, SUMS, max(1.0, slowdown),
                     f"{os.cpu_count()} cores, the tales pair")


# ---- cells ----

def predict(args, plan):
    with open(args.out, "w", encoding="utf-8") as file:
        json.dump(plan, file, indent=1)
        file.write("\n")
    done = subprocess.run([os.path.join(args.build, "bin/outrider"), "plan", "--cluster", args.out,
                           "--json"], capture_output=True, encoding="utf-8", timeout=60,
                          check=False)
    if done.returncode:
        raise SystemExit(f"bench/cluster_plan.py: {done.stderr}")
    return json.loads(done.stdout)["answers"]


def all_serve(cluster, groups):
    told = cluster.outrider("describe").stdout
    return len(re.findall(r"^group \d+ +serving$", told, re.M)) == groups


def measure_cell(args, groups, ranks, delay_ms):
    with Groups(args.build, groups, ranks, int(delay_ms * 1000)) as cluster:
        if groups > 1: # a coordinator serves as soon as one of its groups does
            wait_until(lambda: all_serve(cluster, groups), 30, "all groups serve")
        clients = groups * args.clients
        arms = bench(cluster, [clients], args.k, args.repetitions, 4 if delay_ms < 1 else 2)
    return {int(arm["K"]): arm for arm in arms}


def has_groups(build):
    done = subprocess.run([os.path.join(build, "bin/outrider-coordinator"), "--help"],
                          capture_output=True, encoding="utf-8", timeout=30, check=False)
    return "--groups" in done.stdout


def compare(args, plan):
    cells = [(g, t, d) for g in args.groups for t in args.ranks for d in args.delay]
    links = {d: one_way_us(args.build, int(d * 1000)) for d in args.delay}
    plan["questions"] = [{"groups": g, "ranks": t, "clients": g * args.clients, "tokens": TOKENS,
                          "prompt_tokens": 10, "k": k, "coordinators": 1,
                          "link_us": round(links[d], 1)}
                         for g, t, d in cells for k in args.k]
    answers = iter(predict(args, plan))
    print("| groups | T | link, ms | K | predicted tokens/s | measured | ratio |\n"
          "|---|---|---|---|---|---|---|")
    lines = []
    for groups, ranks, delay in cells:
        measured = measure_cell(args, groups, ranks, delay)
        for k in args.k:
            predicted = next(answers)["tokens_per_second"]
            rate = measured[k]["tokens_per_second"]
            lines.append([groups, ranks, delay, k, predicted, rate, predicted / rate])
            print(f"| {groups} | {ranks} | {delay:g} | {k} | {predicted:.0f} | {rate:.0f} | "
                  f"{predicted / rate:.2f} |", flush=True)
    return lines


def parse_arguments():
    parser = bench_util.build_parser(__doc__)
    parser.add_argument("--groups", type=lambda text: numbers(text, int), default=[1, 2])
    parser.add_argument("--ranks", type=lambda text: numbers(text, int), default=[1, 2])
    parser.add_argument("--delay", type=lambda text: numbers(text, float), default=[0, 0.1, 1, 5])
    parser.add_argument("--clients", type=int, default=4, help="of each group")
    parser.add_argument("--k", type=lambda text: numbers(text, int), default=[0, 2])
    parser.add_argument("--repetitions", type=int, default=4)
    parser.add_argument("--out", default="/tmp/cluster_plan.json")
    parser.add_argument("--inputs", help="a file of an earlier --out: measure no inputs")
    parser.add_argument("--csv", help="write the cells there, too")
    return parser.parse_args()


def main():
    args = parse_arguments()
    if max(args.groups) > 1 and not has_groups(args.build):
        print("this coordinator has one group only; --groups 1 is measured", file=sys.stderr)
        args.groups = [1]
    subprocess.run(["uptime"], check=False)
    if args.inputs:
        with open(args.inputs, encoding="utf-8") as file:
            plan = json.load(file)
    else:
        plan = measure_inputs(args)
    lines = compare(args, plan)
    ratios = [line[-1] for line in lines]
    within = sum(0.9 <= ratio <= 1.1 for ratio in ratios)
    print(f"\nOther programs used at most {max(busiest):.2f} cores")
    print(f"{within} of {len(ratios)} within 10 %; {min(ratios):.2f} to {max(ratios):.2f}")
    if args.csv:
        with open(args.csv, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["groups", "T", "link_ms", "K", "predicted_tokens_per_second",
                             "tokens_per_second", "ratio"])
            writer.writerows(lines)
    subprocess.run(["uptime"], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
