#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=300
"""Ranks with the same weights serve, and report one fingerprint for any number of ranks; ranks with
different bytes end with a sentence before they serve.

Usage: test_weights.py BUILD_FOLDER
"""
import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import MPI_ENVIRONMENT, MPI_FLAGS, TALES, Program, descendants, is_alive, wait_until
from fault_util import PATIENCE, FaultTest, World, main, program
from safetensors_file import read_header

TARGET = os.path.join(TALES, "target")
SAMPLES, SAMPLE_BYTES = 8, 256
REFUSAL = "is not the same on ranks"


def tensor_range(path, name):
    """First and last + 1 byte of a tensor in a safetensors file."""
    header, start = read_header(path)
    return tuple(start + at for at in header[name]["data_offsets"])


def zero_unsampled(path, name):
    """Writes zeros over two of the seven gaps between the samples that are compared before the
    weights are loaded: 28 % of the tensor, in its first half, which rank 0 reads."""
    first, end = tensor_range(path, name)
    gap = (end - first - SAMPLE_BYTES) // (SAMPLES - 1)
    with open(path, "r+b") as file:
        for i in range(2):
            file.seek(first + i * gap + SAMPLE_BYTES)
            file.write(bytes(gap - SAMPLE_BYTES))


class TwoCopies(World):
    """Two ranks, each with a folder of its own."""

    def __init__(self, folders, worker_flags=(), **options):
        super().__init__(n_ranks=2, worker_flags=worker_flags, **options)
        self.folders = folders

    def start_workers(self):
        command = ["mpirun", *MPI_FLAGS]
        for i, folder in enumerate(self.folders):
            command += [":"] if i else []
            command += ["-np", "1", program("outrider-worker"), "--model", folder, "--listen",
                        self.listen, *self.worker_flags]
        self.workers = Program("workers", command, self._log_path("workers"), MPI_ENVIRONMENT)


def fingerprint(world):
    done = world.outrider("describe", "--json")
    if done.returncode:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)["model_fingerprint"]


class Weights(FaultTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="outrider-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.copies = [os.path.join(self.folder, name) for name in ("a", "b")]
        for copy in self.copies:
            shutil.copytree(TARGET, copy)

    def damage(self, tensor):
        zero_unsampled(os.path.join(self.copies[1], "model.safetensors"), tensor)

    def check_ends(self, world, *words):
        """The group ends by itself, with the sentence from both ranks, and leaves nobody."""
        world.start_workers()
        pids = set()

        def is_gone():
            pids.update(descendants(world.workers.pid))
            return not world.workers.is_alive()

        wait_until(is_gone, 20 * PATIENCE, "the group ends")
        self.assertNotEqual(world.workers.wait(1), 0)
        self.assertGreaterEqual(len(pids), 2)
        wait_until(lambda: not any(is_alive(pid) for pid in pids), 5 * PATIENCE, "nobody is left")
        text = world.workers.log()
        failures = [line for line in text.splitlines() if " failed reason=" in line]
        self.assertTrue(failures, text)
        for line in failures:
            for word in (REFUSAL, "start all ranks with equal ones", *words):
                self.assertIn(word, line)
        self.assertNotIn(" ready ", text)
        self.check_sanitizers(text)

    def test_ranks_and_copies_do_not_count(self):
        found = set()
        for world in (World(), World(n_ranks=2), TwoCopies(self.copies)):
            with world:
                found.add(fingerprint(world))
                self.check_logs(world)
        self.assertEqual(len(found), 1, found)

    def test_another_byte_is_another_fingerprint(self):
        with World(draft=None) as world:
            intact = fingerprint(world)
        self.damage("model.layers.4.mlp.gate_proj.weight")
        with World(draft=None, target=self.copies[1]) as world:
            self.assertNotEqual(fingerprint(world), intact)

    def test_damaged_copy_of_a_matrix_is_refused(self):
        self.damage("model.layers.4.mlp.gate_proj.weight")
        with_damage = TwoCopies(self.copies, worker_flags=["--pack-cache", self.folder + "/packed"])
        try:
            # The second time rank 0 and rank 1 find their digests in the cache.
            for _ in range(2):
                self.check_ends(with_damage, "model.layers.4.mlp.gate_proj.weight",
                                "ranks 0 and 1")
        finally:
            with_damage.leave()

    def test_damaged_embedding_is_refused(self):
        self.damage("model.embed_tokens.weight")
        world = TwoCopies(self.copies)
        try:
            self.check_ends(world, "model.embed_tokens.weight", "ranks 1 and 0")
        finally:
            world.leave()


if __name__ == "__main__":
    main()
