#!/usr/bin/env python3
# ctest: labels=full libs=client timeout=900
"""Processes that die, hang or are told to stop in mid-stream: who notices, by what, which requests
fail, and that the cluster serves the right text again afterwards."""
import json
import os
import re
import signal
import time
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import descendants, is_alive, slowness, wait_until
from fault_util import (LONG, PATIENCE, PROMPT, SLOW_STEPS, FaultTest, Stream, World, cpu_seconds,
                        main,
                        start)

REFERENCE = {}
AWAITED_SECONDS = 10.0  # jobs that wait for a group wait so long
# The end of a peer, as gRPC says it or the peer itself.
ENDED = "Socket closed|recvmsg:|sendmsg:|Broken pipe|GOAWAY|Endpoint clos|shutting down"


def reference():
    """The greedy text of an undisturbed cluster of one rank."""
    if not REFERENCE:
        with World() as world:
            REFERENCE["ids"] = world.greedy()
    return REFERENCE["ids"]


class AbsentWorker(FaultTest):
    def test_coordinator_waits_for_a_worker_that_is_late(self):
        world = self.world = World(transport="tcp")
        self.addCleanup(world.leave)
        world.start_coordinator()
        wait_until(lambda: world.health_word() == "not serving", 10 * PATIENCE,
                   "the coordinator answers health")
        began = time.monotonic()
        done = world.outrider("generate", PROMPT, "-n", "4")
        self.sooner(AWAITED_SECONDS, began)
        self.check_failure(done.returncode, done.stderr, world.worker_addresses[0])
        world.start_workers()
        world.wait_log("workers", " ready ", 10)
        wait_until(world.is_serving, 10 * PATIENCE, "the cluster serves")
        self.assertEqual(world.greedy(), reference())
        world.stop()
        self.check_logs(world)


