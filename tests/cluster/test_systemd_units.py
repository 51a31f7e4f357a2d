#!/usr/bin/env python3
# ctest: labels=quick libs=client timeout=60
"""The units of systemd in deploy/mpirun: systemd has nothing to say against them and finds little
that a program in them could reach, and they give the programs the time that their drain takes.

Usage: test_systemd_units.py BUILD_FOLDER
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import skips
from cluster import SOURCE

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
UNITS = ("outrider-group.service", "outrider-coordinator.service")
DRAIN_SECONDS, STOP_MARGIN_SECONDS = 5, 4 # the programs' default, and stop_sessions in `common`


def read(name):
    """With the paths of this build."""
    with open(os.path.join(SOURCE, "deploy", "mpirun", name), encoding="utf-8") as file:
        text = file.read()
    text = text.replace("/opt/outrider/build/release", BUILD)
    return text.replace("/opt/outrider", SOURCE)


class Units(unittest.TestCase):
    def analyze(self, text, *args):
        """Status and words of systemd-analyze about a unit."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "outrider-test.service")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            done = subprocess.run(["systemd-analyze", *args, path], capture_output=True,
                                  encoding="utf-8", env={**os.environ, "SYSTEMD_COLORS": "0"})
        return done.returncode, done.stdout + done.stderr

    def verify(self, text):
        return self.analyze(text, "verify", "--man=no", "--recursive-errors=no")

    def test_systemd_has_nothing_against_them(self):
        for name in UNITS:
            with self.subTest(name):
                self.assertEqual(self.verify(read(name)), (0, ""))

    def test_mistakes_would_be_seen(self):
        text = read(UNITS[1])
        for right, wrong in (("RestartSec=2", "RestartSecs=2"),
                             ("Restart=on-failure", "Restart=on-failing"),
                             ("bin/outrider-coordinator ", "bin/outrider-coordinators "),
                             ("TimeoutStopSec=20", "TimeoutStopSec=soon")):
            with self.subTest(wrong):
                self.assertIn(right, text)
                self.assertNotEqual(self.verify(text.replace(right, wrong)), (0, ""))

    def test_little_is_exposed(self):
        for name, most in zip(UNITS, (2.5, 2.0)):
            with self.subTest(name):
                status, words = self.analyze(read(name), "security", "--offline=true",
                                             f"--threshold={int(most * 10)}", "--no-pager")
                self.assertEqual(status, 0, words[-300:])

    def test_the_end_has_time_for_a_drain(self):
        for name in UNITS:
            with self.subTest(name):
                seconds = int(re.search(r"^TimeoutStopSec=(\d+)$", read(name), re.M)[1])
                self.assertGreater(seconds, DRAIN_SECONDS + STOP_MARGIN_SECONDS)

    def test_the_options_of_the_comments_exist(self):
        helps = {"GROUP": [os.path.join(SOURCE, "deploy", "mpirun", "group"), "--help"],
                 "COORDINATOR": [os.path.join(BUILD, "bin", "outrider-coordinator"), "--help"]}
        worker = subprocess.run([os.path.join(BUILD, "bin", "outrider-worker"), "--help"],
                                capture_output=True, encoding="utf-8").stdout
        for name in UNITS:
            program, options = re.search(r"#     (\w+)_OPTIONS=(.*)", read(name)).groups()
            text = subprocess.run(helps[program], capture_output=True, encoding="utf-8").stdout
            for option in re.findall(r"(--?[a-zA-Z-]+)", options):
                self.assertRegex(text + worker, rf"(?m)(^| ){option}\b", f"{name}: {option}")


if __name__ == "__main__":
    skips.need("systemd-analyze", package="systemd")
    unittest.main(verbosity=2)
