#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=180
"""Workers that meet over NCCL, with tests/support/fake_nccl.c in place of libnccl: two without
mpirun, by the id in rank 0's Describe, and two under mpirun. Without mpirun they run on emulated
GPUs (tests/emulate), whose streams do their work at once, because the fake knows no streams.
Skipped (77) where the build has no NCCL or no emulation."""
import json
import os
import signal
import socket
import sys
import time
import unittest
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import parallel_cases
from cluster import Cluster, ClusterError, free_ports, wait_until
from http2_raw import call
from led_cluster import EMULATED_FLAGS, LedCluster, emulated_environment
from skips import skip

BUILD = sys.argv[1] if len(sys.argv) > 1 else ""
FAKE = os.path.join(BUILD, "tests", "fake_nccl.so")
EMULATED = os.path.join(BUILD, "emulated")
PATIENCE = 20


class EmulatedCluster(LedCluster):
    def __init__(self, **more):
        super().__init__(EMULATED, rank_flags=EMULATED_FLAGS,
                         rank_environment=emulated_environment(FAKE), **more)

    def start_lws_rank(self, rank, port, metrics):
        """As in the pods of a LeaderWorkerSet: each rank has an address of its own."""
        place = {"LWS_WORKER_INDEX": str(rank), "LWS_GROUP_SIZE": "2",
                 "LWS_LEADER_ADDRESS": "127.0.0.1"}
        host = f"127.0.0.{rank + 1}"
        command = [os.path.join(self.bin, "outrider-worker"), "--model", self.target, "--lws",
                   "--listen", f"{host}:{port}", "--metrics", f"{host}:{metrics}",
                   "--drain-timeout", "2", *EMULATED_FLAGS]
        return self.start_program(f"rank{rank}", command, place)