class Group(FaultTest):
    """A group of two ranks; each case leaves it serving."""

    @classmethod
    def setUpClass(cls):
        reference()
        patience_s = round(3 * slowness()) # so long that a case has done its part by then
        cls.world = World(
            n_ranks=2, worker_flags=[*SLOW_STEPS, "--step-timeout", str(2 * patience_s)],
            coordinator_flags=["--step-timeout", str(patience_s)])
        cls.addClassCleanup(cls.world.leave)
        cls.world.start()

    def tearDown(self):
        self.check_logs(self.world)

    def group_pids(self):
        return [self.world.workers.pid, *descendants(self.world.workers.pid)]

    def check_gone(self, pids, seconds):
        wait_until(lambda: not any(is_alive(pid) for pid in pids), seconds * PATIENCE,
                   "the group is gone")

    def check_lost(self, stream, *words):
        status, errors = stream.end(6)
        self.check_failure(status, errors, *words)
        return errors

    def check_end_is_noticed(self, stream, *words):
        """As check_lost, and the end of a program is noticed, by what it says or by its connection,
        and not its silence. Returns the sentence."""
        said = self.check_lost(stream, *words)
        self.assertRegex(said, ENDED)
        return said

    def restart(self):
        self.world.restart_workers()
        self.assertEqual(self.world.greedy(), reference())

    def test_rank_is_killed_in_mid_stream(self):
        stream, pids = Stream(self.world), self.group_pids()
        self.world.kill_rank(1)
        self.world.wait_not_serving(1 * PATIENCE)
        self.check_end_is_noticed(stream, "lost rank")
        self.check_gone(pids, 5)
        self.world.wait_log("coordinator", "target_lost", 1)
        self.restart()

    def stream_into_a_hung_rank(self):
        """(stream, rank -> pid): rank 1 is stopped, and rank 0 waits for it within a step."""
        ranks = self.world.rank_pids()
        os.kill(ranks[1], signal.SIGSTOP)
        spent = cpu_seconds(ranks[0])
        stream = Stream(self.world, wait=False)
        wait_until(lambda: cpu_seconds(ranks[0]) > spent + 0.1, 2.5 * PATIENCE, "rank 0 polls")
        return stream, ranks

    def test_rank_is_killed_and_nobody_tells_the_others(self):
        """Rank 0 waits in a collective for a rank that is dead, and mpirun does not notice."""
        os.kill(self.world.workers.pid, signal.SIGSTOP)
        try:
            stream, ranks = self.stream_into_a_hung_rank()
            os.kill(ranks[1], signal.SIGKILL)
            self.check_end_is_noticed(stream, "lost rank 1")
            self.check_gone([ranks[0]], 5)
            self.world.wait_log("workers", "step_stuck", 1)
        finally:
            os.kill(self.world.workers.pid, signal.SIGCONT)
        self.restart()

    def test_rank_is_killed_while_idle(self):
        pids = self.group_pids()
        self.world.kill_rank(0)
        self.world.wait_not_serving(1 * PATIENCE)
        self.check_gone(pids, 5)
        done = self.world.outrider("generate", PROMPT, "-n", "4")
        self.check_failure(done.returncode, done.stderr)
        self.restart()

    def test_rank_hangs_in_mid_step(self):
        pids = self.group_pids()
        stream, _ = self.stream_into_a_hung_rank()
        self.check_lost(stream, "lost rank")
        self.world.wait_not_serving(1 * PATIENCE)
        self.check_gone(pids, 10)
        self.world.wait_log("workers", "step_stuck", 1)
        self.restart()

    def test_rank_hangs_and_goes_on(self):
        """If the other ranks no longer needed it, the group is still whole; otherwise it ends."""
        stream, pids = Stream(self.world), self.group_pids()
        rank = self.world.rank_pids()[1]
        os.kill(rank, signal.SIGSTOP)
        self.check_lost(stream, "lost rank")
        self.world.wait_not_serving(1 * PATIENCE)
        if is_alive(rank):
            os.kill(rank, signal.SIGCONT)
        wait_until(lambda: self.world.is_serving() or not any(is_alive(pid) for pid in pids),
                   10 * PATIENCE, "the group serves again or is gone")
        if self.world.is_serving():
            self.assertEqual(self.world.greedy(), reference())
        self.restart()

    def test_ranks_are_told_to_stop(self):
        stream, ranks = Stream(self.world), self.world.rank_pids()
        self.assertEqual(sorted(ranks), [0, 1])
        for pid in ranks.values():
            os.kill(pid, signal.SIGTERM)
        self.check_gone(ranks.values(), 2)
        self.check_end_is_noticed(stream)
        self.restart()

    def test_mpirun_is_told_to_stop(self):
        stream, pids = Stream(self.world), self.group_pids()
        os.kill(self.world.workers.pid, signal.SIGTERM)
        self.check_gone(pids, 3)
        self.check_end_is_noticed(stream)
        self.restart()

    def test_coordinator_is_killed_in_mid_stream(self):
        stream, pids = Stream(self.world), self.world.rank_pids().values()
        self.world.coordinator.process.kill()
        self.world.coordinator.wait(5)
        said = self.check_end_is_noticed(stream, f"{self.world.address} is not available")
        self.assertNotIn("lost rank", said) # it is the client that notices
        self.world.start_coordinator()
        wait_until(lambda: self.world.is_serving() or not all(is_alive(pid) for pid in pids),
                   6 * PATIENCE, "the group serves again, or ends because a step was cut short")
        if not self.world.is_serving():
            self.check_gone(pids, 5)
            self.world.restart_workers()
        self.assertEqual(self.world.greedy(), reference())
        self.world.wait_measured()

    def test_second_coordinator_is_refused_while_the_first_is_there(self):
        other = f"{self.world.address}2"
        second = start("outrider-coordinator", self.world.folder, "--target",
                       ",".join(self.world.worker_addresses), "--draft", self.world.draft,
                       "--listen", other)
        self.addCleanup(second.stop)
        wait_until(lambda: "another coordinator" in second.log(), 10 * PATIENCE,
                   "the second one is told so")
        stream = Stream(self.world, "-n", "400", *LONG[2:])
        done = self.world.outrider("generate", PROMPT, "-n", "4", "--address", other)
        self.check_failure(done.returncode, done.stderr, "another coordinator", "one at a time")
        self.assertFalse(self.world.is_serving(other))
        self.assertTrue(stream.is_running())
        self.assertEqual(stream.end(60)[0], 0)
        self.assertEqual(self.world.greedy(), reference())
        self.world.coordinator.process.kill()
        wait_until(lambda: self.world.is_serving(other), 3 * PATIENCE, "the second one takes over")
        self.assertEqual(self.world.greedy("--address", other), reference())
        second.stop()
        self.world.start_coordinator()
        self.world.wait_serving()
        self.world.wait_measured()


