#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=200
"""`outrider heads` ranks a draft above a head that guesses badly, finds out which features a head
means, and says what cannot be measured.
Usage: test_heads_command.py BUILD_FOLDER"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import block_head
from cluster import SOURCE, TALES
from eagle1 import write_head

BUILD = sys.argv.pop(1) if len(sys.argv) > 1 else f"{SOURCE}/build/release"
TARGET = os.path.join(TALES, "target")
DRAFT = os.path.join(TALES, "draft")
OTHER = os.path.join(SOURCE, "tests/golden/heads/eagle3_flat")


def heads(*words):
    return subprocess.run([os.path.join(BUILD, "bin", "outrider"), "heads", *words, "--threads",
                           "1"], capture_output=True, encoding="utf-8", timeout=180, check=False)


def predicted(found, one):
    """The reading that is taken, and the tokens per second of K guesses: a head's first pass reads
    all tokens of the round before."""
    taken = next(trial for trial in one["readings"] if trial["is_taken"])
    n_more = 0 if one["kind"] == "draft" else one["tokens_per_round"] - 1
    draft_ms = one["k"] * one["pass_ms"] + n_more * one["row_ms"]
    return taken, one["tokens_per_round"] * 1e3 / (draft_ms + found["step_ms"][one["k"]])


class Heads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        write_head(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_candidates_are_ranked_by_predicted_speed(self):
        done = heads(self.folder.name, OTHER, DRAFT, "--target", TARGET, "--tokens", "256",
                     "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual([one["name"] for one in found["candidates"]],
                         [DRAFT, self.folder.name, OTHER])
        draft, head, other = found["candidates"]
        self.assertIn("width 64", other["error"])
        self.assertEqual(draft["kind"], "draft")
        self.assertEqual(head["kind"], "EAGLE-1 or 2")
        self.assertEqual([trial["reading"] for trial in head["readings"]],
                         ["normed", "last layer"])
        self.assertAlmostEqual(found["plain_tokens_per_second"], 1e3 / found["step_ms"][0],
                               delta=1)
        self.assertEqual(len(found["step_ms"]), 17)
        self.assertEqual(sorted(found["step_ms"]), found["step_ms"])
        for one in (draft, head):
            taken, speed = predicted(found, one)
            self.assertAlmostEqual(one["tokens_per_second"] / speed, 1, places=4)
            self.assertAlmostEqual(one["tokens_per_second"] / found["plain_tokens_per_second"],
                                   one["ratio"], places=4)
            self.assertEqual(len(taken["agreement"]), 5)
        self.assertGreater(predicted(found, draft)[0]["agreement"][0], 0.3)
        self.assertLess(predicted(found, head)[0]["agreement"][0], 0.3)
        self.assertGreater(draft["tokens_per_second"], head["tokens_per_second"])

    def test_block_drafters_are_measured(self):
        folder = block_head.write_dflash(os.path.join(self.folder.name, "dflash"))
        done = heads(folder, "--target", TARGET, "--tokens", "256", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        [one] = found["candidates"]
        self.assertEqual(one["kind"], "DFlash")
        taken = next(trial for trial in one["readings"] if trial["is_taken"])
        self.assertEqual(taken["reading"], "as written")
        self.assertEqual(len(taken["agreement"]), 5)
        self.assertGreater(taken["agreement"][0], 0.04)
        self.assertGreater(one["pass_ms"], 0)

    def test_the_table_says_what_is_wrong(self):
        done = heads(self.folder.name, "/nonexistent", "--target", TARGET, "--tokens", "64",
                     "--k-max", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertIn("a step takes", lines[0])
        self.assertTrue(lines[1].startswith("tokens/s"))
        self.assertIn("no guesses", lines[2])
        self.assertIn(f"{self.folder.name}: normed", lines[3])
        self.assertIn("head", lines[3].split(";")[1])
        self.assertIn("/nonexistent cannot be measured: there is no folder", lines[4])

    def test_command_lines_that_are_wrong_are_refused(self):
        for words, says in ((("--target", TARGET), "NAME is missing"),
                            ((DRAFT,), "--target MODEL is missing"),
                            ((DRAFT, "--target", TARGET, "--tokens", "3"), "--tokens"),
                            ((DRAFT, "--target", "/nonexistent"), "there is no folder")):
            done = heads(*words)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(says, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_nothing_that_can_be_measured_is_a_failure(self):
        done = heads(OTHER, "--target", TARGET, "--tokens", "64")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("width 64", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
