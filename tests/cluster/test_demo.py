#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=300
"""`outrider demo` against real clusters: texts that are the same, on screens of several widths and
with a pipe. Usage: test_demo.py BUILD_FOLDER [NAME_PART]"""
import json
import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import Cluster, bound, run_all, wait_until
from screen import Screen

SLOW = "synthetic:qwen2.5-0.5b,seed=1,layers=8,vocab=512"
SLOW_DRAFT = "synthetic:qwen2.5-0.5b,seed=2,layers=1,vocab=512"
PROMPTS = ["Once upon a time there was a king who had",
           "The old woman opened the door and said to the boy:",
           "When the princess came to the well,"]
FLAGS = ["-n", "30", "-K", "4", "--seed", "3"]
HEAD = r"%s: (?:\d+ ms|\d+\.\d\d s), (\d+) rounds"
RESULT = (r"the same 90 tokens, byte for byte, in (\d+) rounds instead of 90, "
          r"(?:\d+\.\d times as fast|but (?:not|hardly) faster here "
          r"\(\d\.\d\d times as fast\): guesses took the time that they saved|"
          r"not faster: no guess was worth its time here)")


def texts_of(cluster):
    """The texts that the same requests write."""
    texts = []
    for prompt in PROMPTS:
        done = cluster.outrider("generate", prompt, "-q", "-n", "30", "-K", "4", "--seed", "3",
                                "--temperature", "0.4")
        assert done.returncode == 0, done.stderr
        texts.append(done.stdout)
    return texts


def demo(cluster, *args):
    return cluster.command("demo", "--address", cluster.address, *args)


def words_of(text):
    return " ".join(text.split())


def test_with_a_pipe(cluster):
    done = cluster.outrider("demo", "--address", cluster.address, *FLAGS)
    assert done.returncode == 0 and done.stderr == "", done
    parts = done.stdout.split("\n\n", 1)
    assert parts[0] == "target, temperature 0.4, seed 3", parts[0]
    rounds = 0
    at = 0
    for prompt, text in zip(PROMPTS, texts_of(cluster), strict=True):
        pair = done.stdout.index(f"\n{prompt}{text}\nwithout guesses: ", at)
        at = pair + len(prompt) + len(text) + 2
        heads = done.stdout[at:].split("\n")[:2]
        plain = re.fullmatch(HEAD % "without guesses", heads[0])
        guessed = re.fullmatch(HEAD % "with guesses", heads[1])
        assert int(plain[1]) == 30 and int(guessed[1]) < 30, heads
        rounds += int(guessed[1])
    last = re.fullmatch(RESULT, done.stdout.splitlines()[-1])
    assert last and int(last[1]) == rounds < 90, done.stdout


def test_side_by_side(cluster):
    """Two columns of the same words, each below its clock, and nothing left of what was drawn
    before."""
    texts = texts_of(cluster)
    with Screen(demo(cluster, *FLAGS), columns=90, rows=50) as screen:
        assert screen.wait_end() == 0
        lines = screen.lines()
        last = screen.lines(joined=True)[-1]
    assert lines[0] == "target, temperature 0.4, seed 3", lines
    assert re.fullmatch(RESULT, last), last
    width = (90 - 3) // 2
    for prompt, text in zip(PROMPTS, texts, strict=True):
        begin = lines.index(f"{prompt} ...")
        end = lines.index("", begin)
        pair = lines[begin + 1:end]
        left = [line[:width].rstrip() for line in pair]
        right = [line[width + 3:] for line in pair]
        assert re.fullmatch(HEAD % "without guesses", left[0])[1] == "30", pair
        assert int(re.fullmatch(HEAD % "with guesses", right[0])[1]) < 30, pair
        assert left[1:] == right[1:] and words_of(" ".join(left[1:])) == words_of(text), pair


def test_one_below_the_other(cluster):
    texts = texts_of(cluster)
    with Screen(demo(cluster, *FLAGS), columns=50, rows=60) as screen:
        assert screen.wait_end() == 0
        lines = screen.lines(joined=True)
    for prompt, text in zip(PROMPTS, texts, strict=True):
        begin = next(i for i, line in enumerate(lines) if line.startswith(prompt[:30]))
        end = lines.index("", begin)
        pair = lines[begin + 1:end]
        heads = [i for i, line in enumerate(pair) if re.fullmatch(HEAD % "with(?:out)? guesses",
                                                                  line)]
        assert len(heads) == 2, pair
        first, second = pair[heads[0] + 1:heads[1]], pair[heads[1] + 1:]
        assert first == second and words_of(" ".join(first)) == words_of(text), pair
    assert re.fullmatch(RESULT, lines[-1]), lines


def test_the_planner_chooses(cluster):
    """Without -K: whatever it finds, the texts are the same and the figures say it."""
    done = cluster.outrider("demo", "--address", cluster.address, "-n", "30", "--temperature", "0")
    assert done.returncode == 0, done.stderr
    last = re.fullmatch(RESULT, done.stdout.splitlines()[-1])
    assert last and int(last[1]) <= 90, done.stdout
    is_slower = int(last[1]) == 90
    assert is_slower == ("no guess was worth" in last[0]), last[0]


def test_texts_that_copy(cluster):
    """The end of each prompt is shown, and the answer after it; the toy does not copy."""
    done = cluster.outrider("demo", "--address", cluster.address, "--texts", "copies", *FLAGS)
    assert done.returncode == 0 and done.stderr == "", done
    at = 0
    for end in ("The harbour office opens at", "def area(width, height):", '{"name": "Ada",'):
        at = done.stdout.index(f"\n\n{end}", at) + 1
    assert re.fullmatch(RESULT, done.stdout.splitlines()[-1]), done.stdout
    assert "once more" not in done.stdout.split("\n\n")[1], done.stdout
    wrong = cluster.outrider("demo", "--address", cluster.address, "--texts", "poems")
    assert wrong.returncode == 2 and "tales or copies" in wrong.stderr, wrong


def test_refusals(cluster):
    both = cluster.outrider("demo", "--address", cluster.address, "--model", "x")
    assert both.returncode == 2 and "nothing is started" in both.stderr, both
    with Cluster(cluster.build, draft=None, coordinator_flags=["--lookup", "none"]) as alone:
        none = alone.outrider("demo", "--address", alone.address)
        assert none.returncode == 1 and "makes no guesses" in none.stderr, none
        assert none.stderr.count("\n") == 1, none.stderr


def test_texts_that_differ(cluster):
    """Texts of rule rejection depend on the guesses, which is told and a failure."""
    done = cluster.outrider("demo", "--address", cluster.address, "--rule", "rejection",
                            "--temperature", "1", *FLAGS)
    assert done.returncode == 1 and "the same" not in done.stdout, done
    assert re.fullmatch(r"outrider: the two texts after \"[^\"]+\" differ from byte \d+ on, as "
                        r"those of this rule may\n", done.stderr), done.stderr


def test_a_server_that_dies(cluster):
    with Cluster(cluster.build, target=SLOW, draft=SLOW_DRAFT) as slow:
        process = slow.popen("demo", "--address", slow.address, "-n", "1000",
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        try:
            wait_until(lambda: json.loads(slow.outrider("describe", "--json").stdout)["load"]
                       ["running"], 60, "a text is made")
            slow.coordinator.process.send_signal(signal.SIGKILL)
            errors = process.communicate(timeout=bound(30))[1].decode()
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 1, errors
    assert errors == (f"outrider: the server at {slow.address} is gone, and the rest of the answer "
                      "with it\n"), errors


if __name__ == "__main__":
    sys.exit(run_all(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "", globals()))
