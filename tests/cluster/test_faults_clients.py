#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=600
"""Clients that leave, wait too long or are too many, and peers that do not speak our protocol:
after each case the next client gets the right text."""
import json
import os
import random
import select
import signal
import socket
import struct
import time
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import bound, descendants, wait_until
from far_cluster import FarRanks
from http2_raw import PREFACE, call, frame
from fault_util import PATIENCE, PROMPT, SLOW_STEPS, FaultTest, Stream, World, cpu_seconds, main

IDLE_SECONDS = 2.0
IDLE_CPU_SECONDS = 0.1
RUN, DESCRIBE, GENERATE = ("/outrider.target.v1.Target/Run", "/outrider.target.v1.Target/Describe",
                           "/outrider.generation.v1.Generation/Generate")


class FarWorld(FarRanks, World):
    """A text without guesses takes 40 ms or more for each token, on every machine."""
    delay_s = 0.02


LONG_SECONDS = 960 * 2 * FarWorld.delay_s  # the least that a text of LONG takes there


class ClientTest(FaultTest):
    COORDINATOR_FLAGS = ("--sequences", "1")  # so that others wait

    @classmethod
    def make_world(cls):
        return World(transport="tcp", worker_flags=SLOW_STEPS,
                     coordinator_flags=cls.COORDINATOR_FLAGS)

    @classmethod
    def setUpClass(cls):
        cls.world = cls.make_world()
        cls.addClassCleanup(cls.world.leave)
        cls.world.start()
        cls.greedy = cls.world.greedy()
        cls.streams = []

    def stream(self, *arguments, **options):
        made = Stream(self.world, *arguments, **options)
        self.addCleanup(self.end, made)
        return made

    @staticmethod
    def end(stream):
        if stream.is_running():
            stream.kill()

    def short(self):
        """A short request that is not waited for."""
        return self.stream("-n", "8", "--temperature", "0", "-q", wait=False)

    def tearDown(self):
        self.doCleanups()
        self.assertEqual(self.world.greedy(), self.greedy)
        self.assertTrue(self.world.coordinator.is_alive() and self.world.workers.is_alive())
        self.check_logs(self.world)

    def settle(self, n_waiting):
        """Until so many requests are in the queue."""
        def look():
            load = json.loads(self.world.outrider("describe", "--json").stdout)["load"]
            return load["waiting"] == n_waiting
        wait_until(look, 10 * PATIENCE, f"{n_waiting} wait")



class FarClientTest(ClientTest):
    """A client that waits is served in time only where the text before is ended with its client."""

    @classmethod
    def make_world(cls):
        return FarWorld(coordinator_flags=cls.COORDINATOR_FLAGS)

    def stream(self, *arguments, **options):
        made = super().stream(*arguments, **options)
        made.came = time.monotonic()  # its first token has come, or it waits
        return made

    def check_served_early(self, stream, first):
        """The text of `first`, which was there before, would still run."""
        output, errors = stream.process.communicate(timeout=bound(10 * PATIENCE))
        self.assertLess(time.monotonic(), first.came + LONG_SECONDS - 1)
        self.assertEqual(stream.process.returncode, 0, errors)
        self.assertGreater(len(output), 0)


class Leaving(FarClientTest):
    def test_client_is_killed_in_mid_stream(self):
        first, second = self.stream(), self.short()
        self.settle(1)
        self.assertTrue(second.is_running())
        first.kill()
        self.check_served_early(second, first)

    def test_client_is_interrupted_in_mid_stream(self):
        first, second = self.stream(), self.short()
        self.settle(1)
        status, errors = first.kill(signal.SIGINT)
        self.assertEqual((status, errors), (130, "outrider: interrupted\n"))
        self.check_served_early(second, first)

    def test_client_that_nobody_reads(self):
        first, second = self.stream(), self.short()
        first.process.stdout.close()
        first.process.stdout = None
        status, errors = first.end(3)
        self.check_failure(status, errors, "cannot write")
        self.check_served_early(second, first)

    def test_one_of_those_who_wait_leaves(self):
        first, others = self.stream(), [self.short() for _ in range(3)]
        self.settle(3)
        others[1].kill()
        self.settle(2)
        self.assertTrue(others[0].is_running() and others[2].is_running())
        first.kill()
        self.check_served_early(others[0], first)
        self.check_served_early(others[2], first)

    def test_time_is_over_in_mid_stream(self):
        status, errors = self.stream("-n", "960", "--ignore-eos", "--timeout", "1").end(4)
        self.check_failure(status, errors, "--timeout of 1 s")

    def test_time_is_over_in_the_queue(self):
        first, second = self.stream(), self.stream("--timeout", "1", wait=False)
        status, errors = second.end(4)
        self.check_failure(status, errors, "--timeout of 1 s")
        self.assertTrue(first.is_running())