class Led(unittest.TestCase):
    def cluster(self, **more):
        cluster = EmulatedCluster(**more)
        self.addCleanup(cluster._leave, False)
        return cluster

    def stay_and_leave(self, address):
        """As a stranger: no rank's pass comes with the call."""
        is_unix = address.startswith("unix:")
        with socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET) as peer:
            host, _, port = address.rpartition(":")
            peer.connect(address[5:] if is_unix else (host, int(port)))
            peer.settimeout(PATIENCE)
            peer.sendall(call("/outrider.target.v1.Target/Stay", b""))
            answer = b""
            while b"other%20ranks" not in answer and b"other ranks" not in answer:
                more = peer.recv(65536)
                self.assertTrue(more, answer)
                answer += more
        time.sleep(0.5)

    def wait_log(self, program, text):
        def look():
            if text in program.log():
                return True
            if not program.is_alive():
                raise ClusterError(f"{program.name} ended: {program.log()}")
            return False

        wait_until(look, PATIENCE, f"{program.name} logs '{text}'")

    def check_ends(self, program, *texts):
        is_final = "reason=unsupported" in texts # no further start would help
        self.assertEqual(program.wait(PATIENCE), 78 if is_final else 1)
        for text in texts:
            self.assertIn(text, program.log())

    def test_two_ranks_meet_in_either_order(self):
        for first, transport in ((0, "unix"), (1, "tcp")):
            with self.subTest(first=first):
                cluster = self.cluster(transport=transport)
                early = cluster.start_rank(first)
                time.sleep(1)
                self.assertNotIn(" ready ", early.log())
                late = cluster.start_rank(1 - first)
                for program in (early, late):
                    self.wait_log(program, " ready ")
                third = cluster.start_rank(1, "--join-timeout", "1", log="third")
                self.check_ends(third, "waits for no more ranks: its group is complete")
                self.stay_and_leave(cluster.worker_addresses[0])
                for program in (early, late):
                    self.assertTrue(program.is_alive())
                cluster.stop()

    def test_coordinator_waits_for_the_group_and_the_text_is_that_of_one_rank(self):
        cluster = self.cluster()
        lead = cluster.start_rank(0)
        cluster.start_coordinator()
        wait_until(lambda: "still starting" in cluster.outrider("describe").stdout +
                   cluster.outrider("describe").stderr + cluster.coordinator.log(), PATIENCE,
                   "the coordinator says that the group is starting")
        cluster.start_rank(1)
        self.wait_log(lead, " ready ")
        wait_until(cluster.is_serving, PATIENCE, "the cluster serves")
        flags = ("generate", "Once upon a time", "-n", "6", "--json", "--temperature", "0",
                 "-K", "3")
        both = cluster.outrider(*flags)
        self.assertEqual(both.returncode, 0, both.stderr)
        with Cluster(EMULATED, worker_flags=("--device", "cuda:0")) as alone:
            one = alone.outrider(*flags)
        self.assertEqual(json.loads(one.stdout)["token_ids"], json.loads(both.stdout)["token_ids"])

    def test_a_rank_that_dies_takes_the_idle_group_along_and_a_new_one_forms(self):
        cluster = self.cluster()
        for killed in (1, 0):
            ranks = [cluster.start_rank(0, log=f"lead{killed}"),
                     cluster.start_rank(1, log=f"other{killed}")]
            for program in ranks:
                self.wait_log(program, " ready ")
            ranks[killed].process.kill()
            self.assertEqual(ranks[1 - killed].wait(5), 71)
            self.assertIn("rank_lost" if killed else "lead_lost", ranks[1 - killed].log())
        last = [cluster.start_rank(0, log="lead"), cluster.start_rank(1, log="other")]
        for program in last:
            self.wait_log(program, " ready ")
        cluster.start_coordinator()
        wait_until(cluster.is_serving, PATIENCE, "the new group serves")

    def test_ranks_of_a_leader_worker_set_have_one_port_and_drain_together(self):
        cluster = self.cluster(transport="tcp")
        port, metrics = free_ports(2), free_ports(1)
        ranks = [cluster.start_lws_rank(rank, port, metrics) for rank in (1, 0)]
        for program in ranks:
            self.wait_log(program, " ready ")
        for rank in range(2):
            url = f"http://127.0.0.{rank + 1}:{metrics}"
            with urllib.request.urlopen(f"{url}/ready", timeout=10) as answer:
                self.assertEqual(answer.read(), b"ready\n")
            with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
                self.assertIn(f'rank="{rank}",ranks="2"', answer.read().decode())
        cluster.worker_addresses = [f"127.0.0.{rank + 1}:{port}" for rank in range(2)]
        cluster.start_coordinator()
        wait_until(cluster.is_serving, PATIENCE, "the cluster serves")
        done = cluster.outrider("generate", "Once upon a time", "-n", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        for program in ranks:
            program.process.send_signal(signal.SIGTERM)
        for program in ranks:
            self.assertEqual(program.wait(PATIENCE), 0, program.log())
            self.assertNotIn("_lost", program.log())

    def test_ranks_on_the_cpu_are_refused(self):
        cluster = self.cluster()
        self.check_ends(cluster.start_rank(0, "--device", "cpu"), "--ranks 2 on the CPU")

    def test_lead_left_alone_ends_at_its_deadline(self):
        cluster = self.cluster()
        self.check_ends(cluster.start_rank(0, "--join-timeout", "1"),
                        "has not ended on rank 0 of 2 after 1000 ms", "reason=timeout")

    def test_rank_left_alone_ends_at_its_deadline(self):
        cluster = self.cluster()
        self.check_ends(cluster.start_rank(1, "--join-timeout", "1"),
                        "has not found its group within 1 s", "reason=timeout")

    def test_rank_that_differs_is_refused_and_the_right_one_is_taken(self):
        cluster = self.cluster()
        lead = cluster.start_rank(0)
        self.check_ends(cluster.start_rank(1, "--slots", "5", log="other"),
                        "rank 1 has another --slots than rank 0 at unix:")
        cluster.start_rank(1)
        self.wait_log(lead, " ready ")

    def test_missing_library_and_odd_flags_are_refused(self):
        cluster = self.cluster()
        missing = cluster.start_rank(0, environment={"OUTRIDER_NCCL_LIBRARY": "/no/libnccl.so"})
        self.check_ends(missing, "cannot load NCCL (/no/libnccl.so", "reason=unsupported")
        self.check_ends(cluster.start_rank(1, "--collectives", "host", log="host"),
                        "--collectives host: 2 ranks without mpirun")
        self.check_ends(cluster.start_rank(2, log="two"), "--rank 2 of --ranks 2")


class OverMpi(unittest.TestCase):
    def generate(self, **more):
        with Cluster(BUILD, **more) as cluster:
            done = cluster.outrider("generate", "Once upon a time", "-n", "24", "--json",
                                    "--temperature", "0")
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout, cluster.workers.log()

    def test_text_over_mpi_with_nccl_beside_it_is_the_text_of_one_rank(self):
        alone, log = self.generate()
        self.assertIn("ranks=1 collectives=single", log)
        both, log = self.generate(n_ranks=2, worker_flags=["--collectives", "nccl"],
                           environment={"OUTRIDER_NCCL_LIBRARY": FAKE})
        self.assertIn("rank=1 ranks=2 collectives=nccl", log)
        self.assertEqual(json.loads(alone)["text"], json.loads(both)["text"])

    def test_missing_library_ends_the_group(self):
        cluster = Cluster(BUILD, n_ranks=2, worker_flags=["--collectives", "nccl"],
                          environment={"OUTRIDER_NCCL_LIBRARY": "/no/libnccl.so"})
        self.addCleanup(cluster._leave, False)
        cluster.start_workers()
        self.assertNotEqual(cluster.workers.wait(PATIENCE), 0)
        self.assertIn("cannot load NCCL (/no/libnccl.so", cluster.workers.log())


if __name__ == "__main__":
    if not os.path.exists(FAKE) or not os.path.exists(EMULATED):
        skip("this build has no NCCL or no emulated GPU")
    parallel_cases.main(verbosity=2)
