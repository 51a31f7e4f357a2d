#!/usr/bin/env python3
"""What `outrider plan --cluster` predicts of this machine, and what is then measured on it.

    bench/cluster_plan.py BUILD [--groups 1,2] [--ranks 1,2] [--delay 0,0.1,1,5] [--clients 4]
                          [--k 0,2] [--repetitions 4] [--out FILE] [--csv FILE]

It first measures the inputs: one group of T = 1 with one client and with --clients at K = 0, 1, 2
and 4 (guess, step, wire, coordinator, alpha), then T = 2 at K = 0 alone, for what a collective sum
and a further rank on the wire cost, and two clusters of T = 1 at once, for how much busy cores slow
each other down. No figure of two groups, of a delayed link or of guesses with T = 2 is an input.
These are written to --out as a file of `outrider plan --cluster`, with a question for each cell.

Then it measures each cell, --clients clients for each group, and prints predicted over measured.
Groups are one thread a rank on this machine, the link is bench_link (milliseconds one way; 0: no
link at all), and its own time is measured by an echo through it. Drafting ahead and half-batches
are off, because the model has neither.
"""
import csv
import json
import os
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
from cluster import MPI_ENVIRONMENT, MPI_FLAGS, Cluster, Program, wait_until

COORDINATOR_FLAGS = ["--threads", "1", "--draft-ahead", "off", "--half-batches", "off"]
WORKER_FLAGS = ["--threads", "1"]
LOAD = ["--prompts", os.path.join(SOURCE, "bench/prompts/tales.txt"), "--rule", "greedy",
        "--temperature", "0", "--ignore-eos", "--quiet"]
TOKENS = 100
SUMS = 2 * 6 + 1 # two a layer of the tales target, and one for the embedding
ECHOES = 400


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
    """What the link adds to a message, by the clock: its delay and its own work."""
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

