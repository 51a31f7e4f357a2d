"""Runs the tests of one unittest script at the same time, for scripts whose tests mostly wait for
a deadline, a link or a process that ends. Each test must start what it needs by itself.

    if __name__ == "__main__":
        parallel_cases.main()           # in place of unittest.main

Each test is a process of its own, which is this script with the test's name after the build folder;
the tests of a class with a setUpClass are one process. A line says when each of them starts, and
what they print comes as a whole when each of them ends. One that does not end has at most 0.9 of
what is left of OUTRIDER_TEST_TIMEOUT when it starts: it prints the stacks of its threads, is killed
and counts as failed. A name or an option after the build folder runs those tests alone, in this
process, as unittest.main does.
"""
import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from cluster import dying_with_us

AT_ONCE = 4
PART = 0.9  # of the time that is left
STACKS_S = 0.5
BEGAN = time.monotonic()
_printing = threading.Lock()


def _names(suite):
    """The name of each process's tests: Class.test, or Class where a class is set up once."""
    names = []
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            names += _names(test)
            continue
        kind = type(test)
        is_shared = "setUpClass" in {name for base in kind.__mro__[:-1]
                                     if base is not unittest.TestCase for name in vars(base)}
        name = kind.__name__ if is_shared else f"{kind.__name__}.{test._testMethodName}"
        if name not in names:
            names.append(name)
    return names


def _print(text):
    with _printing:
        print(text, flush=True)


def _seconds_left():
    """The time that a process which starts now may take; None where there is no limit."""
    limit = os.environ.get("OUTRIDER_TEST_TIMEOUT")
    return max(1.0, PART * (float(limit) - (time.monotonic() - BEGAN))) if limit else None


def _run(name):
    """(how many tests ran, why the process failed or None) of one process."""
    start, seconds = time.monotonic(), _seconds_left()
    environment = {**os.environ, **({"OUTRIDER_TEST_TIMEOUT": str(seconds)} if seconds else {})}
    command = dying_with_us([sys.executable, os.path.abspath(sys.argv[0]), sys.argv[1], name])
    _print(f"started {name}")
    # A file, because a pipe would stay open while a program of the test that hangs has it.
    with tempfile.TemporaryFile() as file:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file,
                              stderr=subprocess.STDOUT, env=environment) as process:
            try:
                status = process.wait(seconds)
                ended = f"status {status}"
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGUSR2)  # cluster.py prints the stacks then
                time.sleep(STACKS_S)
                process.kill()  # what it started gets SIGTERM from the kernel
                status = process.wait()
                ended = "killed, because it did not end"
        file.seek(0)
        output = file.read().decode("utf-8", "replace")
    _print(f"==== {name}: {ended}, {time.monotonic() - start:.1f} s\n{output}")
    ran = re.search(r"^Ran (\d+) tests?", output, re.M)
    n_tests = int(ran.group(1)) if ran else 0
    if status or n_tests or "skipped=" in output:
        return n_tests, ended if status else None
    return 0, "status 0, but no test ran"


def main(at_once=AT_ONCE, **options):
    """Ends the process as unittest.main does; options are those of unittest.main."""
    if len(sys.argv) != 2:
        unittest.main(argv=sys.argv[:1] + sys.argv[2:], **options)
        return
    names = _names(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        done = list(pool.map(_run, names))
    n_tests = sum(n for n, _ in done)
    failed = [f"{name} ({why})" for name, (_, why) in zip(names, done) if why]
    print(f"{n_tests} tests, {len(failed)} of {len(names)} processes failed"
          f"{': ' if failed else ''}{', '.join(failed)}")
    sys.exit(1 if failed or not n_tests else 0)