class FullQueue(FarClientTest):
    COORDINATOR_FLAGS = ("--sequences", "1", "--queue", "1")

    def test_one_too_many(self):
        first, second = self.stream(), self.short()
        self.settle(1)
        done = self.world.outrider("generate", PROMPT, "-n", "4")
        self.assertTrue(first.is_running() and second.is_running(), "it did not wait for them")
        self.check_failure(done.returncode, done.stderr, "too many requests are waiting")
        first.kill()
        self.check_served_early(second, first)

    def test_who_has_left_the_queue_takes_no_place(self):
        first, second = self.stream(), self.short()
        self.settle(1)
        second.kill()
        self.settle(0)
        third = self.short()
        self.settle(1)
        self.assertTrue(third.is_running(), third.process.stderr)
        first.kill()
        self.check_served_early(third, first)


class Idle(ClientTest):
    def test_nobody_computes_while_there_is_nothing_to_do(self):
        pids = [self.world.coordinator.pid, self.world.workers.pid]
        lonely = World(n_ranks=2)
        self.addCleanup(lonely.leave)
        lonely.start_workers()
        lonely.wait_log("workers", " ready rank=0", 20)
        lonely.wait_log("workers", " ready rank=1", 5)
        pids += [pid for pid in descendants(lonely.workers.pid)
                 if pid in lonely.rank_pids().values()]
        self.assertEqual(len(pids), 4)
        time.sleep(0.2)
        before = {pid: cpu_seconds(pid) for pid in pids}
        time.sleep(IDLE_SECONDS)
        for pid in pids:
            self.assertLess(cpu_seconds(pid) - before[pid], IDLE_CPU_SECONDS)


# ---- raw bytes ----

def noise(n, seed):
    return random.Random(seed).randbytes(n)


TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + noise(194, 3)
GARBAGE = {
    "nothing": b"",
    "HTTP/1": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "HTTP/1 with a long header": b"POST /v1 HTTP/1.1\r\nX: " + b"a" * 100000 + b"\r\n\r\n",
    "a hello of TLS": TLS_HELLO,
    "noise": noise(65536, 1),
    "zeros": bytes(100000),
    "a preface, then noise": PREFACE + noise(4096, 2),
    "a preface, then a frame of 16 MiB":
        PREFACE + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + bytes(64),
    "a header table of 4 GiB": PREFACE + frame(4, 0, 0, struct.pack(">HI", 1, 0xFFFFFFFF)),
    "a headers frame that is no table": PREFACE + frame(1, 5, 1, noise(200, 4)),
    "a thousand resets": PREFACE + b"".join(
        frame(3, 0, stream, b"\0\0\0\x08") for stream in range(1, 2001, 2)),
    "an unknown method": call("/nothing/here", b""),
    "a message that is noise": call(GENERATE, noise(1000, 5)),
    "a step that is noise": call(RUN, noise(1000, 6)),
    "a description asked for with noise": call(DESCRIBE, noise(1000, 7)),
    "a message of 4 GiB": call(GENERATE, b"a", 0xFFFFFFFF),
    "a step of 4 GiB": call(RUN, b"a", 0xFFFFFFFF),
    "a message cut short": call(GENERATE, b"\x0a\x7fabc"),
}


class Garbage(ClientTest):
    def send(self, address, raw):
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), 5) as peer:
            try:
                peer.sendall(raw)
                if select.select([peer], [], [], 0.05)[0]:
                    peer.recv(65536)
            except OSError:
                pass  # it is disconnected, as it should be

    def test_our_own_calls_are_understood(self):
        """A well-formed call is answered, so what is malformed below is refused for that."""
        host, _, port = self.world.worker_addresses[0].rpartition(":")
        with socket.create_connection((host, int(port)), 5) as peer:
            peer.sendall(call(DESCRIBE, b""))
            answer, end = b"", time.monotonic() + bound(5 * PATIENCE)
            while b"LlamaForCausalLM" not in answer and time.monotonic() < end:
                if select.select([peer], [], [], 0.1)[0]:
                    answer += peer.recv(65536)
            self.assertIn(b"LlamaForCausalLM", answer)

    def test_bytes_that_are_not_ours(self):
        stream = self.stream()
        for name, raw in GARBAGE.items():
            for address in (self.world.address, self.world.worker_addresses[0]):
                with self.subTest(name):
                    self.send(address, raw)
                    self.assertTrue(self.world.is_serving())
        self.assertEqual(stream.end(60)[0], 0)

    def test_worker_without_a_coordinator(self):
        self.world.coordinator.stop()
        for name, raw in GARBAGE.items():
            with self.subTest(name):
                self.send(self.world.worker_addresses[0], raw)
                self.assertTrue(self.world.is_serving(self.world.worker_addresses[0]))
        self.world.start_coordinator()
        self.world.wait_serving()

    def test_connections_that_say_nothing(self):
        peers = []
        for address in (self.world.address, self.world.worker_addresses[0]):
            host, _, port = address.rpartition(":")
            peers += [socket.create_connection((host, int(port)), 5) for _ in range(100)]
        try:
            self.assertEqual(self.world.greedy(), self.greedy)
        finally:
            for peer in peers:
                peer.close()


if __name__ == "__main__":
    main(at_once=4)
