#!/usr/bin/env python3
# ctest: labels=quick libs=bench timeout=60
"""The command lines of the benchmarks: a wrong one ends with status 2 before anything is measured,
and --help ends with 0.
Usage: test_bench_options.py BUILD_FOLDER"""
import os
import subprocess
import sys

PROGRAMS = ["bench_agree", "bench_attention", "bench_draft", "bench_matmul", "bench_pair",
            "bench_prompt", "bench_step", "bench_team"]
WRONG_VALUES = [
    ["bench_matmul", "--rows", "257"],
    ["bench_matmul", "--weights", "int2"],
    ["bench_step", "--kernels", "mmx"],
    ["bench_attention", "--rows", "6,x"],
    ["bench_step", "--rows", "0"],
    ["bench_step", "--device", "tpu"],
    ["bench_prompt", "--tokens", "many"],
]


def run(build, name, *words):
    done = subprocess.run([os.path.join(build, "bench", name), *words], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
    return done.returncode, done.stderr.decode()


def main():
    build, failures = sys.argv[1], []
    wrong = [[name, word] for name in PROGRAMS for word in ("--no-such-option", "word")]
    for command in wrong + WRONG_VALUES:
        status, text = run(build, *command)
        if status != 2 or f"{command[0]}: " not in text:
            failures.append(f"{command}: status {status}, {text!r}")
    for name in PROGRAMS:
        status, text = run(build, name, "--help")
        if status or text:
            failures.append(f"{name} --help: status {status}, {text!r}")
    print("\n".join(failures) or f"{len(wrong) + len(WRONG_VALUES)} wrong command lines refused")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
