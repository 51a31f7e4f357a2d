#!/usr/bin/env python3
# ctest: labels=full libs=client timeout=300
"""Memory that a request may occupy: messages that are too long or hold unknown fields leave nothing
over, and requests that wait are counted and bounded. Skipped (77) where grpcio is not installed."""
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from rpc_python import Caller, field
from cluster import wait_until
from fault_util import PATIENCE, FaultTest, World, main

MIB = 1 << 20
# Memory left of requests that are over, once the coordinator has given memory back. Before messages
# were bounded, four of 60 MiB raised the memory by 333 MiB.
REST_MIB = 40 * PATIENCE
# While requests wait, more than they are charged for: what two threads decode, and what gRPC holds
# of those that clients are sending.
SLACK_MIB = 120 * PATIENCE
QUEUE_MIB = 48
LIMITS = ["--queue-bytes", str(QUEUE_MIB * MIB), "--queue", "4096"]
LONG_TEXT = "once upon " * (MIB // 40)
# The config of a model whose context has room for such a text, because others are refused while
# they wait.
LONG_CONTEXT = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
                "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
                "intermediate_size": 64, "vocab_size": 512, "rms_norm_eps": 1e-5,
                "max_position_embeddings": 2 * len(LONG_TEXT), "tie_word_embeddings": True}


def unknown(n_bytes):
    """A request with that much of a field that does not exist."""
    return field(1, "Once") + field(1000, bytes(n_bytes))


class Memory(FaultTest):
    @classmethod
    def setUpClass(cls):
        cls.world = World(coordinator_flags=LIMITS)
        cls.addClassCleanup(cls.world.leave)
        cls.world.start()
        cls.caller = Caller(cls.world.address)
        cls.addClassCleanup(cls.caller.close)
        cls.greedy = cls.world.greedy()

    def tearDown(self):
        self.check_logs(self.world)
        self.assertEqual(self.world.greedy(), self.greedy)

    def rss_mib(self, world=None):
        pid = (world or self.world).coordinator.pid
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            line = next(line for line in file if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    def check_grown(self, before, most, world=None):
        grown = self.rss_mib(world) - before
        print(f"{self.id()}: {before:.0f} MiB, grown by {grown:.0f}", file=sys.stderr)
        self.assertLess(grown, most)

    def check_rest(self, before, world=None):
        """An idle coordinator gives memory back within a second or two."""
        print(f"{self.id()}: {before:.0f} MiB, grown by {self.rss_mib(world) - before:.0f}, then",
              file=sys.stderr)
        wait_until(lambda: self.rss_mib(world) - before < REST_MIB, 10 * PATIENCE,
                   f"no more than {REST_MIB:.0f} MiB are left")
        self.check_grown(before, REST_MIB, world)

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
        """While the group is stopped, requests wait: with their ids, and without the text that they
        came from, until they occupy --queue-bytes together."""
        folder = tempfile.mkdtemp(prefix="outrider-shape-")
        self.addCleanup(shutil.rmtree, folder)
        with open(f"{folder}/config.json", "w", encoding="ascii") as file:
            json.dump(LONG_CONTEXT, file)
        world = World(target=f"synthetic:{folder}/config.json,seed=1", draft=None,
                      worker_flags=["--kv-tokens", str(2 * len(LONG_TEXT))],
                      coordinator_flags=[*LIMITS, "--calibrate", "0"])
        self.addCleanup(world.leave)
        world.start()
        with contextlib.closing(Caller(world.address)) as caller:
            self.fill_queue(world, caller)

    def fill_queue(self, world, caller):
        before = self.rss_mib(world)
        pid = world.rank_pids()[0]
        calls, refused = [], []
        os.kill(pid, signal.SIGSTOP)  # in the first steps, of which nothing is expected yet
        try:
            calls.append(caller.stream("Generate", field(1, "Once upon a time")))
            text = field(1, LONG_TEXT)
            for _ in range(200):
                calls.append(caller.stream("Generate", text))
                calls[-1].add_done_callback(lambda call: refused.append(call.details()))
            wait_until(lambda: len(refused) > 20, 25 * PATIENCE, "requests are refused")
            for sentence in list(refused):
                self.assertIn("--queue-bytes", sentence)
            self.check_grown(before, QUEUE_MIB + SLACK_MIB, world)
            status, sentence = caller.refusal("Generate", text)
            self.assertEqual(status, "RESOURCE_EXHAUSTED")
            self.assertIn("requests that wait occupy", sentence)
        finally:
            for call in calls:
                call.cancel()
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: world.outrider("generate", "-n", "1", "a").returncode == 0,
                   30 * PATIENCE, "the next one is served")
        self.check_rest(before, world)

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
