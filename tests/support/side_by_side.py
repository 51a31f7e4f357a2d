"""The tests of one unittest script at the same time, for scripts whose tests mostly wait: for a
deadline, a link, a process that ends. Each test must start what it needs by itself.

    if __name__ == "__main__":
        side_by_side.main()             # in place of unittest.main

Each test is a process of its own, which is this script with the test's name behind the build
folder; the tests of a class with a setUpClass are one process. What they print comes in order at
the end of each. A name or an option behind the build folder runs those tests alone, in this
process, as unittest.main does.
"""
import concurrent.futures
import os
import re
import subprocess
import sys
import time
import unittest

from cluster import dying_with_us

AT_ONCE = 4


def _names(suite):
    """What is run as one process each: Class.test, or Class where a class is set up once."""
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


def _run(name):
    start = time.monotonic()
    script, build = os.path.abspath(sys.argv[0]), sys.argv[1]
    done = subprocess.run(dying_with_us([sys.executable, script, build, name]),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    output = done.stdout.decode("utf-8", "replace")
    print(f"==== {name}: status {done.returncode}, {time.monotonic() - start:.1f} s\n{output}",
          flush=True)
    return done.returncode, output


def main(at_once=AT_ONCE, **options):
    """Ends the process as unittest.main does; options are those of unittest.main."""
    if len(sys.argv) != 2:
        unittest.main(argv=sys.argv[:1] + sys.argv[2:], **options)
        return
    names = _names(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        done = list(pool.map(_run, names))
    counts = [re.search(r"^Ran (\d+) tests?", output, re.M) for _, output in done]
    n_tests = sum(int(count.group(1)) for count in counts if count)
    failed = [name for name, (status, _) in zip(names, done) if status]
    print(f"{n_tests} tests, {len(failed)} of {len(names)} processes failed {' '.join(failed)}")
    sys.exit(1 if failed or not all(counts) or not n_tests else 0)
