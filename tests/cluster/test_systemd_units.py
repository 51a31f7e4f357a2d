#!/usr/bin/env python3
# ctest: labels=quick libs=client timeout=60
"""The units of systemd in deploy/systemd: systemd has nothing to say against them and finds little
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
from cluster import SOURCE, bound

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
UNITS = ("outrider-group.service", "outrider-coordinator.service")
DRAIN_SECONDS, STOP_MARGIN_SECONDS = 5, 4 # the programs' default, and stop_sessions in `common`


def read(name):
    """With the paths of this build."""
    with open(os.path.join(SOURCE, "deploy", "systemd", name), encoding="utf-8") as file:
        return file.read().replace("/usr/bin", os.path.join(BUILD, "bin"))


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
                             ("bin/outrider-coordinator\n", "bin/outrider-coordinators\n"),
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

    def test_the_files_of_the_units_have_options_of_the_programs(self):
        """Each variable is that of an option, and the programs have nothing against the values."""
        for name, programs in zip(UNITS, (("group", "worker"), ("coordinator",))):
            text = read(name)
            path = re.search(r"^EnvironmentFile=/etc/outrider/(.*)$", text, re.M)[1]
            with open(os.path.join(SOURCE, "deploy", "systemd", path), encoding="utf-8") as file:
                lines = file.read().replace("/usr/share/outrider", os.path.join(SOURCE, "deploy"))
            options = dict(re.findall(r"^(\w+)=(.*)$", lines, re.M))
            known = [f"OUTRIDER_{program}_{option}".upper().replace("-", "_")
                     for program in programs for option in self.options_of(program)]
            command = re.search(r"^ExecStart=(.*)$", text, re.M)[1]
            with self.subTest(name):
                self.assertLessEqual({*options}, {*known})
                done = subprocess.run([command, "--check"], env={**os.environ, **options},
                                      capture_output=True, encoding="utf-8", timeout=bound(30))
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def options_of(self, program):
        table = subprocess.run([os.path.join(BUILD, "bin", f"outrider-{program}"),
                                "--options-as=table"], capture_output=True, encoding="utf-8",
                               timeout=bound(30), check=True).stdout
        return re.findall(r"^option\t--(\S+)", table, re.M)


if __name__ == "__main__":
    skips.need("systemd-analyze", package="systemd")
    unittest.main(verbosity=2)
