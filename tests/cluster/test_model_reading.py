#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=180
"""A rank reads only its slices of a model's files, and the ranks of one host read them once:
measured by the pages that a load brings into memory, and by what the kernel read for each process.
A rank that has loaded them keeps no page of them beside what it has packed.

Usage: test_model_reading.py BUILD_FOLDER
"""
import ctypes
import mmap
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import Cluster, is_sanitized
from skips import SKIPPED

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
# Rows of 4 and 16 KiB, as models have them, in one layer.
DIM, FFN, VOCAB = 2048, 8192, 4096
MODEL = f"synthetic:llama-3.2-1b,layers=1,vocab={VOCAB},seed=1"
KV_DIM = 8 * 64
PAGE = mmap.PAGESIZE
HELD = 1.15    # of what is packed over the files
OWN = 64 << 20 # a rank without a model: libraries, tokenizer, arenas
SLACK = 1.05 # norms, samples that are compared, large pages of the page cache
LOADS = 5

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                      ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


def resident_bytes(path):
    """Returns how many bytes of a file are in the page cache."""
    size = os.path.getsize(path)
    flags = ctypes.create_string_buffer((size + PAGE - 1) // PAGE)
    fd = os.open(path, os.O_RDONLY)
    at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    os.close(fd)
    if libc.mincore(at, size, flags):
        raise OSError(ctypes.get_errno(), "mincore")
    libc.munmap(at, size)
    return sum(flag & 1 for flag in flags.raw) * PAGE


def drop(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def expected_bytes(n_ranks):
    """Returns the bytes that a rank has to read: the embedding, which is the head too; its rows of
    the matrices that are cut by rows; its part of each row of those that are cut by columns, in
    whole pages."""
    embedding = VOCAB * DIM
    by_rows = (DIM + 2 * KV_DIM + 2 * FFN) * DIM // n_ranks
    by_columns = sum(rows * min(2 * width, 2 * width // n_ranks + PAGE)
                     for rows, width in ((DIM, DIM), (DIM, FFN)))
    return 2 * (embedding + by_rows) + by_columns


class Reading(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(dir=BUILD)
        cls.model = os.path.join(cls.folder.name, "model")
        subprocess.run([os.path.join(BUILD, "bin", "outrider"), "export", MODEL, cls.model],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.files = [os.path.join(cls.model, name) for name in os.listdir(cls.model)
                     if name.endswith(".safetensors")]
        cls.size = sum(map(os.path.getsize, cls.files))
        cls.drop()
        if cls.resident() > cls.size // 10:
            print("SKIPPED: the file system keeps all files in memory, so that no reading can be "
                  "measured", flush=True)
            cls.folder.cleanup()
            os._exit(SKIPPED)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def drop(cls):
        for path in cls.files:
            drop(path)

    @classmethod
    def resident(cls):
        return sum(map(resident_bytes, cls.files))

    def load(self, rank, n_ranks):
        """The bytes that the rank holds, and those of the files that are in memory then. Pages can
        be gone again by then: 1.1 of 138 MB, once in a full run beside other tests. A rank cannot
        hold what it has not read, so it is measured again."""
        program = os.path.join(BUILD, "tests", "prog_weights_read")
        for _ in range(LOADS):
            self.drop()
            done = subprocess.run([program, self.model, str(rank), str(n_ranks)],
                                  capture_output=True, encoding="utf-8")
            self.assertEqual(done.returncode, 0, done.stderr)
            weights, read = int(re.search(r"weights=(\d+)", done.stdout)[1]), self.resident()
            if read >= weights:
                break
        return weights, read

    def test_a_rank_reads_its_slices_and_the_embedding(self):
        for n_ranks in (1, 2, 4):
            for rank in {0, n_ranks - 1}:
                with self.subTest(n_ranks=n_ranks, rank=rank):
                    weights, read = self.load(rank, n_ranks)
                    print(f"T = {n_ranks}, rank {rank}: read {read / 1e6:.1f} of "
                          f"{self.size / 1e6:.1f} MB ({read / self.size:.0%}), holds "
                          f"{weights / 1e6:.1f} MB", flush=True)
                    self.assertLessEqual(read, SLACK * expected_bytes(n_ranks))
                    self.assertGreaterEqual(read, weights)

    def test_two_ranks_of_one_host_read_the_files_once(self):
        self.drop()
        with Cluster(BUILD, n_ranks=2, target=self.model, draft=None) as cluster:
            read = [self.read_bytes(pid) for pid in cluster.rank_pids().values()]
        print(f"two ranks: read {' and '.join(f'{n / 1e6:.1f}' for n in read)} of "
              f"{self.size / 1e6:.1f} MB from the device", flush=True)
        self.assertLessEqual(sum(read), SLACK * self.size + (16 << 20)) # the programs too

    def test_a_rank_keeps_no_pages_of_the_files(self):
        if is_sanitized(BUILD):
            self.skipTest("sanitizers take memory of their own")
        with Cluster(BUILD, target=self.model, draft=None,
                     coordinator_flags=["--calibrate", "0"]) as cluster:
            with open(f"/proc/{cluster.workers.pid}/status", encoding="ascii") as file:
                held = int(re.search(r"^VmRSS:\s+(\d+) kB", file.read(), re.M)[1]) << 10
        print(f"resident: {held / 1e6:.1f} MB for files of {self.size / 1e6:.1f} MB", flush=True)
        self.assertLessEqual(held, HELD * self.size + OWN)

    @staticmethod
    def read_bytes(pid):
        with open(f"/proc/{pid}/io", encoding="ascii") as file:
            return int(re.search(r"^read_bytes: (\d+)", file.read(), re.M)[1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
