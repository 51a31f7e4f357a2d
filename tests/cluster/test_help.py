#!/usr/bin/env python3
# ctest: labels=quick libs=client timeout=60
"""The help of every program and command: what is up to the end of its first group fits one screen
of 24 lines and 80 columns, and ends with an example, whose command and options there are.

Usage: test_help.py BUILD_FOLDER
"""
import os
import re
import shlex
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import bound

BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
PROGRAMS = ("outrider", "outrider-coordinator", "outrider-worker", "outrider-group")
PASSED_ON_BY = {"outrider-group": ["outrider-worker"]}
LINES, COLUMNS = 24, 80
COMMAND_LISTS = re.compile(r"(?ms)^(?:More c|C)ommands:$(.*?)^$")
EXAMPLE = re.compile(r"^(?:  )?Example: (.+)$")


def help_of(words):
    environment = {name: value for name, value in os.environ.items() if name != "ARGP_HELP_FMT"}
    environment["ASAN_OPTIONS"] = "detect_leaks=0"
    done = subprocess.run([os.path.join(BUILD, "bin", words[0]), *words[1:], "--help"],
                          stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
                          env=environment, timeout=bound(30), check=False)
    if done.returncode or done.stderr:
        raise AssertionError(f"{words}: status {done.returncode}, {done.stderr}")
    return done.stdout


def commands_below(words):
    lists = "".join(COMMAND_LISTS.findall(help_of(words)))
    for name in re.findall(r"(?m)^ {2}(\S+)", lists):
        if name not in ("help", "version"):
            yield [*words, name]
            yield from commands_below([*words, name])


def options_of(words):
    """Short and long ones with the dashes."""
    listed = re.findall(r"(?m)^ {2}(?:(-\S), | {4})(--[\w-]+)", help_of(words))
    return {name for names in listed for name in names if name}


def screen_of(text):
    """The lines up to the end of the first group, which has options or commands."""
    lines = text.splitlines()
    if any(line == "Commands:" for line in lines):
        first = lines.index("Commands:")
        end = lines.index("", first)
        if EXAMPLE.match(lines[end + 1]):  # a paragraph of its own
            end += 2
        return lines[:end]
    first = next(i for i, line in enumerate(lines)
                 if re.match(r" {2,6}-", line) or EXAMPLE.match(line))
    # Standard options come last in a group that has no title.
    end = next(i for i in range(first, len(lines))
               if not lines[i] or re.match(r"  -\?, --help", lines[i]))
    return lines[:end]


class Help(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.commands = [[name] for name in PROGRAMS] + list(commands_below(["outrider"]))

    def test_all_commands_are_looked_at(self):
        for words in (["outrider", "serve"], ["outrider", "jobs", "submit"], ["outrider", "score"]):
            self.assertIn(words, self.commands)

    def test_the_first_group_fits_one_screen(self):
        for words in self.commands:
            screen = screen_of(help_of(words))
            self.assertLessEqual(len(screen), LINES, "\n".join([str(words), *screen]))
            for line in screen:
                self.assertLessEqual(len(line), COLUMNS, f"{words}: {line}")

    def test_the_first_group_ends_with_an_example(self):
        for words in self.commands:
            screen = screen_of(help_of(words))
            self.assertRegex(screen[-1], EXAMPLE, "\n".join([str(words), *screen]))

    def test_an_example_has_the_command_and_options_that_there_are(self):
        known = {tuple(words): options_of(words) for words in self.commands}
        for words in self.commands:
            example = EXAMPLE.match(screen_of(help_of(words))[-1])[1]
            example = re.sub(r" > \S+$", "", example)
            before, _, passed = example.partition(" -- ")
            given = shlex.split(before)
            self.assertEqual(given[:len(words)], words)
            named = max((name for name in known if tuple(given[:len(name)]) == name), key=len)
            there = known[named]
            for more in PASSED_ON_BY.get(words[0], []):
                there = there | known[(more,)]
            for option in (word for word in given if re.match(r"-\D", word)):
                self.assertIn(option.partition("=")[0], there, example)
            serves = known[("outrider", "serve")] | known[("outrider-worker",)]
            for option in (word for word in shlex.split(passed) if re.match(r"-\D", word)):
                self.assertIn(option, serves, example)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
