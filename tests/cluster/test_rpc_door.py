#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=120
"""The gRPC door of a real coordinator under clients that mean it no good: what gRPC logs of them,
and when no descriptor is left for another one."""
import os
import resource
import socket
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import http2_raw
from cluster import Cluster, wait_until
from fault_util import PATIENCE


class Door(unittest.TestCase):
    def setUp(self):
        self.world = Cluster(sys.argv[1], coordinator_flags=["--log-level", "debug"])
        self.world.__enter__()
        self.addCleanup(self.world.__exit__, None, None, None)

    def test_nobody_makes_up_a_line_of_the_log(self):
        """gRPC logs a header that it cannot read, with the client's bytes."""
        line = "Failed accept"
        fields = b"".join(http2_raw.header(*field) for field in (
            (":method", "POST"), (":scheme", "http"), (":authority", "x"),
            (":path", "/outrider.generation.v1.Generation/Describe"), ("te", "trailers"),
            ("content-type", "application/grpc"), ("grpc-timeout", line)))
        connection = socket.socket(socket.AF_UNIX)
        self.addCleanup(connection.close)
        connection.connect(self.world.address.removeprefix("unix:"))
        connection.sendall(http2_raw.PREFACE + http2_raw.frame(1, 5, 1, fields))
        wait_until(lambda: "invalid value" in self.world.logs()["coordinator.log"], 10 * PATIENCE,
                   "the header is in the log")
        self.assertIn(line, self.world.logs()["coordinator.log"])
        self.assertNotIn("rpc_accept_failed", self.world.logs()["coordinator.log"])
        self.assertTrue(self.world.coordinator.is_alive())

    def test_a_door_that_closes_for_want_of_descriptors_ends_the_process(self):
        pid = self.world.coordinator.pid
        n = len(os.listdir(f"/proc/{pid}/fd")) + 8
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (n, n))
        for _ in range(16):
            connection = socket.socket(socket.AF_UNIX)
            self.addCleanup(connection.close)
            connection.connect(self.world.address.removeprefix("unix:"))
        self.assertEqual(self.world.coordinator.wait(10 * PATIENCE), 1)
        self.assertIn("rpc_accept_failed", self.world.logs()["coordinator.log"])
        self.assertIn("stopped reason=failure", self.world.logs()["coordinator.log"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
