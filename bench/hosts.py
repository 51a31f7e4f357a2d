#!/usr/bin/env python3
"""A group over two hosts, against one host and against a prediction. The hosts are network
namespaces of this machine (tests/support/hosts.py), so root is needed.

    bench/hosts.py build/release                     both tables
    bench/hosts.py build/release --only placement    T = 2 over two hosts, over T = 2 on loopback
    bench/hosts.py build/release --only delay        predicted and measured at link delays

placement: two groups run side by side, one with its ranks on two hosts that a cable of the kernel
joins, one with both on one host whose sums go over loopback TCP; a third one there has shared
memory. Requests go to them in turn, so that all see the same machine; the ratios are those of the
medians.

delay: the ranks and the coordinator are on three hosts whose links get a delay. What `outrider plan
--cluster` predicts is compared with what `outrider bench` measures, with one client and K = 0 and
4. Its inputs are measured without a delay: T = 1 on another host than the coordinator (guess, step,
wire, alpha), and T = 2 over two hosts at K = 0 (a sum, and a further rank on the wire). For each
delay, only what `outrider link` measures between two hosts is added, to a sum and to the link.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
from cluster import TALES, wait_until
from cluster_inputs import inputs_of, read_arms
from hosts import DATA_NETWORK, Hosts, skip_unless_supported

YIELD = "--mca mpi_yield_when_idle 1"
# TCP is preferred to shared memory.
LOOPBACK = "--mca btl_tcp_exclusivity 100000 --mca btl_tcp_if_include lo"
PROMPT = "Once upon a time"
DELAYS_MS = (0, 0.1, 1, 5, 10)
SUMS = 2 * 6 + 1 # two a layer of the tales target, and one for the embedding
LOAD = ("--prompts", os.path.join(SOURCE, "bench", "prompts", "tales.txt"), "--rule", "greedy",
        "--temperature", "0", "--ignore-eos", "--quiet")


class Group:
    """A group and its coordinator on the hosts."""

    def __init__(self, hosts, build, name, port, options, flags, addresses, at, coordinator=()):
        self.hosts, self.build, self.at = hosts, build, at
        self.address = f"127.0.0.1:{port + 10}"
        hosts.start(0, f"group-{name}", f"{SOURCE}/deploy/mpirun/group", "--build", build,
                    "--port", str(port), "--model", os.path.join(TALES, "target"), "--threads",
                    "1", *options, environment={"MPIRUN_FLAGS": f"{YIELD} {flags}"})
        target = ",".join(f"{a}:{port + i}" for i, a in enumerate(addresses))
        hosts.start(at, f"coordinator-{name}", f"{build}/bin/outrider-coordinator", "--target",
                    target, "--draft", os.path.join(TALES, "draft"), "--listen", self.address,
                    "--http", "off", *coordinator)
        wait_until(lambda: self.run("health").returncode == 0, 60, f"{name} serves")

    def run(self, *args, timeout=60):
        return self.hosts.run(self.at, f"{self.build}/bin/outrider", args[0], "--address",
                              self.address, *args[1:], timeout=timeout)

    def generate(self, n, *more):
        done = self.run("generate", PROMPT, "-n", str(n), "--temperature", "0", "--ignore-eos",
                        "--json", *more)
        if done.returncode:
            raise SystemExit(done.stderr)
        return json.loads(done.stdout)


    def bench(self, n_tokens, ks, n_requests, repetitions):
        """The arms of `outrider bench` with one client, by K."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows.csv")
            done = self.run("bench", *LOAD, "-n", str(n_tokens), "--sweep",
                            f"C=1,K={','.join(map(str, ks))}", "--requests", str(n_requests), "-r",
                            str(repetitions), "--csv", path, timeout=900)
            if done.returncode:
                raise SystemExit(done.stderr)
            return {int(arm["K"]): arm for arm in read_arms(path)}


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


def measure_inputs(one, two, n_tokens, repetitions):
    """The file of `outrider plan --cluster` without a delay and without questions."""
    arms = one.bench(n_tokens, (0, 1, 2, 4), 4, repetitions)
    pair = two.bench(n_tokens, (0,), 4, repetitions)
    return inputs_of(list(arms.values()), list(pair.values()), SUMS, name="two hosts")


def predict(build, plan, way_us, arms):
    """Tokens per second of the arms of T = 2, with that much more on each way between hosts."""
    plan = json.loads(json.dumps(plan))
    plan["collectives"]["measured"][0]["us"] += way_us
    plan["questions"] = [
        {"groups": 1, "ranks": 2, "clients": 1, "k": k, "coordinators": 1, "link_us": way_us,
         "tokens": round(arm["generation_tokens"] / arm["requests"]),
         "prompt_tokens": round(arm["prompt_tokens"] / arm["requests"])}
        for k, arm in arms.items()]
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(plan, file)
        file.flush()
        done = subprocess.run([f"{build}/bin/outrider", "plan", "--json", "--cluster", file.name],
                              capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return [answer["tokens_per_second"] for answer in json.loads(done.stdout)["answers"]]


def delay(build, repetitions, n_tokens):
    with Hosts(build, 3) as hosts:
        options = ["--network", DATA_NETWORK, "--insecure", "--hosts"]
        plainly = ("--threads", "1")
        one, two = [
            Group(hosts, build, name, port, [*options, hosts.write_hostfile([1] * ranks, name)], "",
                  hosts.data[:ranks], 2, plainly)
            for name, port, ranks in (("one", 7200, 1), ("two", 7100, 2))]
        for group in (one, two):
            group.generate(n_tokens) # warms up
        plan, base = measure_inputs(one, two, n_tokens, repetitions), measure_link(hosts, build)
        print(f"One way takes {base * 1e6:.0f} us without a delay.\n"
              "  delay ms   one way ms    K   predicted   tokens/s  predicted/measured")
        for ms in DELAYS_MS:
            hosts.delay(ms / 1000)
            way = measure_link(hosts, build)
            # Every delay has the same prompts, because alpha depends on them.
            arms = two.bench(n_tokens, (0, 4), 4, repetitions if ms < 5 else 1)
            for (k, arm), rate in zip(arms.items(),
                                      predict(build, plan, max(0, way - base) * 1e6, arms)):
                measured = arm["tokens_per_second"]
                print(f"  {ms:8g}   {way * 1000:10.3f}   {k:2}  {rate:10.1f} {measured:10.1f}  "
                      f"{rate / measured:18.3f}", flush=True)


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
        delay(build, max(1, args.turns // 5), max(20, args.tokens // 2))


if __name__ == "__main__":
    main()
