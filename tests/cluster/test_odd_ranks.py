#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=300
"""A model with 9 heads on 3 kv heads: three ranks write the texts of one, bit for bit, with guesses
and without, and what cannot share it is refused in a sentence."""
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import MPI_ENVIRONMENT, MPI_FLAGS, Cluster

BUILD = None
PAIR = "synthetic:tiny-3,seed=7,layers=4,agree=0.8"
SEEDS = range(1, 5)
WAYS = {"greedy": ("--temperature", "0"),
        "coupled": ("--temperature", "1", "--rule", "coupled"),
        "rejection": ("--temperature", "1", "--rule", "rejection", "-K", "3"),
        "plain": ("--temperature", "1", "-K", "0"),
        "penalties": ("--temperature", "1", "--rule", "coupled", "--repetition-penalty", "1.3",
                      "--top-p", "0.9")}


def texts_of(n_ranks):
    """The ids of every text by its name, and how many guesses stayed."""
    ids, n_accepted = {}, 0
    with Cluster(BUILD, n_ranks=n_ranks, target=PAIR, draft=PAIR + ",draft=1",
                 worker_flags=["--threads", "1"], coordinator_flags=["--threads", "1"]) as cluster:
        for name, words in WAYS.items():
            for seed in SEEDS:
                done = cluster.outrider("generate", "Once upon a time", "-n", "60", "--ignore-eos",
                                        "--seed", str(seed), "--json", *words)
                answer = json.loads(done.stdout)
                ids[name, seed] = answer["token_ids"]
                n_accepted += answer["counters"]["accepted"]
    return ids, n_accepted


def worker(*words):
    return [os.path.join(BUILD, "bin/outrider-worker"), "--model", PAIR, *words]


class OddRanks(unittest.TestCase):
    def test_three_ranks_write_the_texts_of_one(self):
        one, n_accepted = texts_of(1)
        three, n_accepted_of_three = texts_of(3)
        self.assertEqual(one, three)
        self.assertGreater(min(n_accepted, n_accepted_of_three), 100)
        self.assertGreater(len(set(map(tuple, one.values()))), len(SEEDS))

    def test_the_worker_says_how_many_ranks_fit(self):
        done = subprocess.run(worker("--check"), capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "ranks 1 3\n")

    def test_two_ranks_are_refused(self):
        done = subprocess.run(
            ["mpirun", *MPI_FLAGS, "-np", "2", *worker("--listen", f"unix:{BUILD}/odd")],
            env={**os.environ, **MPI_ENVIRONMENT}, capture_output=True, text=True, timeout=120)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("its 9 heads, 3 kv heads and FFN width 192 are cut into 3 slices, so T must "
                      "be one of 1, 3", done.stdout + done.stderr)


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    unittest.main()
