"""How a test ends that cannot run on this machine: it says why, in a line that tests/run prints
again with its counts, and ends with 77, which ctest counts as skipped."""
import os
import platform
import shutil
import sys

SKIPPED = 77  # SKIP_RETURN_CODE in tests/CMakeLists.txt


def skip(why):
    """why: one sentence, or the middle of one."""
    print(f"SKIPPED: {why}", flush=True)
    sys.exit(SKIPPED)


def lacks(what, package):
    """Something that a package of deploy/packages brings is missing. That is no property of the
    machine: on x86-64, where all of these packages exist, the test fails."""
    if platform.machine() == "x86_64":
        print(f"FAILED: there is no {what} here; deploy/packages install test brings it (Debian's "
              f"package {package})", flush=True)
        sys.exit(1)
    skip(f"there is no {what} here (Debian's package {package})")


def is_there(program):
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def need(*programs, package):
    for program in programs:
        if not is_there(program):
            lacks(program, package)


def has(program, package):
    """For a part of a test: as need on x86-64; elsewhere whether the program is there."""
    if platform.machine() == "x86_64":
        need(program, package=package)
    return bool(is_there(program))
