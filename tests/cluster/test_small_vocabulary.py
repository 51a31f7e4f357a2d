#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=300
"""A target that has fewer rows than its tokenizer has tokens: the draft guesses none of the others,
and nobody may ask for them. Skipped (77) where grpcio is not installed."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from load_client import Client, job, run_jobs, score_job
from cut_model import write_cut_model
from cluster import TALES
from fault_util import FaultTest, World, main

VOCABULARY, WHOLE = 4000, 4096
N_JOBS = 50


class SmallVocabulary(FaultTest):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="outrider-")
        cls.addClassCleanup(folder.cleanup)
        target = write_cut_model(os.path.join(folder.name, "target"),
                                 os.path.join(TALES, "target"), VOCABULARY)
        cls.world = World(target=target)
        cls.addClassCleanup(cls.world.leave)
        cls.world.start()
        cls.client = Client(cls.world.address)
        cls.addClassCleanup(cls.client.close)

    def tearDown(self):
        self.assertEqual(self.client.load().ends["failed"], 0)
        self.check_logs(self.world)

    def check_texts(self, **options):
        """Flat distributions, so that a draft of the whole vocabulary would guess missing ids."""
        jobs = [job(text="Once upon a time", max_tokens=60, ignore_eos=True, temperature=1.5,
                    n_draft=8, seed=seed, **options) for seed in range(N_JOBS)]
        answers = run_jobs([self.client], jobs, 8)
        self.assertEqual([a.details for a in answers if a.status != "OK"], [])
        ids = {i for answer in answers for i in answer.texts[0].ids}
        self.assertLess(max(ids), VOCABULARY)
        self.assertGreater(len(ids), 500)
        self.assertGreater(sum(answer.total("accepted") for answer in answers), 0)

    def test_no_guess_is_a_missing_id(self):
        for rule in ("rejection", "block", "coupled"):
            with self.subTest(rule):
                self.check_texts(rule=rule)

    def test_text_is_plain_decoding_s(self):
        for seed in range(8):
            plain, guessed = (self.client.ask(job(
                text="Once upon a time", max_tokens=60, ignore_eos=True, temperature=1.5,
                rule="coupled", seed=seed, n_draft=k)).texts[0].ids for k in (0, 8))
            self.assertEqual(plain, guessed)

    def check_refused(self, message, method="Generate"):
        status, text = self.client.refusal(method, message)
        self.assertEqual(status, "INVALID_ARGUMENT")
        self.assertIn(f"outside of the vocabulary of {VOCABULARY}", text)

    def test_missing_ids_are_refused(self):
        for wrong in (VOCABULARY, 4050, WHOLE - 1):
            self.check_refused(job([1, wrong, 2], max_tokens=2))
            self.check_refused(score_job([1, wrong, 2]), "Score")
        answer = self.client.ask(job([1, VOCABULARY - 1, 2], max_tokens=2))
        self.assertEqual(answer.status, "OK", answer.details)


if __name__ == "__main__":
    main()
