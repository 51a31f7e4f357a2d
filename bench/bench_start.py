#!/usr/bin/env python3
"""From process start to the first token, page cache warm, with and without packed weights on disk.

    bench/bench_start.py BUILD --model MODEL [--ranks T] [--threads N] [--repeats 10]
                         [--cache FOLDER]

MODEL is a folder (`outrider export synthetic:llama-3.2-1b,seed=1,vocab=32000 FOLDER` makes one of
1.2 B parameters) or a synthetic name. Each start is a whole cluster: ranks and a coordinator
without a draft, started at the same moment, then a client that asks for one token as soon as the
coordinator serves. The arms "pack" and "cache" (--pack-cache FOLDER, which the first start fills;
default a temporary folder) alternate, after one start of each that is not counted. Printed per arm,
as medians with quartiles:

  ready ms   until the last rank says that it is ready
  load ms    the part of it after MPI's start, of the slowest rank (its own load_ms)
  token ms   until the client has printed the token and ended
  sys ms     time of all ranks in the kernel: page faults and zeroing
  peak MB    the largest resident size of a rank up to then, with pages of mapped files
  own MB     the part of it that would not be there without this rank (Pss: pages that processes
             share are divided among them)

Nothing else should run on the machine. On a virtual machine the host may have to find memory when a
page is first touched, which counts as sys ms of "pack" although it is no work of packing.
"""
import os
import re
import shutil
import tempfile
import time

from bench_util import build_parser, quartiles
from cluster import Cluster, wait_until

COLUMNS = ("ready ms", "load ms", "token ms", "sys ms", "peak MB", "own MB")


def read_all(folder):
    """Brings the files of the folder into the page cache."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            with open(path, "rb", buffering=0) as file:
                while file.read(1 << 24):
                    pass


def field_kb(path, name):
    with open(path, encoding="ascii") as file:
        return int(re.search(rf"^{name}:\s+(\d+) kB", file.read(), re.M).group(1))


def sys_ms(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[12]) * 1000 / os.sysconf("SC_CLK_TCK")


def ready_lines(cluster):
    return re.findall(r"outrider-worker\S* ready .*", cluster.workers.log())


def start_once(args, flags, want):
    """Returns one row of COLUMNS. `want` is what the ready lines must say of the cache."""
    cluster = Cluster(args.build, args.ranks, target=args.model, draft=None, worker_flags=flags)
    try:
        begin = time.monotonic()
        cluster.start_workers()
        cluster.start_coordinator()
        wait_until(lambda: len(ready_lines(cluster)) == args.ranks, 600, "the ranks are ready")
        ready = time.monotonic() - begin
        wait_until(cluster.is_serving, 60, "the coordinator serves")
        done = cluster.outrider("generate", "Hello", "-n", "1", "--temperature", "0",
                                "--ignore-eos")
        token = time.monotonic() - begin
        if done.returncode:
            raise SystemExit(f"no token: {done.stderr}")
        lines = ready_lines(cluster)
        if not all(f"pack_cache={want}" in line for line in lines):
            raise SystemExit(f"the ranks do not say pack_cache={want}: {lines}")
        pids = cluster.rank_pids().values()
        return (ready * 1e3,
                max(int(re.search(r"load_ms=(\d+)", line).group(1)) for line in lines),
                token * 1e3,
                sum(sys_ms(pid) for pid in pids),
                max(field_kb(f"/proc/{pid}/status", "VmHWM") for pid in pids) / 1024,
                max(field_kb(f"/proc/{pid}/smaps_rollup", "Pss") for pid in pids) / 1024)
    finally:
        cluster.stop()
        shutil.rmtree(cluster.folder, ignore_errors=True)


def show(name, rows):
    cells = []
    for column in zip(*rows):
        low, median, high = quartiles(column)
        cells.append(f"{median:7.0f} ({low:.0f} to {high:.0f})")
    print(f"{name:6s}" + "".join(f"{cell:>24s}" for cell in cells), flush=True)


def main():
    parser = build_parser(__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", default="auto")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--cache")
    args = parser.parse_args()
    if args.repeats < 2:
        parser.error(f"--repeats {args.repeats}: quartiles need at least 2")
    folder = args.cache or tempfile.mkdtemp(prefix="outrider-packed-")
    flags = ["--threads", args.threads]
    cached = [*flags, "--pack-cache", folder]
    rows = {"pack": [], "cache": []}
    try:
        if os.path.isdir(args.model):
            read_all(args.model)
        start_once(args, cached, "") # fills the folder, or finds it full
        start_once(args, flags, "off")
        for _ in range(args.repeats):
            rows["pack"].append(start_once(args, flags, "off"))
            rows["cache"].append(start_once(args, cached, "hit"))
    finally:
        if not args.cache:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{args.model}, T = {args.ranks}, --threads {args.threads}, {args.repeats} starts each: "
          "median (quartiles)")
    print(" " * 6 + "".join(f"{column:>24s}" for column in COLUMNS))
    for name, values in rows.items():
        show(name, values)


if __name__ == "__main__":
    main()
