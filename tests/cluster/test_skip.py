#!/usr/bin/env python3
# ctest: labels=full libs=worker beside=yes timeout=120
"""`outrider skip` finds the core of a synthetic target, whose agreement is known, and what it
prints can be given to a coordinator, whose texts are then the plain ones.
Usage: test_skip.py BUILD_FOLDER"""
import json
import os
import shlex
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import SOURCE, TALES, Cluster

BUILD = sys.argv.pop(1) if len(sys.argv) > 1 else f"{SOURCE}/build/release"
TEXT = os.path.join(SOURCE, "README.md")
TARGET = os.path.join(TALES, "target")
PAIR = "synthetic:tiny,layers=4,seed=3,agree=0.8"


def skip(*words):
    return subprocess.run([os.path.join(BUILD, "bin", "outrider"), "skip", *words],
                          capture_output=True, encoding="utf-8", timeout=100, check=False)


def alphas(*words):
    """{layers: alpha} of the sets that were found, and what --draft is to be."""
    done = skip(*words, "--text", TEXT, "--best", "1000", "--json", "--threads", "1")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return {one["layers"]: one["alpha"] for one in found["sets"]}, found["draft"]


class Skip(unittest.TestCase):
    def check_served(self, target, *words):
        """The last line of the table is an option; a coordinator that has it serves."""
        done = skip(target, "--text", TEXT, "--tokens", "128", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        option, draft = shlex.split(done.stdout.splitlines()[-1])
        self.assertEqual(option, "--draft")
        with Cluster(BUILD, target=target, draft=draft) as cluster:
            texts = [json.loads(cluster.outrider("generate", "--prompt-ids", "5,6,7", "-n", "40",
                                                 "--ignore-eos", "--temperature", "0", "--json",
                                                 "-K", k).stdout) for k in ("0", "4")]
        self.assertEqual(texts[0]["token_ids"], texts[1]["token_ids"])
        self.assertGreater(texts[1]["counters"]["drafted"], 0)
        return draft

    def test_the_core_of_a_pair_agrees_as_was_asked_for(self):
        found, _ = alphas(PAIR)
        self.assertAlmostEqual(found["0"], 0.8, delta=0.06)
        self.assertLess(found["1-1"], 0.4)
        self.assertTrue(found["0"] < found["0-1"] < found["0-2"] < 1, found)

    def test_greedy_agreement_counts_equal_tokens(self):
        found, _ = alphas(PAIR, "--temperature", "0", "--tokens", "100")
        for layers, alpha in found.items():
            self.assertAlmostEqual(alpha * 100, round(alpha * 100), places=6, msg=layers)
        self.assertGreater(found["0"], 0.6)

    def test_what_is_printed_is_served(self):
        # A step of 1000 ms makes every draft cheap, so the set is one of the larger ones.
        self.check_served(TARGET, "--step-ms", "1000")
        self.assertIn(",layers=", self.check_served(PAIR))

    def test_time_ends_the_search(self):
        measured = {}
        for seconds in ("1", "120"):
            done = skip(TARGET, "--text", TEXT, "--tokens", "4096", "--seconds", seconds, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            measured[seconds] = json.loads(done.stdout)["n_measured"]
        self.assertLess(measured["1"], measured["120"])

    def test_refusals(self):
        for words, part in [([], "MODEL is missing"), ([PAIR], "--text FILE is missing"),
                            ([PAIR + ",layers=0-1", "--text", TEXT], "give the whole model"),
                            ([PAIR, "--text", "/nowhere"], "/nowhere"),
                            (["synthetic:tiny,seed=1,layers=1", "--text", TEXT], "has 1 layers"),
                            ([PAIR, "--text", TEXT, "--tokens", "2"], "at least 5 are needed")]:
            done = skip(*words)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(part, done.stderr)
            self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
