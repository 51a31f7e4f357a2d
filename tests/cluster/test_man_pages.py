#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=60
"""The pages for man: there is one for each program and command, readers of pages have nothing
against it, and it has every option of --help.

Usage: test_man_pages.py BUILD_FOLDER
"""
import glob
import gzip
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import skips
from cluster import bound

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
PROGRAMS = ["outrider", "outrider-coordinator", "outrider-worker", "outrider-group"]


def run(*command, **more):
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=bound(30),
                          check=False, stdin=subprocess.DEVNULL, **more)


def call(words, *more):
    done = run(os.path.join(BUILD, "bin", words[0]), *words[1:], *more)
    assert done.returncode == 0, (words, more, done.stderr)
    return done.stdout


def commands_below(*words):
    """The words of all commands, as the help lists them."""
    lists = re.findall(r"(?ms)^(?:More c|C)ommands:$(.*?)^$", call(words, "--help"))
    for name in re.findall(r"(?m)^ {2}(\S+)", "".join(lists)):
        if name not in ("help", "version"):
            yield [*words, name]
            yield from commands_below(*words, name)


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.paths = {}
        for path in glob.glob(os.path.join(BUILD, "man", "*.gz")):
            name = os.path.basename(path).removesuffix(".gz")
            cls.paths[name] = os.path.join(cls.folder.name, name)
            with gzip.open(path) as page, open(cls.paths[name], "wb") as plain:
                plain.write(page.read())

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_each_program_and_command_has_a_page(self):
        words = [[program] for program in PROGRAMS] + list(commands_below("outrider"))
        self.assertGreater(len(words), 20)
        self.assertEqual(sorted("-".join(each) + ".1" for each in words), sorted(self.paths))

    def test_groff_and_mandoc_have_nothing_against_them(self):
        done = run("groff", "-ww", "-man", "-Tutf8", "-Z", *sorted(self.paths.values()))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = run("mandoc", "-T", "lint", "-W", "warning", *sorted(self.paths.values()))
        # A page that depends on the day would differ from build to build.
        words = [line for line in (done.stdout + done.stderr).splitlines()
                 if not line.endswith('missing date, using "": TH')]
        self.assertEqual(words, [])

    def test_mistakes_would_be_seen(self):
        path = os.path.join(self.folder.name, "wrong.1")
        with open(path, "w", encoding="ascii") as file:
            file.write(".TH WRONG 1\n.SH NAME\nwrong\n.SX\n")
        self.assertNotEqual(run("groff", "-ww", "-man", "-Tutf8", "-Z", path).stderr, "")
        done = run("mandoc", "-T", "lint", "-W", "warning", path)
        self.assertIn("SX", done.stdout + done.stderr)

    def test_man_finds_what_each_is_for(self):
        done = run("lexgrog", *sorted(self.paths.values()))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for name in self.paths:
            self.assertIn(f'{name}: "{name.removesuffix(".1")} - ', done.stdout)

    def test_every_option_is_there(self):
        for words in [[program] for program in PROGRAMS] + list(commands_below("outrider")):
            name = "-".join(words) + ".1"
            with self.subTest(name):
                shown = run("mandoc", "-T", "ascii", "-O", "width=1000", self.paths[name]).stdout
                shown = re.sub(r".\x08", "", shown) # overstruck
                self.assertRegex(shown, rf"(?m)^ +{' '.join(words)}\b.*$")
                options = set(re.findall(r"(?m)^ {2}(?:-\S,| {3}) --([a-z0-9-]+)",
                                         call(words, "--help"))) - {"help", "usage", "version"}
                listed = re.search(r"(?ms)^OPTIONS$(.*?)^[A-Z]", shown)
                found = re.findall(r"(?m)^ {7}(?:-\S, )?--([a-z0-9-]+)(?:=\S+)?(?: .*)?$",
                                   listed[1] if listed else "")
                self.assertEqual(sorted(options), sorted(found))

    def test_man_shows_one(self):
        done = run("man", "-l", self.paths["outrider-generate.1"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--temperature=T", done.stdout)


if __name__ == "__main__":
    skips.need("man", "lexgrog", package="man-db")
    skips.need("groff", package="groff")
    skips.need("mandoc", package="mandoc")
    unittest.main(verbosity=2)