class Hang(FaultTest):
    def test_hang_is_noticed_within_seconds_where_steps_take_milliseconds(self):
        """The default of --step-timeout is 120 s. It is for the first steps; later ones have 20
        times what steps have taken, which is the floor of 5 s here."""
        self.world = World(n_ranks=2)
        self.addCleanup(self.world.leave)
        self.world.start()
        for _ in range(2):
            self.world.greedy()
        pids = [self.world.workers.pid, *descendants(self.world.workers.pid)]
        os.kill(self.world.rank_pids()[1], signal.SIGSTOP)
        stream = Stream(self.world, wait=False)
        self.check_failure(*stream.end(15), "lost rank") # stream.end waits for less than 120 s
        wait_until(lambda: not any(is_alive(pid) for pid in pids), 5 * PATIENCE,
                   "the group is gone")
        self.world.wait_log("workers", "step_stuck rank=0 limit_ms=", 1)
        # Rank 0 waits in the sum, where MPI polls.
        limit = re.search(r"step_stuck rank=0 limit_ms=(\d+) .* lanes=1 size=\d+ waiting=yes "
                          r"engine_busy_percent=\d+ ", self.world.logs()["workers.log"])
        self.assertTrue(limit, self.world.logs()["workers.log"])
        self.assertLess(int(limit.group(1)), 10000 * PATIENCE)
        self.world.restart_workers()
        self.assertEqual(self.world.greedy(), reference())
        self.check_logs(self.world)


class Stop(FaultTest):
    def setUp(self):
        self.world = World(worker_flags=[*SLOW_STEPS])
        self.addCleanup(self.world.leave)
        self.world.start()

    def tearDown(self):
        self.check_logs(self.world)

    def n_requests(self):
        load = json.loads(self.world.outrider("describe", "--json").stdout)["load"]
        return load["running"] + load["waiting"]

    def test_coordinator_is_told_to_stop_in_mid_request(self):
        stream, waiting = Stream(self.world), Stream(self.world, *LONG, wait=False)
        wait_until(lambda: self.n_requests() == 2, 10 * PATIENCE, "both are there")
        self.world.coordinator.process.terminate()
        self.assertEqual(self.world.coordinator.wait(4 * PATIENCE), 0)
        for client in (stream, waiting):
            self.check_failure(*client.end(2), "shutting down")
        self.assertTrue(self.world.workers.is_alive())
        self.world.start_coordinator()
        self.world.wait_serving()
        self.world.wait_measured()
        self.assertEqual(self.world.greedy(), reference())

    def test_worker_is_told_to_stop_in_mid_request(self):
        stream = Stream(self.world)
        self.world.workers.process.terminate()
        self.assertEqual(self.world.workers.wait(4 * PATIENCE), 0)
        self.check_failure(*stream.end(3), "lost rank")
        self.world.wait_not_serving(1 * PATIENCE)
        self.world.start_workers()
        self.world.wait_serving()
        self.assertEqual(self.world.greedy(), reference())

    def test_both_are_told_to_stop_while_idle(self):
        for program in (self.world.coordinator, self.world.workers):
            program.process.terminate()
            self.assertEqual(program.wait(4 * PATIENCE), 0)


if __name__ == "__main__":
    main()
