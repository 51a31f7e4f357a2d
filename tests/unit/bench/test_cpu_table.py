#!/usr/bin/env python3
# ctest: labels=quick,slow libs=bench timeout=120
"""bench/cpu_table understands what the benchmarks print, with the smallest settings that they have.
No figure is checked, only that each line is found and that shares and limits are what they should
be called.
Usage: test_cpu_table.py BUILD_FOLDER"""
import importlib.machinery
import importlib.util
import os
import sys
from types import SimpleNamespace

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(SOURCE, "bench"))
LOADER = importlib.machinery.SourceFileLoader("cpu_table", os.path.join(SOURCE, "bench/cpu_table"))
TABLE = importlib.util.module_from_spec(importlib.util.spec_from_loader("cpu_table", LOADER))
LOADER.exec_module(TABLE)
MODEL = "synthetic:qwen2.5-0.5b,seed=1,layers=1,vocab=512"
BOUNDS = ("reading", "multiplying")


def test_lines(bench):
    hot = bench.matches(TABLE.HOT_LINE, 2, "bench_matmul", "--hot", "-t", "1", "-r", "1,6",
                        "--rounds", "2", "-w", "int4")
    assert [line[0] for line in hot] == ["1", "6"], hot
    step = bench.matches(TABLE.STEP_LINE, 2, "bench_step", "-m", MODEL, "-t", "1", "-r", "2,256",
                         "-p", "2", "--weights", "int8")
    assert [line[0] for line in step] == ["2", "256"], step
    assert all(line[6] in BOUNDS and line[8] in BOUNDS for line in step), step
    prompt = bench.matches(TABLE.PROMPT_LINE, 1, "bench_prompt", "-m", MODEL, "-t", "1", "-n", "16",
                           "-r", "2")
    assert prompt[0][3] in BOUNDS, prompt
    attention = bench.matches(TABLE.ATTENTION_LINE, 2, "bench_attention", "-t", "1", "-r", "1,6",
                              "--positions", "64", "--rounds", "2")
    assert [line[0] for line in attention] == ["1", "6"], attention
    assert all(line[5] in BOUNDS for line in attention), attention


def test_variants(bench):
    assert bench.can_run("plain")
    assert not bench.can_run("mmx")


def test_machine_is_named(bench):
    text = TABLE.machine_text(os.path.dirname(bench.folder))
    assert "cores" in text and "\n" not in text, text


def test_missing_program(bench):
    bench.folder = "/nowhere"
    try:
        bench.can_run("plain")
    except TABLE.Failed as reason:
        assert "cannot run /nowhere/bench_matmul" in str(reason), reason
        return
    raise AssertionError("a program that is not there was run")


def main():
    args = SimpleNamespace(build=sys.argv[1], threads=1, model=MODEL, quick=True)
    for test in (test_lines, test_variants, test_machine_is_named, test_missing_program):
        test(TABLE.Bench(args))
        print(f"ok      {test.__name__}")


if __name__ == "__main__":
    main()
