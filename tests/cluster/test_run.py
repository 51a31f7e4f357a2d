#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=300
"""`outrider run`, `outrider chat MODEL` and `outrider demo` with a server that they start for
themselves: what they print, and that nothing of it is left, however they end.
Usage: test_run.py BUILD_FOLDER [NAME_PART]"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import Cluster, ClusterError, TALES, bound, descendants, dying_with_us, wait_until
from cluster import is_alive
from screen import Screen

BUILD = os.path.abspath(sys.argv[1])
TARGET = os.path.join(TALES, "target")
DRAFT = os.path.join(TALES, "draft")
SLOW = "synthetic:qwen2.5-0.5b,seed=1,layers=8,vocab=512"
ASKED = "Who is the king?"
FLAGS = ["-n", "20", "--temperature", "0"]


def command(*args):
    return [os.path.join(BUILD, "bin", "outrider"), *args]


class World:
    """A folder for all files of a test, and who has it among his words."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="or-", dir="/tmp")
        self.environment = {**os.environ, "TMPDIR": self.folder.name,
                            "XDG_STATE_HOME": self.folder.name}
        self.environment.pop("OUTRIDER_ADDRESS", None)
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def run(self, *args, stdin=""):
        return subprocess.run(command(*args), input=stdin, env=self.environment, encoding="utf-8",
                              capture_output=True, timeout=bound(60), check=False)

    def processes(self):
        """The programs that got our folder for their files."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    is_ours = f"TMPDIR={self.folder.name}".encode() in file.read().split(b"\0")
            except OSError:
                continue
            if is_ours and is_alive(int(pid)):
                found.append(int(pid))
        return found

    def check_nothing_left(self, but=()):
        wait_until(lambda: not self.processes(), 15, "no process is left")
        left = [name for name in os.listdir(self.folder.name) if name not in but]
        assert left == [], left


def test_one_answer(world, cluster):
    """That of a cluster that was started by hand, with and without a draft."""
    want = cluster.outrider("chat", *FLAGS, stdin=f"{ASKED}\n").stdout
    done = world.run("run", TARGET, ASKED, *FLAGS)
    assert done.returncode == 0 and done.stdout, done
    assert done.stdout + ("" if done.stdout.endswith("\n") else "\n") == want, (done, want)
    assert re.match(r"20 tokens after a prompt of 8, ", done.stderr), done.stderr
    again = world.run("run", TARGET, "-q", *FLAGS, "--", "--draft", DRAFT, stdin=ASKED)
    assert again.stdout == done.stdout and again.stderr == "", again
    plain = world.run("run", TARGET, ASKED, "-q", "--plain", *FLAGS)
    text = cluster.outrider("generate", "-q", ASKED, *FLAGS).stdout
    assert plain.stdout == text != done.stdout, (plain, text)
    world.check_nothing_left()


def test_failures_are_those_of_serve(world, _):
    for part, *words in (("there is no folder /nowhere", "/nowhere", "hi"),
                         ("--frobnicate", TARGET, "hi", "--", "--frobnicate")):
        done = world.run("run", *words)
        assert done.returncode == 1 and done.stdout == "", done
        assert part in done.stderr and done.stderr.count("\n") == 1, done.stderr
        assert done.stderr.startswith("outrider: ") and done.stderr.count("outrider") == 1, done
    none = world.run("run")
    assert none.returncode == 2 and "no model" in none.stderr, none
    world.check_nothing_left()


def test_a_conversation(world, cluster):
    want = cluster.outrider("chat", *FLAGS, stdin=f"{ASKED}\nAnd then?\n").stdout
    done = world.run("chat", TARGET, *FLAGS, stdin=f"{ASKED}\nAnd then?\n")
    assert done.returncode == 0 and done.stdout == want and done.stderr == "", done
    world.check_nothing_left()


def test_demo_from_nothing(world, _):
    done = world.run("demo", "-n", "20")
    assert done.returncode == 0 and done.stderr == "", done
    lines = done.stdout.splitlines()
    assert lines[0].startswith("a toy model of 6 million weights that writes fairy tales"), lines
    last = re.match(r"the same 60 tokens, byte for byte, in (\d+) rounds instead of 60, ",
                    lines[-1])
    assert last and int(last[1]) <= 60, lines
    world.check_nothing_left()


def test_on_a_terminal(world, _):
    """The screen has nothing of the start once the conversation begins."""
    environment = {"TMPDIR": world.folder.name, "XDG_STATE_HOME": world.folder.name,
                   "NO_COLOR": "1"}
    with Screen(command("chat", TARGET, *FLAGS), environment=environment) as screen:
        lines = screen.wait_for(lambda seen: seen[-1] == ">>>", timeout=60)
        assert lines == ["target, 1024 tokens of context. /help lists commands, Ctrl-D ends.",
                         ">>>"], lines
        screen.type("\x04")
        assert screen.wait_end() == 0
    world.check_nothing_left(but=["outrider"])


def interrupted(world, number):
    """Our process and its descendants, after a signal in the middle of an answer."""
    process = subprocess.Popen(
        dying_with_us(command("run", SLOW, "Once upon a time", "-n", "20000", "--ignore-eos")),
        env=world.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE)
    try:
        assert process.stdout.read(8), process.communicate()
        assert len(descendants(process.pid)) >= 3
        process.send_signal(number)
        errors = process.communicate(timeout=bound(30))[1].decode()
    finally:
        process.kill()
        process.wait()
    return process.returncode, errors


def test_signals(world, _):
    for number in (signal.SIGINT, signal.SIGTERM):
        status, errors = interrupted(world, number)
        assert status == 130 and errors == "outrider: interrupted\n", (status, errors)
        world.check_nothing_left()
    status, _ = interrupted(world, signal.SIGKILL)
    assert status == -signal.SIGKILL
    wait_until(lambda: not world.processes(), 15, "no process is left of one that was killed")


def main(part):
    tests = [(name, f) for name, f in globals().items()
             if name.startswith("test_") and part in name]
    failed = 0
    with Cluster(BUILD, draft=None) as cluster:
        for name, function in tests:
            try:
                with World() as world:
                    function(world, cluster)
                print(f"ok      {name[5:]}", flush=True)
            except (AssertionError, ClusterError, OSError, ValueError,
                    subprocess.SubprocessError):
                failed += 1
                print(f"FAILED  {name[5:]}\n{traceback.format_exc()}", flush=True)
    print(f"{len(tests)} tests, {failed} failed")
    return 1 if failed or not tests else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[2] if len(sys.argv) > 2 else ""))
