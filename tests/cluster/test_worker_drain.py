#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=120
"""SIGTERM for ranks that a coordinator uses: they tell it through their health, take no other
coordinator, go on answering steps, and end when it has let go, or when --drain-timeout is over.
Ranks that nobody uses end at once. In most tests the coordinator is a few lines of Python that hold
a Run stream."""
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import parallel_cases
from rpc_python import OPTIONS, fields, grpc
from cluster import Cluster, bound, wait_until
from far_cluster import FarRanks

BUILD = sys.argv[1] if len(sys.argv) > 1 else "build/release"
TARGET = "/outrider.target.v1.Target/"
KEY = "0123456789abcdef" * 4
HEALTH = "/grpc.health.v1.Health/"
SERVING, NOT_SERVING = 1, 2
IS_BUSY, FINGERPRINT = 26, 20


class FarCluster(FarRanks, Cluster):
    """150 tokens without guesses take 6 s or more."""
    delay_s = 0.02


class Holder:
    """Uses a rank as a coordinator does, but for steps: a Run stream, and a watch of its health."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address, options=OPTIONS)
        self.states = []
        self.requests = queue.Queue()
        self.run = self.channel.stream_stream(TARGET + "Run")(iter(self.requests.get, None))
        self.watch = self.channel.unary_stream(HEALTH + "Watch")(b"")
        self.watcher = threading.Thread(target=self._watch)
        self.watcher.start()

    def _watch(self):
        try:
            for message in self.watch:
                self.states += fields(message).get(1, [0])
        except grpc.RpcError:
            pass

    def describe(self):
        return fields(self.channel.unary_unary(TARGET + "Describe")(b"", timeout=10))

    def is_busy(self):
        return self.describe().get(IS_BUSY) == [1]

    def let_go(self):
        self.requests.put(None)

    def close(self):
        self.run.cancel()
        self.watch.cancel()
        self.watcher.join()
        self.channel.close()


class WorkerDrain(unittest.TestCase):
    def ranks(self, n_ranks=1, seconds=30, hold=True):
        """Ranks, each held by a substitute of a coordinator."""
        world = Cluster(BUILD, n_ranks=n_ranks, transport="tcp", target="synthetic:tiny,seed=1",
                        worker_flags=["--drain-timeout", str(seconds)])
        self.addCleanup(world._leave, False)
        world.start_workers()
        for address in world.worker_addresses:
            wait_until(lambda a=address: world.is_serving(a), 30, "the ranks serve")
        holders = [Holder(address) for address in world.worker_addresses] if hold else []
        for holder in holders:
            self.addCleanup(holder.close)
            wait_until(holder.is_busy, 10, "the rank is used")
        return world, holders

    def told(self, holder):
        wait_until(lambda: holder.states[-1:] == [NOT_SERVING], 10, "the coordinator is told")
        self.assertEqual(holder.states, [SERVING, NOT_SERVING])

    def test_the_rank_ends_when_its_coordinator_lets_go(self):
        world, [holder] = self.ranks()
        before = holder.describe()
        world.workers.process.send_signal(signal.SIGTERM)
        self.told(holder)
        self.assertTrue(holder.is_busy())
        self.assertEqual(holder.describe(), before) # the model is the same one
        self.assertEqual(world.outrider("health", "-a", world.listen).stdout, "not serving\n")
        self.assertEqual(world.outrider("health", "-a", world.listen, "--service", "live").stdout,
                         "serving\n")
        late = Holder(world.listen)
        self.addCleanup(late.close)
        with self.assertRaises(grpc.RpcError) as refused:
            next(late.run)
        self.assertEqual(refused.exception.code(), grpc.StatusCode.UNAVAILABLE)
        time.sleep(1)
        self.assertTrue(world.workers.is_alive())
        holder.let_go()
        self.assertEqual(world.workers.wait(10), 0)

    def test_a_coordinator_that_is_gone_has_let_go(self):
        world, [holder] = self.ranks()
        world.workers.process.send_signal(signal.SIGTERM)
        self.told(holder)
        holder.close()
        self.assertEqual(world.workers.wait(10), 0)

    def test_a_coordinator_that_does_not_let_go(self):
        world, [holder] = self.ranks(seconds=2)
        began = time.monotonic()
        world.workers.process.send_signal(signal.SIGTERM)
        self.told(holder)
        self.assertEqual(world.workers.wait(10), 0)
        self.assertGreater(time.monotonic() - began, 1.9)
        self.assertIn("drain_timeout", world.workers.log())

    def test_a_second_signal_ends_it_at_once(self):
        world, [holder] = self.ranks()
        world.workers.process.send_signal(signal.SIGTERM)
        self.told(holder)
        world.workers.process.send_signal(signal.SIGTERM)
        self.assertEqual(world.workers.wait(10), 128 + signal.SIGTERM)

    def test_a_rank_that_nobody_uses_ends_at_once(self):
        world, _ = self.ranks(hold=False)
        world.workers.process.send_signal(signal.SIGTERM)
        self.assertEqual(world.workers.wait(10), 0)

    def test_without_time_to_drain(self):
        world, _ = self.ranks(seconds=0)
        world.workers.process.send_signal(signal.SIGTERM)
        self.assertEqual(world.workers.wait(10), 0)

    def test_a_stranger_who_calls_stay_ends_nothing(self):
        """No rank of one mpirun holds such a stream, so its end says nothing."""
        world, holders = self.ranks(n_ranks=2)
        before = world.rank_pids()
        for address in world.worker_addresses:
            with grpc.insecure_channel(address, options=OPTIONS) as channel:
                for metadata in ((), (("outrider-member", "0" * 32),)):
                    stay = channel.stream_stream(TARGET + "Stay")
                    with self.assertRaises(grpc.RpcError) as refused:
                        next(stay(iter(queue.Queue().get, None), timeout=20, metadata=metadata))
                    self.assertEqual(refused.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
                    self.assertIn("mpirun watches them", refused.exception.details())
                    stay(iter(()), timeout=20).cancel()
        time.sleep(1)
        self.assertEqual(world.rank_pids(), before)
        self.assertTrue(all(holder.is_busy() for holder in holders))
        self.assertNotIn("_lost", world.workers.log())

    def test_a_group_key_keeps_strangers_out(self):
        """Callers without the key cannot even ask what the ranks are, or be in the way of a
        coordinator that has it."""
        with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
            path = os.path.join(folder, "key")
            with open(path, "w", encoding="ascii") as file:
                os.chmod(path, 0o600)
                file.write(KEY + "\n")
            world = Cluster(BUILD, n_ranks=2, transport="tcp", worker_flags=["--group-key", path],
                            environment={"OUTRIDER_GROUP_KEY": KEY})
            self.addCleanup(world._leave, False)
            world.start_workers()
            for address in world.worker_addresses:
                wait_until(lambda a=address: world.is_serving(a), 30, "the ranks serve")
            for metadata in ((), (("authorization", "Bearer " + KEY[:-1] + "x"),)):
                with grpc.insecure_channel(world.worker_addresses[0], options=OPTIONS) as channel:
                    for method in ("Run", "Stay", "Describe"):
                        call = channel.stream_stream(TARGET + method)
                        with self.assertRaises(grpc.RpcError) as refused:
                            next(call(iter(queue.Queue().get, None), timeout=20,
                                      metadata=metadata))
                        self.assertEqual(refused.exception.code(),
                                         grpc.StatusCode.UNAUTHENTICATED)
                        self.assertIn("--group-key", refused.exception.details())
            strangers = [Holder(address) for address in world.worker_addresses]
            for stranger in strangers:
                self.addCleanup(stranger.close)
            world.start_coordinator()
            world.wait_serving(30)
            done = world.outrider("generate", "Once upon a time", "-n", "4")
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_all_ranks_of_a_group_drain(self):
        world, holders = self.ranks(n_ranks=2)
        for pid in world.rank_pids().values():
            os.kill(pid, signal.SIGTERM)
        for holder in holders:
            self.told(holder)
        time.sleep(0.7) # longer than ranks without a stream get
        self.assertEqual(len(world.rank_pids()), 2)
        for holder in holders:
            holder.let_go()
        self.assertEqual(world.workers.wait(10), 0)

    def test_one_rank_of_a_group_ends_all_of_it(self):
        """Once the coordinator has let go: MPI_Finalize waits in vain for the other rank, so that
        the grace time ends the rank, and mpirun the rest."""
        world, holders = self.ranks(n_ranks=2)
        os.kill(world.rank_pids()[1], signal.SIGTERM)
        self.told(holders[1])
        self.assertEqual(holders[0].states, [SERVING])
        for holder in holders:
            holder.let_go()
        self.assertNotEqual(world.workers.wait(10), 0)

    def test_a_text_that_runs_is_finished(self):
        """With a real coordinator, whose steps are answered meanwhile."""
        with FarCluster(BUILD, worker_flags=["--drain-timeout", "60"]) as world:
            ask = ("generate", "Once upon a time", "-n", "150", "--ignore-eos", "--temperature",
                   "0", "-K", "0")
            alone = world.outrider(*ask)
            run = world.popen(*ask, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            first = os.read(run.stdout.fileno(), 20)
            world.workers.process.send_signal(signal.SIGTERM)
            wait_until(lambda: not world.is_serving(world.listen), 10, "the rank says so")
            self.assertIsNone(run.poll(), "the text had ended before")
            rest, said = run.communicate(timeout=bound(60))
            self.assertEqual((run.returncode, (first + rest).decode()), (0, alone.stdout),
                             said)
            self.assertEqual(world.workers.wait(30), 0)


if __name__ == "__main__":
    parallel_cases.main(verbosity=2)
