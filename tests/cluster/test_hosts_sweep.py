#!/usr/bin/env python3
# ctest: labels=full libs=client timeout=240
"""deploy/experiments/hosts.conf: all that it sweeps fits into its host files, and it runs on two
hosts, which are network namespaces, with the tales pair and fewer arms.

Usage: test_hosts_sweep.py BUILD_FOLDER
"""
import csv
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import SOURCE, TALES
from hosts import DATA_NETWORK, Hosts, skip_unless_supported

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
EXPERIMENTS = os.path.join(SOURCE, "deploy", "experiments")
# Ranks of several hosts share two cores here.
ENVIRONMENT = {**os.environ, "MPIRUN_FLAGS": "--mca mpi_yield_when_idle 1"}


def written():
    with open(os.path.join(EXPERIMENTS, "hosts.conf"), encoding="utf-8") as file:
        return file.read()


def axis(name):
    """The values of a swept name, as words."""
    line = re.search(r"^sweep = (.*)$", written(), re.M)[1]
    return re.search(rf"(?:^|, ){name}=([^ ]*?)(?:, |$)", line)[1].split(",")


def smaller(models):
    """The experiment with what this machine has, and little of it."""
    text = written()
    for old, new in ((r"--network \S+", f"--network {DATA_NETWORK}"),
                     (r"model=\S+,", f"model={models},"), (r"T=\S+,", "T=2,"),
                     (r"C=\S+,", "C=2,"), (r"K=\S+", "K=0"),
                     (r"--prompt-tokens .* -n \d+ --requests \d+",
                      "--prompt-tokens 8 -n 24 --requests 4")):
        text, n = re.subn(old, new, text)
        assert n == 1, f"{old} is {n} times in hosts.conf"
    return text + "repetitions = 1\n"


class Sweep(unittest.TestCase):
    def test_every_arm_fits_into_its_host_file(self):
        most = max(map(int, axis("T"))) * max(map(int, axis("groups")))
        for hosts in axis("hosts"):
            with open(os.path.join(EXPERIMENTS, f"hosts-{hosts}"), encoding="utf-8") as file:
                lines = re.findall(r"^(\w+) slots=(\d+)$", file.read(), re.M)
            self.assertEqual(len({name for name, _ in lines}), int(hosts))
            self.assertGreaterEqual(sum(int(slots) for _, slots in lines), most)

    def test_it_runs_on_two_hosts(self):
        with Hosts(BUILD, 2) as hosts:
            path = os.path.join(hosts.folder, "hosts.conf")
            models = f"/tmp/tales.{os.getpid()}" # a swept value has at most 23 characters
            os.symlink(TALES, models)
            self.addCleanup(os.unlink, models)
            with open(path, "w", encoding="utf-8") as file:
                file.write(smaller(models))
            done = hosts.run(0, os.path.join(EXPERIMENTS, "run"), path, "--out", hosts.folder,
                             "--build", BUILD, timeout=200, env=ENVIRONMENT)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(hosts.folder, "hosts.csv"), encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            self.assertEqual([(row["options"].partition(" model=")[0], row["failures"])
                              for row in rows],
                             [(f"hosts={h} groups={g}", "0") for h in (1, 2) for g in (1, 2)])
            for name in ("hosts", "groups", "T"):
                self.assertTrue(os.path.exists(f"{hosts.folder}/hosts-over-{name}.svg"), name)
            self.assertGreater(hosts.count()[0], 24, "no rank was on the other host")
            self.check_refusals(hosts)

    def check_refusals(self, hosts):
        start = [os.path.join(EXPERIMENTS, "start-mpirun"), "--build", BUILD, "--worker",
                 "--insecure", "--hosts", os.path.join(EXPERIMENTS, "hosts-2")]
        done = hosts.run(0, *start, "-T", "2", "--network", "10.99.0.0/24")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("start-mpirun: node2: --network 10.99.0.0/24: this host has no address in it",
                      done.stderr)
        done = hosts.run(0, *start, "-T", "8", "--groups", "2")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("has too few slots for 2 groups of 8", done.stderr)


if __name__ == "__main__":
    skip_unless_supported()
    unittest.main(verbosity=2)
