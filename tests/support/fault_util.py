"""Shared by the fault tests: programs that must end with one sentence, requests in mid-stream, and
a cluster whose steps take long enough that something can happen in between."""
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import unittest

import cluster
import parallel_cases
from cluster import Cluster, ClusterError, Program, bound, is_sanitized, wait_until

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/release")
PROMPT = "Once upon a time there was a king who had three daughters,"
GREEDY_TOKENS = 24
LONG = ("-n", "960", "--ignore-eos", "--temperature", "0")
# The portable kernels give the same bits at an eighth of the speed: a long text takes seconds.
SLOW_STEPS = ["--kernels", "plain"]
LOG_FIELD = re.compile(r'text="(.*)"$')


# How much longer a program may take in a build that checks every access.
PATIENCE = 5.0 if is_sanitized(BUILD) else 1.0
SANITIZER_STATUS = 99
os.environ["ASAN_OPTIONS"] = f"allocator_may_return_null=1:exitcode={SANITIZER_STATUS}"
os.environ["UBSAN_OPTIONS"] = "print_stacktrace=1"
cluster.MPI_ENVIRONMENT["ASAN_OPTIONS"] += f":exitcode={SANITIZER_STATUS}"


def program(name):
    return os.path.join(BUILD, "bin", name)


def run(*command, timeout=10, environment=None, stdin=None):
    """(status, output and errors together) of a program that must end by itself."""
    try:
        done = subprocess.run(command, input=stdin, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False,
                              timeout=bound(timeout * PATIENCE),
                              env={**os.environ, **(environment or {})})
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode("utf-8", "replace")
        raise ClusterError(f"{' '.join(map(str, command))}: no end after {timeout:g} s\n{output}") \
            from None
    return done.returncode, done.stdout.decode("utf-8", "replace")


def cpu_seconds(pid):
    """User and system time of all threads so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Stream:
    """A client in mid-stream: made when its first bytes of text have come."""

    def __init__(self, world, *arguments, wait=True):
        self.process = world.popen("generate", PROMPT, "-K", "0", *(arguments or LONG),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        if not wait:
            return
        if not select.select([self.process.stdout], [], [], bound(20 * PATIENCE))[0]:
            raise ClusterError("no text came in time")
        if not os.read(self.process.stdout.fileno(), 1 << 16):
            raise ClusterError(f"no text: {self.process.stderr.read().decode()}")

    def end(self, timeout):
        """(status, errors)"""
        try:
            _, errors = self.process.communicate(timeout=bound(timeout * PATIENCE))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise ClusterError(f"the client still waits after {timeout:g} s") from None
        return self.process.returncode, errors.decode("utf-8", "replace")

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        return self.end(3)

    def is_running(self):
        return self.process.poll() is None


class World(Cluster):
    """A cluster that waits longer when the build is slow."""

    def __init__(self, n_ranks=1, **options):
        super().__init__(BUILD, n_ranks=n_ranks, **options)
        self.last_logs = {}

    def leave(self):
        """Stops the cluster; the logs are kept for a test that has failed."""
        self.last_logs = self.logs()
        self._leave(failed=False)

    def wait_log(self, name, text, timeout):
        wait_until(lambda: text in self.logs().get(f"{name}.log", ""), timeout * PATIENCE,
                   f"the log of {name} says {text}")

    def generate(self, *more):
        """The JSON object of a short greedy text."""
        done = self.outrider("generate", PROMPT, "-n", str(GREEDY_TOKENS), "--temperature", "0",
                             "--json", *more, timeout=60)
        if done.returncode:
            raise ClusterError(f"a plain request fails: {done.stderr}")
        return json.loads(done.stdout)

    def greedy(self, *more):
        """The ids of that text."""
        return self.generate(*more)["token_ids"]

    def accepted(self):
        """How many of the draft's guesses were accepted in it."""
        return self.generate("-K", "4")["counters"]["accepted"]

    def print_logs(self):
        logs = self.logs() if os.path.isdir(self.folder) else self.last_logs
        for name, text in logs.items():
            print(f"---- {name}", *text.splitlines()[-cluster.LOG_TAIL_LINES:], sep="\n",
                  file=sys.stderr)

    def health_word(self):
        """Returns what `outrider health` prints, or why it prints nothing."""
        done = self.outrider("health")
        return (done.stdout or done.stderr).strip()


class FaultTest(unittest.TestCase):
    world = None

    def run(self, result=None):
        """As unittest does; a failure shows the tails of all logs."""
        before = len(result.failures) + len(result.errors)
        super().run(result)
        if self.world and len(result.failures) + len(result.errors) > before:
            self.world.print_logs()

    def check_sanitizers(self, text):
        for line in text.splitlines():
            self.assertNotIn("Sanitizer", line, text)
            self.assertNotIn("runtime error:", line, text)

    def check_logs(self, world):
        for text in world.logs().values():
            self.check_sanitizers(text)

    def check_failure(self, status, errors, *words):
        """The client failed with exactly one sentence that holds the words."""
        self.check_sanitizers(errors)
        self.assertEqual(status, 1, errors)
        lines = errors.splitlines()
        self.assertEqual(len(lines), 1, errors)
        self.assertTrue(lines[0].startswith("outrider: "), errors)
        for word in words:
            self.assertIn(word, lines[0])

    def check_refusal(self, status, output, *words, is_late=False):
        """A server ended with exactly one failure in its log, whose sentence holds the words; one
        that no further start would help says so by its status. is_late: it had met its peers,
        which may be started anew."""
        self.check_sanitizers(output)
        failures = [line for line in output.splitlines() if " failed reason=" in line]
        self.assertEqual(len(failures), 1, output)
        is_final = re.search(r" failed reason=(not_found|unsupported|argument|format) ",
                             failures[0])
        self.assertEqual(status, 78 if is_final and not is_late else 1, output)
        found = LOG_FIELD.search(failures[0])
        self.assertIsNotNone(found, failures[0])
        reason = found.group(1).replace('\\"', '"').replace("\\\\", "\\")
        for word in words:
            self.assertIn(word, reason)

    def check_usage(self, status, output, *words):
        """Exit status 2; the first line says what is wrong, at most a hint at --help follows."""
        self.check_sanitizers(output)
        self.assertEqual(status, 2, output)
        first, _, rest = output.partition("\n")
        for word in words:
            self.assertIn(word, first)
        self.assertTrue(not rest or rest.startswith("Try `"), output)

    def sooner(self, seconds, started):
        """Checks that a wait which began at `started` did not last until something else ends it
        that takes so many seconds, however busy the machine is."""
        self.assertLess(time.monotonic() - started, 0.95 * seconds)


def start(name, folder, *arguments):
    """A program of ours on its own, with its log in folder."""
    return Program(name, [program(name), *arguments], os.path.join(folder, f"{name}.log"), {})


def main(at_once=1):
    """at_once: how many of the script's tests run at the same time."""
    if at_once > 1:
        parallel_cases.main(at_once, verbosity=2, warnings="ignore")
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2, warnings="ignore")
