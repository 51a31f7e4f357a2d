#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=120
"""Completion in bash and zsh: real shells in a terminal, in which words are begun and the tab key
is pressed.

Usage: test_completion.py BUILD_FOLDER [PART_OF_A_TEST'S_NAME]
"""
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import skips
from cluster import SOURCE, bound

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
SCRIPTS = os.path.join(SOURCE, "deploy", "shell")
TAB = "\t"
CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x07|\r")


class Shell:
    """A shell in a terminal, in a folder with models/, models.gguf, prompts.txt and other."""

    def __init__(self, command, setup):
        self.folder = tempfile.TemporaryDirectory()
        os.mkdir(os.path.join(self.folder.name, "models"))
        for name in ("models.gguf", "prompts.txt", "other"):
            with open(os.path.join(self.folder.name, name), "w", encoding="ascii"):
                pass
        environment = {"PATH": f"{BUILD}/bin:{os.environ['PATH']}", "TERM": "dumb",
                       "HOME": self.folder.name, "LANG": "C.UTF-8", "COLUMNS": "1000"}
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(self.folder.name)
            os.execvpe(command[0], command, environment)
        self.send(f"stty cols 1000; {setup}; PS1=; echo be''gun\n")
        self.read_until("begun\n")

    def send(self, text):
        os.write(self.terminal, text.encode())

    def read_until(self, end):
        text, limit = "", time.monotonic() + bound(20)
        while end not in text:
            ready, _, _ = select.select([self.terminal], [], [], limit - time.monotonic())
            assert ready, f"no {end!r} in {text!r}"
            text = CONTROLS.sub("", text + os.read(self.terminal, 65536).decode())
        return text

    def completed(self, line):
        """The command line after the tab key, which an echo prints: nothing of it runs."""
        self.send(line + TAB)
        # The next key is read when the completion is done. The line's end is marked, so that blanks
        # are seen, and its beginning becomes that of an echo.
        self.send("E-N-D'\x01echo 'S-T-A-R-T\n")
        text = self.read_until("E-N-D\n")
        return re.findall(r"(?m)^S-T-A-R-T(.*)E-N-D$", text)[-1]

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)
        self.folder.cleanup()


class Completion:
    """Both shells complete this alike."""

    def setUp(self):
        self.shell = self.start()

    def tearDown(self):
        self.shell.close()

    def check(self, *pairs):
        for line, wanted in pairs:
            with self.subTest(line):
                self.assertEqual(self.shell.completed(line), wanted)

    def test_commands(self):
        self.check(("outrider gen", "outrider generate "),
                   ("outrider jobs sub", "outrider jobs submit "),
                   ("outrider datastore bu", "outrider datastore build "),
                   ("outrider help des", "outrider help describe "),
                   ("outrider help jobs wa", "outrider help jobs watch "),
                   ("outrider nothing", "outrider nothing"))

    def test_options(self):
        self.check(("outrider generate --no-ec", "outrider generate --no-echo "),
                   ("outrider generate --temp", "outrider generate --temperature="),
                   ("outrider jobs list --sta", "outrider jobs list --state="),
                   ("outrider-worker --slo", "outrider-worker --slots="),
                   ("outrider-coordinator --insec", "outrider-coordinator --insecure "),
                   ("outrider-group --host", "outrider-group --hosts="),
                   ("outrider-group --kv-t", "outrider-group --kv-tokens="))

    def test_words(self):
        self.check(("outrider generate --rule rej", "outrider generate --rule rejection "),
                   ("outrider generate --rule=typ", "outrider generate --rule=typical "),
                   ("outrider-worker --log-level w", "outrider-worker --log-level warn "),
                   ("outrider-worker --kernels=ne", "outrider-worker --kernels=neon "),
                   ("outrider-coordinator --log-jobs o", "outrider-coordinator --log-jobs o"),
                   ("outrider-coordinator --log-jobs of", "outrider-coordinator --log-jobs off "),
                   ("outrider generate --seed 1 --stra", "outrider generate --seed 1 --strategy="),
                   ("outrider generate -n 5 --strategy pl",
                    "outrider generate -n 5 --strategy planned "))

    def test_files_and_folders(self):
        self.check(("outrider generate --file pro", "outrider generate --file prompts.txt "),
                   ("outrider-worker -m models.", "outrider-worker -m models.gguf "),
                   ("outrider-worker --head mod", "outrider-worker --head models/"),
                   ("outrider-worker --head=mod", "outrider-worker --head=models/"),
                   ("outrider-worker --head oth", "outrider-worker --head oth"),
                   ("outrider jobs submit pro", "outrider jobs submit prompts.txt "),
                   ("outrider generate pro", "outrider generate pro"),
                   ("outrider describe --address pro", "outrider describe --address pro"))

    def test_a_program_that_is_called_by_its_path(self):
        path = os.path.join(BUILD, "bin", "outrider")
        self.check((f"{path} gen", f"{path} generate "))


class Bash(Completion, unittest.TestCase):
    def start(self):
        script = os.path.join(SCRIPTS, "outrider.bash")
        return Shell(["bash", "--norc", "--noprofile"],
                     f"bind 'set enable-bracketed-paste off'; . {script}")

    def test_every_option_is_offered(self):
        """As the completion gives them, for each program."""
        for words in (["outrider", "generate"], ["outrider", "bench"], ["outrider-worker"],
                      ["outrider-coordinator"]):
            command = (f". {SCRIPTS}/outrider.bash; COMP_WORDS=({' '.join(words)} --); "
                       f"COMP_CWORD={len(words)}; compopt() {{ :; }}; "
                       "_outrider outrider -- x; printf '%s\\n' \"${COMPREPLY[@]}\"")
            environment = {**os.environ, "PATH": f"{BUILD}/bin:{os.environ['PATH']}"}
            offered = subprocess.run(["bash", "-c", command], env=environment, check=True,
                                     capture_output=True, encoding="utf-8",
                                     timeout=bound(30)).stdout
            shown = subprocess.run(words + ["--help"], env=environment, check=True,
                                   capture_output=True, encoding="utf-8",
                                   timeout=bound(30)).stdout
            options = re.findall(r"(?m)^ {2}(?:-\S,| {3}) (--[a-z0-9-]+=?)", shown)
            self.assertEqual(sorted({*options} - {"--usage"}), sorted(offered.split()), words)


class Zsh(Completion, unittest.TestCase):
    def start(self):
        return Shell(["zsh", "-f", "-i"],
                     f"fpath=({SCRIPTS} $fpath); bindkey -e; autoload -U compinit; compinit -D -u; "
                     "unsetopt prompt_cr prompt_sp zle_bracketed_paste; unset zle_bracketed_paste")


if __name__ == "__main__":
    skips.need("bash", package="bash")
    skips.need("zsh", package="zsh")
    unittest.main(verbosity=2, argv=sys.argv[:1] + [f"-k{part}" for part in sys.argv[1:]])
