#!/usr/bin/env python3
# ctest: labels=quick,slow libs=base timeout=60
"""tests/support/parallel_cases.py counts cases that hang, crash, end early or fail as failed, names
each of them, and prints what it has written and where it hangs.
Usage: test_parallel_cases.py BUILD_FOLDER
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

SUPPORT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support")
sys.path.insert(0, SUPPORT)
from cluster import slowness

SCRIPT = f"""
import os, sys, time, unittest
sys.path.insert(0, {SUPPORT!r})
sys.dont_write_bytecode = True
import parallel_cases

class Good(unittest.TestCase):
    def test_it(self):
        print("good words")

class Shared(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        pass
    def test_one(self):
        pass
    def test_two(self):
        pass
"""
BAD = """
class Bad(unittest.TestCase):
    def test_crash(self):
        os.abort()
    def test_exit(self):
        os._exit(0)
    def test_failure(self):
        self.fail("failing words")
    def test_hang(self):
        print("words before it hangs", flush=True)
        self.wait_for_ever()
    def wait_for_ever(self):
        time.sleep(600)
"""
MAIN = """
if __name__ == "__main__":
    parallel_cases.main(at_once=8)
"""


class ParallelCases(unittest.TestCase):
    def run_script(self, text, limit):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cases.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text + MAIN)
            done = subprocess.run([sys.executable, path, folder], capture_output=True,
                                  encoding="utf-8", check=False, cwd=folder,
                                  env={**os.environ, "OUTRIDER_TEST_TIMEOUT": str(limit)})
        return done.returncode, done.stdout

    def test_good_cases_pass(self):
        status, output = self.run_script(SCRIPT, 120)
        self.assertEqual(status, 0, output)
        self.assertEqual(output.splitlines()[-1], "3 tests, 0 of 2 processes failed")
        self.assertEqual(set(re.findall(r"^started (\S+)$", output, re.M)),
                         {"Good.test_it", "Shared"})
        self.assertIn("good words", output)

    def test_bad_cases_are_named(self):
        status, output = self.run_script(SCRIPT + BAD, 10 * slowness())
        self.assertEqual(status, 1, output)
        self.assertEqual(output.splitlines()[-1],
                         "4 tests, 4 of 6 processes failed: Bad.test_crash (status -6), "
                         "Bad.test_exit (status 0, but no test ran), Bad.test_failure (status 1), "
                         "Bad.test_hang (killed, because it did not end)")
        self.assertIn("started Bad.test_hang\n", output)
        hang = output[output.index("==== Bad.test_hang"):]
        self.assertIn("words before it hangs\n", hang)
        self.assertRegex(hang, r"File .*cases.py.* in wait_for_ever")
        self.assertIn("failing words", output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
