#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=240
"""The scripts for machines with GPUs, without one: tests/gpu/many on emulated GPUs and
tests/support/fake_nccl.c, bench/served_rounds.py on the CPU, what tests/gpu/figures.py reads in the
output of real benchmarks, and how tests/gpu/run bounds and reports programs that pass, fail and
hang. Usage: test_gpu_scripts.py BUILD_FOLDER"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
sys.path[:0] = [os.path.join(SOURCE, "tests/support"), os.path.join(SOURCE, "tests/gpu")]
import figures
import rpc_python  # noqa: F401  starts this script anew with the Python that has grpcio
from cluster import bound, is_alive, slowness

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
FAKE = os.path.join(BUILD, "tests", "fake_nccl.so")
EMULATED = os.path.join(BUILD, "emulated")
TINY = "synthetic:tiny,seed=1"
# As bench_ceilings and tests/gpu/time_cuda_matmul.cpp print them.
CEILINGS = "H1: copy 3000 GB/s, read 3100 GB/s, bf16 700 TFLOP/s"
KERNEL = "qkv          1 rows       20.0 us     2500 GB/s  0.83 of a copy      2.5 Tflop/s"


def run(*command, path=None, timeout=120):
    environment = dict(os.environ)
    environment.pop("OUTRIDER_NCCL_LIBRARY", None)
    if path:
        environment["PATH"] = f"{path}:{environment['PATH']}"
    return subprocess.run([sys.executable, *command], cwd=SOURCE, env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=bound(timeout))


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="outrider-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def script(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{text}\n")
        os.chmod(path, 0o755)
        return path

    def gpus(self, *names):
        """A folder for PATH with an nvidia-smi that lists these."""
        lines = "\n".join(f"echo '{name}'" for name in names)
        return os.path.dirname(self.script("bin/nvidia-smi", lines or "exit 9"))


@unittest.skipUnless(os.path.exists(FAKE) and os.path.exists(EMULATED),
                     "this build has no NCCL or no emulated GPU")
class Many(Folder):
    def test_groups_on_emulated_gpus(self):
        table = os.path.join(self.folder, "table.json")
        done = run("tests/gpu/many", EMULATED, "--emulated", FAKE, "--shape", "tiny", "--ranks",
                   "1,2,4", "--tokens", "12", "--rows", "1,8", "--json", table)
        self.assertEqual(done.returncode, 0, done.stdout)
        with open(table, encoding="utf-8") as file:
            found = json.load(file)["figures"]
        for n_ranks in (2, 4):
            for killed in (n_ranks - 1, 0):
                self.assertTrue(any(line.startswith(f"T = {n_ranks}: rank {killed} was killed")
                                    for line in found), found)
            for what in ("step ms by rows", "sum us by rows"):
                lines = [line for line in found if line.startswith(f"T = {n_ranks}, {what}")]
                self.assertEqual(len(lines), 1, found)
                self.assertRegex(lines[0], r" 1: [\d.]+ \([\d.]+\), 8: [\d.]+ \([\d.]+\)$")
        self.assertTrue(done.stdout.endswith("4 passed, 0 failed, 0 skipped\n"), done.stdout)

    def test_text_that_differs_is_found(self):
        """With a client that changes each text."""
        client = self.script("changed/bin/outrider", f"""