def bench(cluster, sweep, repetitions, requests):
    """The rows of `outrider bench` as floats, in medians of each arm."""
    path = os.path.join(cluster.folder, "bench.csv")
    done = cluster.outrider("bench", *LOAD, "-n", str(TOKENS), "--sweep", sweep, "--requests",
                            str(requests), "-r", str(repetitions), "--csv", path, timeout=900)
    if done.returncode:
        raise SystemExit(f"bench/cluster_plan.py: {done.stderr}")
    arms = {}
    with open(path, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            arms.setdefault((int(row["concurrency"]), int(row["K"])), []).append(row)
    return {arm: {name: statistics.median(float(row[name]) for row in rows)
                  for name in rows[0] if all(is_number(row[name]) for row in rows)}
            for arm, rows in arms.items()}


def is_number(text):
    try:
        float(text)
        return True
    except ValueError:
        return False


def together(first, second, repetitions):
    """The rows of both clusters under one plain client each, at the same time."""
    rows = [None, None]

    def run(i, cluster):
        rows[i] = bench(cluster, "C=1,K=0", repetitions, 12)

    threads = [threading.Thread(target=run, args=(i, cluster))
               for i, cluster in enumerate((first, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [row[1, 0] for row in rows]


# ---- inputs ----

def line(points):
    """(value at 1, slope) of least squares; slopes are not negative."""
    n = len(points)
    mean_x, mean_y = (sum(p[i] for p in points) / n for i in (0, 1))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0
    slope = max(0.0, slope)
    return max(0.0, mean_y + slope * (1 - mean_x)), slope


def curve(points):
    """Ascending and at least half a row apart; times never fall."""
    rising, most = [], 0
    for at, us in sorted(points):
        most = max(most, us)
        if rising and at - rising[-1][0] < 0.5:
            continue
        rising.append([round(max(1.0, at), 2), round(most, 2)])
    return rising


def cycle_us(row):
    """From one round of a text to its next one, by the clock of the client. The coordinator's own
    round_us leaves out what it does between rounds."""
    text_us = row["duration_seconds"] * 1e6 * row["concurrency"] / row["requests"]
    first_us = row["time_to_first_token_seconds_p50"] * 1e6
    return (text_us - first_us) / (row["rounds"] / row["requests"] - 1)


def rest_us(row):
    """Of the coordinator: what is neither draft nor step nor wire."""
    return cycle_us(row) - sum(row[f"{part}_us"] for part in ("draft", "verify", "collective",
                                                              "wire"))


def prompt_us(row):
    """A token of a prompt: what the first token took longer than a round, with all prompts that
    were read together."""
    first_us = row["time_to_first_token_seconds_p50"] * 1e6
    tokens = row["prompt_tokens"] / row["requests"] * row["concurrency"]
    return max(0.0, first_us - cycle_us(row)) / tokens


def alphas(arms, clients):
    """By position, so that rounds of K = 1, 2 and 4 commit what they did."""
    tokens = {k: statistics.mean(arms[c, k]["tokens_per_round"] for c in (1, clients))
              for k in (1, 2, 4)}
    first = tokens[1] - 1
    second = (tokens[2] - tokens[1]) / first
    # first * second * (x + x^2) = what positions 3 and 4 add
    more = (tokens[4] - tokens[2]) / (first * second)
    third = (-1 + (1 + 4 * max(0.0, more)) ** 0.5) / 2
    return [round(min(1.0, max(0.0, a)), 4) for a in (first, second, third)]


def measure_inputs(args):
    """The file of `outrider plan --cluster`, without questions."""
    clients, r = args.clients, args.repetitions
    with Groups(args.build, 1, 1, 0) as one, Groups(args.build, 1, 1, 0) as other:
        arms = bench(one, f"C=1,{clients},K=0,1,2,4", r, 8 * clients)
        alone = bench(one, "C=1,K=0", r, 12)[1, 0]
        both = together(one, other, r)
    with Groups(args.build, 1, 2, 0) as two:
        pair = bench(two, f"C=1,{clients},K=0", r, 8 * clients)
    slowdown = statistics.mean(row["verify_us"] for row in both) / alone["verify_us"]
    return file_of(args, arms, pair, max(1.0, slowdown))


def file_of(args, arms, pair, slowdown):
    rows = list(arms.values())
    plain, fast = ([prompt_us(row) for (_, k), row in arms.items() if (k > 0) == is_fast]
                   for is_fast in (False, True))
    wire, wire_row = line([(row["rows_per_step"], row["wire_us"]) for row in rows])
    rest, rest_lane = line([(row["batch_size"], rest_us(row)) for row in rows])
    sums, sum_row = line([(row["rows_per_step"], row["collective_us"]) for row in pair.values()])
    rank = statistics.mean(row["wire_us"] - wire - wire_row * (row["rows_per_step"] - 1) +
                           rest_us(row) - rest - rest_lane * (row["batch_size"] - 1)
                           for row in pair.values())
    return {
        "name": f"{os.cpu_count()} cores, the tales pair",
        "alpha": alphas(arms, args.clients),
        "guess_us": curve([(row["batch_size"], row["draft_us_per_token"])
                           for (_, k), row in arms.items() if k == 2]),
        "step_us": curve([(row["rows_per_step"], row["verify_us"]) for row in rows]),
        "ranks": 1,
        "prompt": {"target_us_per_token": statistics.mean(plain),
                   "draft_us_per_token": max(0.0, statistics.mean(fast) - statistics.mean(plain))},
        "collectives": {"per_step": SUMS, "measured": [
            {"ranks": 2, "us": sums / SUMS, "us_per_row": sum_row / SUMS}]},
        "coordinator": {"us_per_round": rest, "us_per_lane": rest_lane,
                        "rounds_at_once": args.engines},
        "wire": {"us_per_step": wire, "us_per_rank": max(0.0, rank), "us_per_row": wire_row,
                 "bytes_per_row": statistics.median(row["bytes_per_position"] for row in rows)},
        "host": {"cores": os.cpu_count(), "is_shared": True, "slowdown": round(slowdown, 3)},
    }


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


def measure_cell(args, groups, ranks, delay_ms):
    with Groups(args.build, groups, ranks, int(delay_ms * 1000)) as cluster:
        clients = groups * args.clients
        rows = bench(cluster, f"C={clients},K={','.join(map(str, args.k))}", args.repetitions,
                     clients * (8 if delay_ms < 1 else 3))
    return {k: row for (_, k), row in rows.items()}


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
    parser.add_argument("--engines", type=int, default=0,
                        help="rounds at once of a coordinator; 0 = one for each group")
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
    print(f"\n{within} of {len(ratios)} within 10 %; {min(ratios):.2f} to {max(ratios):.2f}")
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
