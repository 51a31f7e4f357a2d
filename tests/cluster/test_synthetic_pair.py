#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=300
"""A synthetic pair of chosen agreement on real workers: the coordinator gets the target's name with
",draft=1", nothing else, and the guesses are accepted as often as was asked for.
Usage: test_synthetic_pair.py BUILD_FOLDER"""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import SOURCE, Cluster

BUILD = sys.argv.pop(1) if len(sys.argv) > 1 else f"{SOURCE}/build/release"
TOKENS = "240"


def generate(cluster, prompt_ids, *args):
    done = cluster.outrider("generate", "--prompt-ids", prompt_ids, "-n", TOKENS, "--ignore-eos",
                            "--json", *args)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def pair(name, **options):
    return Cluster(BUILD, target=name, draft=name + ",draft=1", **options)


class SyntheticPair(unittest.TestCase):
    def check_alpha(self, wished, n_ranks):
        """Over 8 texts of 240 tokens. That q has the draft's 64 best tokens costs 0.005 here."""
        counts = {"accepted": 0, "rejections": 0}
        with pair(f"synthetic:tiny,layers=4,seed=3,agree={wished}", n_ranks=n_ranks) as cluster:
            for text in range(8):
                said = generate(cluster, f"{text},{300 + text},7", "-K", "4", "--temperature", "1")
                self.assertEqual(said["rule"], "rejection")
                for key in counts:
                    counts[key] += said["counters"][key]
        alpha = counts["accepted"] / sum(counts.values())
        print(f"agree={wished}: alpha {alpha:.3f} of {sum(counts.values())} tested guesses")
        self.assertAlmostEqual(alpha, wished, delta=0.06)

    def test_wished_agreement_is_met_by_real_workers(self):
        self.check_alpha(0.9, 1)
        self.check_alpha(0.5, 2)

    def test_text_is_plain_decoding_s(self):
        with pair("synthetic:tiny,layers=4,seed=3,agree=0.7", n_ranks=2) as cluster:
            for rule in (["--temperature", "0"], ["--temperature", "1", "--seed", "9"]):
                plain = generate(cluster, "1,2,3", "-K", "0", *rule)
                guessed = generate(cluster, "1,2,3", "-K", "5", *rule)
                self.assertEqual(plain["token_ids"], guessed["token_ids"], rule)
                self.assertGreater(guessed["counters"]["accepted"], 60)
            done = cluster.outrider("generate", "as text", "-n", "8", "--json")
            self.assertEqual(json.loads(done.stdout)["prompt_token_ids"], list(b"as text"))


if __name__ == "__main__":
    unittest.main()
