#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes timeout=600
"""The line for OpenAI's client that `outrider serve` prints works as it is printed.

Usage: test_serve_openai.py BUILD_FOLDER"""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import pypi

BUILD = os.path.abspath(sys.argv[1])
pypi.enter(BUILD)

import openai

from cluster import TALES
from served import Served


class Client(unittest.TestCase):
    def test_the_printed_line_makes_a_client(self):
        with Served(BUILD, os.path.join(TALES, "target"), "--draft",
                    os.path.join(TALES, "draft")) as served:
            served.wait()
            line, = (line.strip() for line in served.read("out").splitlines()
                     if "openai.OpenAI(" in line)
            with eval(line, {"openai": openai}) as client:
                model = client.models.list().data[0].id
                made = client.completions.create(model=model, prompt="Once upon a time",
                                                 max_tokens=24, temperature=0)
            self.assertEqual(made.choices[0].text, served.text())
            self.assertEqual(served.end(), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
