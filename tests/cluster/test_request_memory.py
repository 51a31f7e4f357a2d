#!/usr/bin/env python3
# ctest: labels=full libs=client timeout=300
"""What a request may occupy: messages that are too long or hold unknown fields leave nothing
behind, and requests that wait are counted and bounded. Skipped (77) where grpcio is not
installed."""
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from rpc_python import Caller, field
from cluster import wait_until
from fault_util import PATIENCE, FaultTest, World, main

MIB = 1 << 20
# What is left of requests that are over, once the coordinator has given memory back. Before
# messages were bounded, four of 60 MiB raised the memory by 333 MiB.
REST_MIB = 40 * PATIENCE
# While requests wait, more than they are charged for: what two threads decode, and what gRPC holds
# of those that clients are sending.
SLACK_MIB = 120 * PATIENCE
QUEUE_MIB = 48


def unknown(n_bytes):
    """A request with that much of a field that does not exist."""
    return field(1, "Once") + field(1000, bytes(n_bytes))


class Memory(FaultTest):
    @classmethod
    def setUpClass(cls):
        cls.world = World(coordinator_flags=["--queue-bytes", str(QUEUE_MIB * MIB), "--queue",
                                             "4096"])
        cls.addClassCleanup(cls.world.leave)
        cls.world.start()
        cls.caller = Caller(cls.world.address)
        cls.addClassCleanup(cls.caller.close)
        cls.greedy = cls.world.greedy()

    def tearDown(self):
        self.check_logs(self.world)
        self.assertEqual(self.world.greedy(), self.greedy)

    def rss_mib(self):
        with open(f"/proc/{self.world.coordinator.pid}/status", encoding="ascii") as file:
            line = next(line for line in file if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    def check_grown(self, before, most):
        grown = self.rss_mib() - before
        print(f"{self.id()}: {before:.0f} MiB, grown by {grown:.0f}", file=sys.stderr)
        self.assertLess(grown, most)

    def check_rest(self, before):
        """An idle coordinator gives memory back within a second or two."""
        print(f"{self.id()}: {before:.0f} MiB, grown by {self.rss_mib() - before:.0f}, then",
              file=sys.stderr)
        wait_until(lambda: self.rss_mib() - before < REST_MIB, 10 * PATIENCE,
                   f"no more than {REST_MIB:.0f} MiB are left")
        self.check_grown(before, REST_MIB)

    def test_messages_beyond_the_limit_are_not_read(self):
        before = self.rss_mib()
        for _ in range(6):
            status, text = self.caller.refusal("Generate", unknown(60 * MIB))
            self.assertEqual(status, "RESOURCE_EXHAUSTED")
            self.assertIn("larger than max", text)
        self.check_rest(before)

    def test_unknown_fields_are_refused_and_forgotten(self):
        before = self.rss_mib()
        message = unknown(4 * MIB)
        for _ in range(24):
            self.check_unknown(self.caller.refusal("Generate", message))
        with ThreadPoolExecutor(6) as pool:
            for refusal in pool.map(lambda _: self.caller.refusal("Score", message), range(24)):
                self.assertEqual(refusal[0], "INVALID_ARGUMENT")
                self.assertIn("of ScoreRequest is not known", refusal[1])
        self.check_rest(before)

    def check_unknown(self, refusal):
        self.assertEqual(refusal[0], "INVALID_ARGUMENT")
        self.assertIn("field 1000 of GenerateRequest is not known to this version", refusal[1])

    def test_waiting_requests_are_bounded(self):
        """While the group stands still, requests wait: with their ids, and without the text that
        they came from, until they occupy --queue-bytes together."""
        before = self.rss_mib()
        pid = self.world.rank_pids()[0]
        calls, refused = [], []
        os.kill(pid, signal.SIGSTOP)
        try:
            calls.append(self.caller.stream("Generate", field(1, "Once upon a time")))
            text = field(1, "once upon " * (MIB // 10))
            for _ in range(200):
                calls.append(self.caller.stream("Generate", text))
                calls[-1].add_done_callback(lambda call: refused.append(call.details()))
            wait_until(lambda: len(refused) > 20, 60 * PATIENCE, "requests are refused")
            for sentence in list(refused):
                self.assertIn("--queue-bytes", sentence)
            self.check_grown(before, QUEUE_MIB + SLACK_MIB)
            status, sentence = self.caller.refusal("Generate", text)
            self.assertEqual(status, "RESOURCE_EXHAUSTED")
            self.assertIn("requests that wait occupy", sentence)
        finally:
            for call in calls:
                call.cancel()
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: self.world.outrider("generate", "-n", "1", "a").returncode == 0,
                   30 * PATIENCE, "the next one is served")
        self.check_rest(before)

    def test_a_long_text_delays_nobody(self):
        """Texts become ids beside the network thread: Describe, which waits for nothing else, is
        answered while several megabytes wait to be read."""
        text = field(1, "A b, c. " * (MIB // 2))
        with ThreadPoolExecutor(4) as pool:
            long_ones = [pool.submit(self.caller.refusal, "Generate", text) for _ in range(4)]
            n_described = 0
            while not all(one.done() for one in long_ones):
                self.assertTrue(self.caller.unary("Describe", b"", timeout=30))
                n_described += 1
                time.sleep(0.001)
            for one in long_ones:
                self.assertIn("the prompt has", one.result()[1])
        self.assertGreater(n_described, 0)


if __name__ == "__main__":
    main()
