#!/usr/bin/env python3
"""From process start to the first token, page cache warm, with and without packed weights on disk.

    bench/bench_start.py BUILD --model MODEL [--ranks T] [--threads N] [--repeats 10]
                         [--cache FOLDER]

MODEL is a folder (`outrider export synthetic:llama-3.2-1b,seed=1,vocab=32000 FOLDER` makes one of
1.2 B parameters), a GGUF file or a synthetic name. Each start is a whole cluster: ranks and a
coordinator without a draft, started at the same moment, while a client asks over HTTP for one token
again and again until it gets one. The arms "pack" (nothing is kept: weights are packed and the pair
is measured anew, after the token) and "cache" (--pack-cache FOLDER, of ranks and coordinator, which
the first start fills; default a temporary folder) alternate, after one start of each that is not
counted. Printed per arm, as the best value, and the median with quartiles:

  ready ms   until the last rank says that it is ready
  load ms    the part of it after MPI's start, of the slowest rank (its own load_ms)
  token ms   until the client has the token
  sys ms     time of all ranks in the kernel: page faults and zeroing
  cpu ms     that and their own time: on a busy machine it says more than the others
  GB/s core  bytes of the model's files over that time; T ranks read each byte about once together
  peak MB    the largest resident size of a rank up to then, with pages of mapped files
  own MB     the part of it that would not be there without this rank (Pss: pages that processes
             share are divided among them)
  RSS/file   resident size of all ranks when the last one is ready, over the bytes of the files
  with KV    the same after the token: KV cache, activations and rows of the embedding are in it

Nothing else should run on the machine. On a virtual machine the host may have to find memory when a
page is first touched, which counts as sys ms of "pack" although it is no work of packing.
"""
import datetime
import json
import os
import re
import shutil
import tempfile
import time
import urllib.request

from bench_util import build_parser, quartiles
from cluster import Cluster

COLUMNS = ("ready ms", "load ms", "token ms", "sys ms", "cpu ms", "GB/s core", "peak MB", "own MB",
           "RSS/file", "with KV")
MORE_IS_BETTER = {"GB/s core"}
ASK_S = 0.003  # between two questions


def files_of(model):
    """The model's files that hold weights."""
    if os.path.isfile(model):
        return [model]
    names = os.listdir(model) if os.path.isdir(model) else []
    return [os.path.join(model, name) for name in names if name.endswith(".safetensors")]


def read_all(paths):
    """Brings the files into the page cache."""
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


def field_kb(path, name):
    with open(path, encoding="ascii") as file:
        return int(re.search(rf"^{name}:\s+(\d+) kB", file.read(), re.M).group(1))


def cpu_ms(pid):
    """(user and system, system) time of the process so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    user, system = (int(field) * 1000 / os.sysconf("SC_CLK_TCK") for field in fields[11:13])
    return user + system, system


def ready_lines(cluster):
    return re.findall(r"(\S+) info outrider-worker\S* (ready .*)", cluster.workers.log())


def seconds_of(stamp):
    return datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


def ask(cluster):
    """True once the server has sent a token."""
    body = json.dumps({"prompt": "Hello", "max_tokens": 1, "temperature": 0}).encode()
    request = urllib.request.Request(f"{cluster.url}/v1/completions", body,
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return bool(answer.read())
    except OSError as error:  # nothing listens, or there is no group yet
        if getattr(error, "code", 503) != 503:
            raise SystemExit(f"no token: {error}") from None
        return False


def resident(cluster):
    return sum(field_kb(f"/proc/{pid}/status", "VmRSS")
               for pid in cluster.rank_pids().values()) * 1024


def start_once(args, flags, want, fills=False):
    """Returns one row of COLUMNS. `want` is what the ready lines must say of the cache. fills:
    waits for all that the next start may find."""
    cluster = Cluster(args.build, args.ranks, target=args.model, draft=None, http=True,
                      worker_flags=["--threads", args.threads, *flags], coordinator_flags=flags)
    try:
        begin, begin_s = time.monotonic(), time.time()
        cluster.start_workers()
        cluster.start_coordinator()
        loaded = 0
        while not loaded or not ask(cluster):
            if not loaded and len(ready_lines(cluster)) == args.ranks:
                loaded = resident(cluster)
            if not (cluster.workers.is_alive() and cluster.coordinator.is_alive()):
                raise SystemExit(f"a program has ended: {cluster.logs()}")
            time.sleep(ASK_S)
        token = time.monotonic() - begin
        lines = ready_lines(cluster)
        if not all(f"pack_cache={want}" in line for _, line in lines):
            raise SystemExit(f"the ranks do not say pack_cache={want}: {lines}")
        pids = cluster.rank_pids().values()
        times = [cpu_ms(pid) for pid in pids]
        cpu, n_bytes = sum(both for both, _ in times), sum(map(os.path.getsize, args.files))
        served = resident(cluster)
        row = ((max(seconds_of(stamp) for stamp, _ in lines) - begin_s) * 1e3,
               max(int(re.search(r"load_ms=(\d+)", line).group(1)) for _, line in lines),
               token * 1e3,
               sum(system for _, system in times),
               cpu,
               n_bytes / 1e6 / cpu,
               max(field_kb(f"/proc/{pid}/status", "VmHWM") for pid in pids) / 1024,
               max(field_kb(f"/proc/{pid}/smaps_rollup", "Pss") for pid in pids) / 1024,
               loaded / n_bytes if n_bytes else 0,
               served / n_bytes if n_bytes else 0)
        if fills:
            cluster.wait_measured()
        return row
    finally:
        cluster.stop()
        shutil.rmtree(cluster.folder, ignore_errors=True)


def show(name, rows):
    for column, values in zip(COLUMNS, zip(*rows)):
        best = max(values) if column in MORE_IS_BETTER else min(values)
        low, median, high = quartiles(values)
        print(f"{name:6s} {column:10s}{best:10.5g}{median:10.5g} ({low:.5g} to {high:.5g})")


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
    args.files = files_of(args.model)
    folder = args.cache or tempfile.mkdtemp(prefix="outrider-packed-")
    cached = ["--pack-cache", folder]
    rows = {"pack": [], "cache": []}
    try:
        read_all(args.files)
        start_once(args, cached, "", fills=True)  # fills the folder, or finds it full
        start_once(args, [], "off")
        for _ in range(args.repeats):
            rows["pack"].append(start_once(args, [], "off"))
            rows["cache"].append(start_once(args, cached, "hit"))
    finally:
        if not args.cache:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{args.model}, T = {args.ranks}, --threads {args.threads}, {args.repeats} starts each: "
          "best, median (quartiles)")
    for name, values in rows.items():
        show(name, values)


if __name__ == "__main__":
    main()
