#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=300
"""Drafting while the target verifies changes no token: the guesses made ahead are those that would
have been made later, with the same coins."""
import json
import os
import unittest
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import Cluster
from fault_util import BUILD, PATIENCE, PROMPT, main, program, run
from generations import side_by_side

RULES = [("greedy", "0"), ("coupled", "0.8"), ("rejection", "1"), ("block", "0.7"), ("naive", "1")]
N_TOKENS = 120
SEEDS = ("3", "4")


# The ways to choose K, and texts that end early: guesses made ahead must end with the text.
WAYS = [("-K", "1"), ("-K", "4"), ("-K", "16"), ("--strategy", "heuristic"),
        ("--strategy", "threshold", "--threshold", "0.3"), ("-K", "5", "-n", "7"),
        ("-K", "4", "--stop", " the")]
# The number of rounds of these depends on what was measured; their text does not.
PLANNED = [("greedy", "0"), ("coupled", "0.8")]


def generate(world, rule, temperature, seed, way):
    """(ids, counters)"""
    done = world.outrider("generate", PROMPT, "-n", str(N_TOKENS), "--rule", rule, "--temperature",
                          temperature, "--seed", seed, *way, "--json", timeout=60 * PATIENCE)
    if done.returncode:
        raise AssertionError(done.stderr)
    summary = json.loads(done.stdout)
    return summary["token_ids"], summary["counters"]


def texts(mode, n_ranks=1):
    """(rule, seed, way) -> (ids, counters), of a new cluster."""
    with Cluster(BUILD, n_ranks=n_ranks, coordinator_flags=["--draft-ahead", mode]) as world:
        cases = [(rule, t, seed, way) for rule, t in RULES for seed in SEEDS for way in WAYS]
        cases += [(rule, t, seed, ()) for rule, t in PLANNED for seed in SEEDS]
        return {(rule, seed, way): generate(world, rule, t, seed, way)
                for rule, t, seed, way in cases}


class DraftAhead(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.off, cls.on, cls.auto = side_by_side(
            lambda: texts("off"), lambda: texts("on"), lambda: texts("auto", n_ranks=2))

    def compare(self, others):
        for key, (ids, counters) in self.off.items():
            other_ids, other = others[key]
            self.assertEqual(other_ids, ids, key)
            for name in ("rounds", "drafted", "accepted", "rejections") if key[2] else ():
                self.assertEqual(other[name], counters[name], (key, name))
            self.assertEqual(counters["drafted_ahead"], 0)

    def test_the_text_is_the_same_with_work_done_ahead(self):
        others = self.on
        self.compare(others)
        for rule, _ in RULES:
            ahead = sum(c["drafted_ahead"] for (r, _, _), (_, c) in others.items() if r == rule)
            print(f"{rule}: {ahead} guesses made ahead and used")
            self.assertGreater(ahead, 0, rule)

    def test_the_text_is_the_same_whatever_was_measured(self):
        others = self.auto
        self.compare(others)
        ahead = sum(counters["drafted_ahead"] for _, counters in others.values())
        print(f"auto: {ahead} guesses made ahead and used")
        self.assertGreater(ahead, 0, "it has tried, whatever came of it")

    def test_another_word_is_refused(self):
        status, output = run(program("outrider-coordinator"), "--target", "unix:/nowhere",
                             "--draft",
                             "none", "--draft-ahead", "maybe")
        self.assertEqual(status, 2)
        self.assertIn("--draft-ahead maybe: expected auto, on or off", output)


if __name__ == "__main__":
    main()
