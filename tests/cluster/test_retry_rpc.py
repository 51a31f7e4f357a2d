#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=120
"""A call that is refused because of what there is now, and not because of what it asks, says when
to try again: while the coordinator drains, while it has no target group, and while its queue is
full. Skipped (77) where grpcio is not installed."""
import json
import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from rpc_python import Caller, field, grpc
from cluster import Cluster, wait_until
from far_cluster import FarRanks

BUILD = sys.argv[1]
# max_tokens, ignore_eos, and no guesses
LONG = field(1, "Once upon a time") + field(3, 900) + field(5, field(1, 0)) + field(7, 1)
WANTED = {"retry-after": "1", "grpc-retry-pushback-ms": "1000"}


class Far(FarRanks, Cluster):
    """A long text takes 36 s or more."""
    delay_s = 0.02


class Retry(unittest.TestCase):
    def open(self, *flags):
        world = Far(BUILD, coordinator_flags=["--sequences", "1", *flags])
        self.addCleanup(world.__exit__, None, None, None)
        world.__enter__()
        self.caller = Caller(world.address)
        self.addCleanup(self.caller.close)
        return world

    def refusal(self, message=LONG):
        """(status, sentence, what the trailing metadata say of trying again)"""
        call = self.caller.stream("Generate", message)
        with self.assertRaises(grpc.RpcError) as caught:
            list(call)
        said = {key: value for key, value in caught.exception.trailing_metadata() or ()
                if "retry" in key}
        return caught.exception.code().name, caught.exception.details(), said

    @staticmethod
    def n_waiting(world):
        return json.loads(world.outrider("describe", "--json").stdout)["load"]["waiting"]

    def test_draining(self):
        world = self.open("--drain-timeout", "20")
        running = self.caller.stream("Generate", LONG)
        next(iter(running))
        world.coordinator.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not world.is_serving(), 10, "it drains")
        status, text, said = self.refusal()
        self.assertEqual((status, said), ("UNAVAILABLE", WANTED))
        self.assertIn("shutting down", text)
        running.cancel()

    def test_without_a_group(self):
        world = self.open()
        world.workers.process.kill()
        wait_until(lambda: not world.is_serving(), 20, "the group is lost")
        status, _, said = self.refusal()
        self.assertEqual((status, said), ("UNAVAILABLE", WANTED))

    def test_full_queue(self):
        world = self.open("--queue", "1")
        running = self.caller.stream("Generate", LONG)
        next(iter(running))
        waiting = self.caller.stream("Generate", LONG)
        wait_until(lambda: self.n_waiting(world) == 1, 10, "the second one waits")
        status, text, said = self.refusal()
        self.assertEqual((status, said), ("RESOURCE_EXHAUSTED", WANTED))
        self.assertIn("too many requests", text)
        running.cancel()
        waiting.cancel()

    def test_what_is_wrong_itself(self):
        self.open()
        status, _, said = self.refusal(field(1, "x") + field(9, 1 << 20))
        self.assertEqual((status, said), ("INVALID_ARGUMENT", {}))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
