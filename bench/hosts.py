#!/usr/bin/env python3
"""A group over two hosts, against one host and against a prediction. The hosts are network
namespaces of this machine (tests/support/hosts.py), so root is needed.

    bench/hosts.py build/release                     both tables
    bench/hosts.py build/release --only placement    T = 2 over two hosts, over T = 2 on loopback
    bench/hosts.py build/release --only delay        measured and predicted at link delays

placement: two groups run side by side, one with its ranks on two hosts that a cable of the kernel
joins, one with both on one host whose sums go over loopback TCP; a third one there has shared
memory. Requests go to them in turn, so that all see the same machine; the ratios are those of the
medians.

delay: the ranks and the coordinator are on three hosts whose links get a delay. With no draft and
with K = 4, the greedy text, and so the number of rounds, is the same at every delay. A round waits
for two sums over the ranks in each layer, one way each, and for one way from the coordinator to the
ranks and back. Predicted is the time without delay plus that many times the one-way delay that
`outrider link` has measured.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
from cluster import TALES, wait_until
from hosts import DATA_NETWORK, Hosts, skip_unless_supported

YIELD = "--mca mpi_yield_when_idle 1"
# TCP is preferred to shared memory.
LOOPBACK = "--mca btl_tcp_exclusivity 100000 --mca btl_tcp_if_include lo"
PROMPT = "Once upon a time"
DELAYS_MS = (0, 0.1, 1, 5)


class Group:
    """A group and its coordinator on the hosts."""

    def __init__(self, hosts, build, name, port, options, flags, addresses, at):
        self.hosts, self.build, self.at = hosts, build, at
        self.address = f"127.0.0.1:{port + 10}"
        hosts.start(0, f"group-{name}", f"{SOURCE}/deploy/mpirun/group", "--build", build,
                    "--port", str(port), "--model", os.path.join(TALES, "target"), "--threads",
                    "1", *options, environment={"MPIRUN_FLAGS": f"{YIELD} {flags}"})
        target = ",".join(f"{a}:{port + i}" for i, a in enumerate(addresses))
        hosts.start(at, f"coordinator-{name}", f"{build}/bin/outrider-coordinator", "--target",
                    target, "--draft", os.path.join(TALES, "draft"), "--listen", self.address,
                    "--http", "off")
        wait_until(lambda: self.run("health").returncode == 0, 60, f"{name} serves")

    def run(self, *args):
        return self.hosts.run(self.at, f"{self.build}/bin/outrider", args[0], "--address",
                              self.address, *args[1:])

    def generate(self, n, *more):
        done = self.run("generate", PROMPT, "-n", str(n), "--temperature", "0", "--ignore-eos",
                        "--json", *more)
        if done.returncode:
            raise SystemExit(done.stderr)
        return json.loads(done.stdout)


def placement(build, turns, n_tokens):
    with Hosts(build, 2, veth=True) as hosts:
        apart = ["--hosts", hosts.write_hostfile([1, 1]), "--network", DATA_NETWORK, "--insecure"]
        together = ["--hosts", hosts.write_hostfile([2, 0], "together"), "--insecure"]
        local = ["127.0.0.1"] * 2
        groups = {
            "two hosts": Group(hosts, build, "apart", 7100, apart, "", hosts.data, 0),
            "loopback TCP": Group(hosts, build, "loopback", 7200, together, LOOPBACK, local, 0),
            "shared memory": Group(hosts, build, "memory", 7300, [], "", local, 0),
        }
        for more in (("-K", "0"), ("-K", "4")):
            rates = {name: [] for name in groups}
            for turn in range(turns + 1): # the first one warms up
                for name, group in groups.items():
                    rate = group.generate(n_tokens, *more)["tokens_per_second"]
                    if turn:
                        rates[name].append(rate)
            print(f"T = 2, {' '.join(more)}, {turns} turns of {n_tokens} tokens")
            medians = {name: statistics.median(values) for name, values in rates.items()}
            for name, median in medians.items():
                print(f"  {name:14} {median:8.1f} tokens/s  "
                      f"{medians['two hosts'] / median:.3f} two hosts over this", flush=True)


def measure_link(hosts, build):
    """The one-way time of a small message between two hosts, in seconds."""
    server = hosts.popen(1, f"{build}/bin/outrider", "link", "--serve", ":0", "--network",
                         DATA_NETWORK, stdout=subprocess.PIPE, encoding="utf-8")
    try:
        address = server.stdout.readline().split()[1]
        done = hosts.run(0, f"{build}/bin/outrider", "link", "--json", address)
        return json.loads(done.stdout)["links"][0]["round_trip_us"] / 2e6
    finally:
        server.kill()
        server.communicate()


def measure(group, n_tokens, turns, more):
    """(seconds of decoding, rounds), medians."""
    done = [group.generate(n_tokens, *more) for _ in range(turns)]
    seconds = [(d["completion_tokens"] - 1) / d["tokens_per_second"] for d in done]
    return statistics.median(seconds), done[0]["counters"]["rounds"], done[0]["completion_tokens"]


def delay(build, turns, n_tokens):
    with open(os.path.join(TALES, "target", "config.json"), encoding="utf-8") as file:
        n_layers = json.load(file)["num_hidden_layers"]
    n_ways = 2 * n_layers + 2
    with Hosts(build, 3) as hosts:
        options = ["--hosts", hosts.write_hostfile([1, 1]), "--network", DATA_NETWORK,
                   "--insecure"]
        group = Group(hosts, build, "apart", 7100, options, "", hosts.data[:2], 2)
        group.generate(n_tokens)
        base, base_way = {}, measure_link(hosts, build)
        print(f"{n_ways} ways in a round of {n_layers} layers, {base_way * 1e6:.0f} us each "
              "without delay\n"
              "  delay ms   one way ms    K   rounds  tokens/s  predicted  predicted/measured")
        for ms in DELAYS_MS:
            hosts.delay(ms / 1000)
            way = measure_link(hosts, build)
            for k in (0, 4):
                seconds, rounds, n = measure(group, n_tokens, turns, ("-K", str(k)))
                base.setdefault(k, seconds)
                predicted = base[k] + rounds * n_ways * (way - base_way)
                print(f"  {ms:8g}   {way * 1000:10.3f}   {k:2}   {rounds:6}  {n / seconds:8.1f}  "
                      f"{n / predicted:9.1f}  {seconds / predicted:18.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--only", choices=("placement", "delay"))
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=200)
    args = parser.parse_args()
    skip_unless_supported()
    build = os.path.abspath(args.build)
    if args.only != "delay":
        placement(build, args.turns, args.tokens)
    if args.only != "placement":
        delay(build, max(3, args.turns // 5), args.tokens)


if __name__ == "__main__":
    main()
