#!/usr/bin/env python3
# ctest: labels=full libs=coordinator beside=yes timeout=300
"""A coordinator tries the head that it is given between requests: one that is hardly ever right
does not guess, unless that is asked for, and the next start knows what was found. A head that need
not be tried guesses in the first request.
Usage: test_head_proof_cluster.py BUILD_FOLDER"""
import json
import os
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import block_head
from cluster import SOURCE, TALES, Cluster, wait_until
from eagle1 import write_head

BUILD = sys.argv.pop(1) if len(sys.argv) > 1 else f"{SOURCE}/build/release"
TARGET = os.path.join(TALES, "target")
VERDICTS = ("head_proven", "head_weak", "head_wrong", "head_not_proven")


def serve(head, *flags):
    return Cluster(BUILD, draft="none", coordinator_flags=["--head", head, "--tokenizer", TARGET,
                                                           "--lookup", "none", *flags])


def wait_proof(cluster):
    wait_until(lambda: any(word in cluster.coordinator.log() for word in VERDICTS), 120,
               "the proof of the head")
    return cluster.coordinator.log()


def generate(cluster, k):
    done = cluster.outrider("generate", "Once there was a", "-n", "40", "--temperature", "0",
                            "--json", "-K", k)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class HeadProof(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.head = tempfile.mkdtemp(prefix="outrider-head-")
        write_head(cls.head)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.head)

    def test_a_bad_head_guesses_only_if_that_is_asked_for(self):
        kept = os.path.join(self.head, "kept")
        with serve(self.head, "--pack-cache", kept) as cluster:
            plain = generate(cluster, "0")
            log = wait_proof(cluster)
            self.assertIn("head_wrong", log)
            self.assertEqual(log.count("head_trial"), 2)
            self.assertIn("normed: ", log)
            self.assertIn("last layer 6: ", log)
            again = generate(cluster, "4")
            self.assertEqual(again["counters"]["drafted"], 0)
            self.assertEqual(again["token_ids"], plain["token_ids"])
        self.assertTrue([name for name in os.listdir(kept) if name.startswith("head-")])
        with serve(self.head, "--pack-cache", kept, "--head-unchecked") as cluster:
            log = wait_proof(cluster)
            # With what was kept there is a verdict before the group serves.
            self.assertLess(log.index("head_wrong"), log.index("target_ready"))
            self.assertIn("--head-unchecked", log)
            guessed = generate(cluster, "4")
            self.assertGreater(guessed["counters"]["drafted"], 0)
            self.assertEqual(guessed["token_ids"], plain["token_ids"])
        with serve(self.head, "--pack-cache", "off", "--head-unchecked") as cluster:
            guessed = generate(cluster, "4")
            self.assertGreater(guessed["counters"]["drafted"], 0)
            self.assertEqual(guessed["token_ids"], plain["token_ids"])
            self.assertNotIn("head_trial", cluster.coordinator.log())

    def test_a_block_drafter_is_tried_and_guesses(self):
        folder = block_head.write_dspark(os.path.join(self.head, "dspark"))
        with serve(folder, "--pack-cache", "off") as cluster:
            plain = generate(cluster, "0")
            log = wait_proof(cluster)
            self.assertIn("head_weak", log)
            self.assertIn("one layer later 3 5 6: ", log)
            guessed = generate(cluster, "4")
            self.assertGreater(guessed["counters"]["drafted"], 0)
            self.assertGreater(guessed["counters"]["accepted"], 0)
            self.assertEqual(guessed["token_ids"], plain["token_ids"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
