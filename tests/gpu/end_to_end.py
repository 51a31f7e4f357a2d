#!/usr/bin/env python3
"""Real clusters whose target or draft runs on CUDA: their texts must keep all promises.

Usage: end_to_end.py BUILD_FOLDER [TOKENS]        BUILD_FOLDER/bin holds the three programs

tests/emulate runs it with programs whose GPU is emulated, tests/gpu/run on a real one. If there is
more than one rank, all share a GPU and sum over MPI through the host; programs that were packed
elsewhere (tests/gpu/pack), or a machine without mpirun, leave that out.
"""
import json
import os
import shutil
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import Cluster, ClusterError  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
TOKENS = sys.argv.pop(1) if len(sys.argv) > 1 else "12"
CUDA = ("--device", "cuda:0")
HAS_MPIRUN = shutil.which("mpirun") and not os.path.exists(os.path.join(BUILD, "packed"))
IS_EMULATED = os.path.basename(BUILD) == "emulated"
PROMPT = "Once upon a time there was"


def generate(cluster, *flags):
    done = cluster.outrider("generate", PROMPT, "-n", TOKENS, "--json", *flags, timeout=240)
    if done.returncode:
        raise ClusterError(f"generate {flags} ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


class CudaCluster(unittest.TestCase):
    def test_speculation_keeps_the_text(self):
        texts = {}
        shapes = [(1, CUDA), (1, ("--device", "cpu")), (2, ("--device", "cpu"))]
        for n_ranks, draft in shapes if HAS_MPIRUN else shapes[:2]:
            with Cluster(BUILD, n_ranks=n_ranks, worker_flags=CUDA,
                         coordinator_flags=draft) as cluster:
                if n_ranks == 1:
                    described = cluster.outrider("describe").stdout
                    self.assertIn("cuda-sm", described)
                for rule in (("--temperature", "0"), ("--temperature", "0.8", "--seed", "5")):
                    for k in ("0", "4"):
                        done = generate(cluster, "-K", k, *rule)
                        same = texts.setdefault(rule, done["token_ids"])
                        self.assertEqual(same, done["token_ids"],
                                         f"T = {n_ranks}, draft {draft}, K = {k}, {rule}")
        self.assertNotEqual(*texts.values())

    def test_rejection_runs_on_compact_rows(self):
        with Cluster(BUILD, worker_flags=CUDA, coordinator_flags=CUDA) as cluster:
            done = generate(cluster, "-K", "3", "--temperature", "1", "--rule", "rejection")
            self.assertEqual(len(done["token_ids"]), int(TOKENS))
            scored = cluster.outrider("score", PROMPT, "--json", timeout=240)
            self.assertEqual(scored.returncode, 0, scored.stderr)

    def test_kv_fills_a_share_of_the_memory(self):
        """Ranks that share a GPU would each take what both have left, so on a real one it is one
        rank; an emulated GPU is that of its process."""
        flags = (*CUDA, "--gpu-memory", "0.2")
        for n_ranks in (1, 2) if IS_EMULATED else (1,):
            with Cluster(BUILD, n_ranks=n_ranks, worker_flags=flags) as cluster:
                described = json.loads(cluster.outrider("describe", "--json").stdout)
                self.assertGreater(described["n_kv_blocks"], 16384 // 16, described)
                self.assertEqual(*[generate(cluster, "-K", k, "--temperature", "0")["token_ids"]
                                   for k in ("0", "4")])

    @unittest.skipUnless(IS_EMULATED, "the memory of a real GPU is what it is")
    def test_a_share_that_leaves_nothing_for_kv_is_refused(self):
        os.environ["EMULATED_MEMORY_MIB"] = "100"
        cluster = Cluster(BUILD, n_ranks=2, worker_flags=(*CUDA, "--gpu-memory", "0.15"))
        try:
            cluster.start_workers()
            self.assertNotEqual(cluster.workers.wait(60), 0)
            self.assertIn("--gpu-memory 0.15: weights and buffers leave room for a KV cache of 0",
                          cluster.workers.log())
        finally:
            del os.environ["EMULATED_MEMORY_MIB"]
            cluster.stop()

    @unittest.skipUnless("OUTRIDER_NCCL_LIBRARY" in os.environ, "OUTRIDER_NCCL_LIBRARY names none")
    def test_a_group_of_one_rank_over_nccl(self):
        """As many ranks as one GPU can have: NCCL starts, and the group ends with it."""
        flags = (*CUDA, "--collectives", "nccl")
        with Cluster(BUILD, worker_flags=flags, coordinator_flags=CUDA) as cluster:
            texts = [generate(cluster, "-K", k, "--temperature", "0")["token_ids"]
                     for k in ("0", "4")]
            self.assertEqual(*texts)
            self.assertEqual(cluster.stop()["workers"], 0)

    def test_a_gpu_that_is_not_there_is_named(self):
        cluster = Cluster(BUILD, worker_flags=("--device", "cuda:7"))
        try:
            cluster.start_workers()
            self.assertNotEqual(cluster.workers.wait(30), 0)
            self.assertIn("no GPU 7", cluster.workers.log())
        finally:
            cluster.stop()


if __name__ == "__main__":
    unittest.main()