[ "$1" = generate ] || exec {EMULATED}/bin/outrider "$@"
{EMULATED}/bin/outrider "$@" | sed 's/"token_ids": *\\[[0-9]*/"token_ids": ['$$'/'""")
        folder = os.path.dirname(os.path.dirname(client))
        for name in ("outrider-worker", "outrider-coordinator"):
            os.symlink(os.path.join(EMULATED, "bin", name), os.path.join(folder, "bin", name))
        done = run("tests/gpu/led_texts.py", folder, "--emulated", FAKE, "--shape", "tiny",
                   "--ranks", "1,2", "--tokens", "4")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("the text is not that of T = 1, plain", done.stdout)


class WithoutGpus(Folder):
    def test_many_says_what_is_missing(self):
        for names, sentence in (((), "nvidia-smi shows none here"),
                                (("H1",), "nvidia-smi shows one here (H1)")):
            done = run("tests/gpu/many", BUILD, path=self.gpus(*names))
            self.assertEqual(done.returncode, 77, done.stdout)
            self.assertIn(sentence, done.stdout)

    def test_run_says_what_is_missing(self):
        done = run("tests/gpu/run", "--built", BUILD, path=self.gpus())
        self.assertEqual((done.returncode, done.stdout),
                         (77, "no GPU on this machine: nothing was built or run\n"))
        done = run("tests/gpu/run", "--only", "tests,nothing")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no part 'nothing'", done.stdout)


class Run(Folder):
    def run_built(self, *flags, **options):
        table = os.path.join(self.folder, "table.json")
        done = run("tests/gpu/run", "--built", self.folder, "--json", table, *flags,
                   path=self.gpus("H1, 1.0, 80 GiB"), **options)
        with open(table, encoding="utf-8") as file:
            written = json.load(file)
        return done, {row["name"]: row for row in written["rows"]}, written["figures"]

    def test_what_hangs_costs_its_own_time_alone(self):
        self.script("tests/gpu/test_cuda_bad", "echo 2 checks, 1 failed; exit 1")
        self.script("tests/gpu/test_cuda_good", "echo 5 checks, 0 failed")
        child = os.path.join(self.folder, "child")
        self.script("tests/gpu/test_cuda_waits", f"sleep 1000 & echo $! >{child}; wait")
        self.script("tests/gpu/test_cuda_lacks", "echo skipped: no GPU; exit 77")
        self.script("bench/bench_ceilings", f"echo '{CEILINGS}'")
        self.script("tests/gpu/time_cuda_matmul", f"echo '{KERNEL}'")
        done, rows, found = self.run_built("--only", "operations,kernels", "--limit",
                                           f"{8 * slowness():.0f}")
        self.assertEqual(done.returncode, 1, done.stdout)
        verdicts = {name: row["verdict"] for name, row in rows.items()}
        self.assertEqual(verdicts["test_cuda_bad"], "FAILED")
        self.assertEqual(verdicts["test_cuda_good"], "ok")
        self.assertEqual(verdicts["test_cuda_waits"], "TIMEOUT")
        self.assertEqual(verdicts["test_cuda_lacks"], "skipped")
        self.assertEqual(rows["test_cuda_good"]["text"], "5 checks, 0 failed")
        with open(child, encoding="utf-8") as file:
            self.assertFalse(is_alive(file.read().strip()))
        # No time was left for it.
        self.assertEqual(verdicts["time_cuda_matmul bf16"], "NOT RUN")
        self.assertEqual(found, [])
        self.assertIn("2 checks, 1 failed\n", done.stdout)

    def test_figures_come_last(self):
        self.script("bench/bench_ceilings", f"echo '{CEILINGS}'")
        self.script("tests/gpu/time_cuda_matmul", f"echo '{KERNEL}'")
        done, rows, found = self.run_built("--only", "kernels,served")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(rows["served"]["verdict"], "skipped")
        line = "matmul fp8 qkv, us by rows (2500 GB/s to 2.5 Tflop/s): 1: 20.0"
        self.assertIn(line, found)
        self.assertIn(line, done.stdout.partition("\nFigures:\n")[2])


class Benchmarks(unittest.TestCase):
    """Figures that are read in the output of benchmarks, which run on the CPU here."""

    def output(self, name, *flags):
        return subprocess.run([os.path.join(BUILD, "bench", name), "--threads", "1", *flags],
                              check=True, stdout=subprocess.PIPE, text=True,
                              timeout=bound(60)).stdout

    def test_steps(self):
        ceilings = figures.Ceilings()
        ceilings.figures(CEILINGS)
        for flags in ((), ("--lanes", "4")):
            output = self.output("bench_step", "--model", TINY, "--rows", "1,4", "--pairs", "2",
                                 "--slice", "5", "--context", "20", *flags)
            found = ceilings.steps("bf16")(output)
            self.assertRegex(found[0], r"^step, bf16: 1 row [\d.]+ ms, \d+ GB/s, [\d.]+ of a copy; "
                                       r"0 MiB loaded in [\d.]+ s$")
            self.assertRegex(found[1], r"over 1 row  1: [\d.]+, 4: [\d.]+$")

    def test_prompts(self):
        found = figures.Ceilings().prompts(self.output("bench_prompt", "--model", TINY, "--tokens",
                                                       "32,64", "--repeats", "2"))
        self.assertEqual([line.split(":")[0] for line in found], ["prompt of 32", "prompt of 64"])

    def test_pairs(self):
        model = TINY + ",agree=0.8"
        found = figures.pairs("pair")(self.output("bench_pair", "--target", model, "--draft",
                                                  model + ",draft=1", "--k", "2,4", "--tokens",
                                                  "20", "--pairs", "2"))
        self.assertEqual([line.split()[:3] for line in found], [["pair:", "K", "2"],
                                                                ["pair:", "K", "4"]])

    def test_served_texts_are_those_generated_alone(self):
        done = run("bench/served_rounds.py", BUILD, "--shape", "tiny", "--device", "cpu",
                   "--clients", "1,6", "--prompt-tokens", "24", "--tokens", "16", "--check-s", "60")
        self.assertEqual(done.returncode, 0, done.stdout)
        # Four requests of each arm with one client, twelve with six.
        self.assertIn("texts: 32 of 32 generated alone, 0 of them differ", done.stdout)
        self.assertRegex(done.stdout, r"\n6 clients: plain [\d.]+ tokens/s, planned [\d.]+ ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
