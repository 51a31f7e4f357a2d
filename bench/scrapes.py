#!/usr/bin/env python3
"""Measures the time of a scrape of /metrics under load, and by how much it delays rounds.

    bench/scrapes.py BUILD [--target MODEL] [--draft MODEL] [-K 0] [--ranks 1] [--clients 1]
                     [--scrapes 2000] [--every-ms 30]

A cluster makes --clients texts all the time, and this script notes when each message of one of them
comes: one for each round. bench_scrape waits for random times of --every-ms on average, and tosses
a coin: either it reads /metrics over a connection that stays open, or it does nothing. The
rounds that were under way at these times, each with the one after it, are compared: those that a
scrape fell into with those that nothing fell into. Both are picked in the same way and in the same
minutes, so that neither the machine's drift nor the fact that long rounds are hit more often
matters.

Printed: the time of a scrape, from its first byte to its last, before there is load, and what it
takes of the coordinator's CPUs then; the same time under load; the time of two rounds without and
with a scrape, as median with quartiles; and the difference of their means with its standard error,
and of their medians with that of 200 resamplings; and what the reader itself takes of the cores
that it shares with the cluster, which is a part of the delay. Needs grpcio (Debian:
python3-grpcio).
"""
import bisect
import random
import statistics
import subprocess
import tempfile
import threading
import time

import bench_util
from bench_util import quartiles
from rpc_python import Caller, field
from cluster import TALES, Cluster, free_ports

WARM_S = 3
IDLE_SCRAPES = 1000
RESAMPLINGS = 200
TEXT_TOKENS = 900


def parse():
    parser = bench_util.build_parser(__doc__)
    parser.add_argument("--target", default=f"{TALES}/target")
    parser.add_argument("--draft", default=f"{TALES}/draft")
    parser.add_argument("-K", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", default="auto", help="of a worker")
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--scrapes", type=int, default=2000)
    parser.add_argument("--every-ms", type=float, default=30)
    return parser.parse_args()


# ---- scraping, by a program of its own ----

def start_scraper(build, port, n_scrapes, every_ms):
    """The program, and the file that it prints into."""
    printed = tempfile.TemporaryFile("w+", encoding="ascii")
    command = [f"{build}/bench/bench_scrape", f"127.0.0.1:{port}", str(n_scrapes), str(every_ms)]
    return subprocess.Popen(command, stdout=printed), printed


def finish_scraper(scraper, printed):
    """(was a scrape, begin, end) of each time; bytes of the page; CPU seconds of the server and of
    the reader."""
    if scraper.wait():
        raise SystemExit("bench_scrape has failed")
    with printed:
        printed.seek(0)
        *lines, last = printed.read().splitlines()
    events = [line.split() for line in lines]
    _, n_bytes, seconds, own_seconds = last.split()
    times = [(word == "1", float(begin), float(end)) for word, begin, end in events]
    return times, n_bytes, float(seconds), float(own_seconds)


def scrape_idle(build, port):
    """Prints what a scrape costs while nothing else happens."""
    events, n_bytes, seconds, _ = finish_scraper(*start_scraper(build, port, IDLE_SCRAPES, 0))
    taken = [(end - begin) * 1000 for _, begin, end in events]
    each_ms = seconds / IDLE_SCRAPES * 1000
    print(f"scrape, idle  {times_text(taken)}; {each_ms:.3f} ms of the coordinator's CPUs each, "
          f"{n_bytes} bytes")


# ---- texts ----

def request(k):
    """A plain or speculating text that goes on as long as it may."""
    return (field(1, "Once upon a time") + field(3, TEXT_TOKENS) + field(5, field(1, k)) +
            field(7, 1))


def keep_busy(cluster, k, is_over):
    while not is_over.is_set():
        client = cluster.popen("generate", "Once upon a time", "-n", str(TEXT_TOKENS), "-K", str(k),
                               "--ignore-eos", stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
        client.wait()


def read_times(caller, message, is_over):
    """When the messages of texts came; None between two texts."""
    times = []
    while not is_over():
        for _ in caller.stream("Generate", message, timeout=600):
            times.append(time.monotonic())
        times.append(None)
    return times


# ---- comparing ----

def two_rounds_us(times, begin):
    """The time of the round that was under way and of the next one; None: there were no two."""
    i = bisect.bisect(times, begin)
    return (times[i + 1] - times[i - 1]) * 1e6 if 0 < i < len(times) - 1 else None


def split(times):
    """Lists of times without a pause between two texts."""
    parts, part = [], []
    for at in times:
        if at is None:
            parts.append(part)
            part = []
        else:
            part.append(at)
    return [p for p in parts + [part] if len(p) > 2]


def compare(parts, events):
    found = {True: [], False: []}
    for is_scrape, begin, _ in events:
        for part in parts:
            us = two_rounds_us(part, begin) if part[0] <= begin <= part[-1] else None
            if us:
                found[is_scrape].append(us)
    return found


def standard_error(values):
    return statistics.stdev(values) / len(values) ** 0.5


def median_error(a, b):
    draws = random.Random(2)
    return statistics.stdev(statistics.median(draws.choices(a, k=len(a))) -
                            statistics.median(draws.choices(b, k=len(b)))
                            for _ in range(RESAMPLINGS))


def times_text(taken_ms):
    low, median, high = quartiles(taken_ms)
    p99 = statistics.quantiles(taken_ms, n=100)[98]
    return (f"{median:.2f} ms ({low:.2f} to {high:.2f}), p99 {p99:.2f}, most {max(taken_ms):.2f}, "
            f"{len(taken_ms)} scrapes")


def report(events, found):
    taken = [(end - begin) * 1000 for is_scrape, begin, end in events if is_scrape]
    print(f"scrape        {times_text(taken)}")
    for is_scrape, name in ((False, "without"), (True, "with one")):
        low, median, high = quartiles(found[is_scrape])
        print(f"two rounds    {median:.0f} us ({low:.0f} to {high:.0f}) {name}, "
              f"{len(found[is_scrape])} times")
    on, off = found[True], found[False]
    error = (standard_error(on) ** 2 + standard_error(off) ** 2) ** 0.5
    print(f"delay         {statistics.mean(on) - statistics.mean(off):.0f} us +- {error:.0f} of "
          f"the means, {statistics.median(on) - statistics.median(off):.0f} us +- "
          f"{median_error(on, off):.0f} of the medians")


def measure(cluster, port, args):
    caller, is_over = Caller(cluster.address), threading.Event()
    others = [threading.Thread(target=keep_busy, args=(cluster, args.K, is_over))
              for _ in range(args.clients - 1)]
    for other in others:
        other.start()
    warm_until = time.monotonic() + WARM_S
    read_times(caller, request(args.K), lambda: time.monotonic() > warm_until)
    scraper, printed = start_scraper(args.build, port, args.scrapes, args.every_ms)
    times = read_times(caller, request(args.K), lambda: scraper.poll() is not None)
    events, _, _, own_seconds = finish_scraper(scraper, printed)
    is_over.set()
    for other in others:
        other.join()
    caller.close()
    report(events, compare(split(times), events))
    own_us = own_seconds / args.scrapes * 1e6
    print(f"reader        {own_us:.0f} us of the same cores for each scrape")


def main():
    args = parse()
    port = free_ports(1)
    flags = ["--metrics", f"127.0.0.1:{port}", "--log-jobs", "off", "--log-load", "0"]
    with Cluster(args.build, n_ranks=args.ranks, target=args.target, draft=args.draft,
                 coordinator_flags=flags, worker_flags=["--threads", args.threads]) as cluster:
        scrape_idle(args.build, port)
        measure(cluster, port, args)


if __name__ == "__main__":
    main()
