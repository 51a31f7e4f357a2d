#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=120
"""The gRPC door of a real coordinator under clients that mean it no good: what gRPC logs of them,
when no descriptor is left for another one, and strangers who open connections and say nothing."""
import json
import os
import resource
import socket
import subprocess
import sys
import time
import unittest
import urllib.request

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

    def test_without_descriptors_clients_wait_for_those_before_them(self):
        pid = self.world.coordinator.pid
        n = len(os.listdir(f"/proc/{pid}/fd")) + 8
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (n, n))
        connections = [socket.socket(socket.AF_UNIX) for _ in range(16)]
        for connection in connections:
            self.addCleanup(connection.close)
            connection.connect(self.world.address.removeprefix("unix:"))
        wait_until(lambda: "rpc_files_exhausted" in self.world.logs()["coordinator.log"],
                   10 * PATIENCE, "the log says so")
        for connection in connections:
            connection.close()
        wait_until(self.world.is_serving, 20 * PATIENCE, "the next client is served")
        self.assertTrue(self.world.coordinator.is_alive())


class FewFiles(Cluster):
    """Its coordinator may have N_FILES open."""

    N_FILES = 200

    def __init__(self, build, **more):
        super().__init__(build, **more)
        real, self.bin = os.path.abspath(self.bin), os.path.join(self.folder, "bin")
        os.mkdir(self.bin)
        for name in ("outrider", "outrider-worker"):
            os.symlink(os.path.join(real, name), os.path.join(self.bin, name))
        wrapper = os.path.join(self.bin, "outrider-coordinator")
        with open(wrapper, "w", encoding="ascii") as file:
            file.write(f'#!/bin/sh\nulimit -n {self.N_FILES}\n'
                       f'exec {real}/outrider-coordinator "$@"\n')
        os.chmod(wrapper, 0o755)


class Strangers(unittest.TestCase):
    """Twice as many idle connections as the coordinator may have open files."""

    @classmethod
    def setUpClass(cls):
        cls.world = FewFiles(sys.argv[1], transport="tcp", http=True)
        cls.world.__enter__()
        cls.addClassCleanup(cls.world.__exit__, None, None, None)

    def flood(self, address):
        host, _, port = address.rpartition(":")
        for _ in range(2 * FewFiles.N_FILES):
            self.strangers.append(socket.create_connection((host, int(port)), 10 * PATIENCE))

    def setUp(self):
        self.strangers = []

    def tearDown(self):
        for stranger in self.strangers:
            stranger.close()
        self.assertTrue(self.world.coordinator.is_alive())

    def check_client(self, *more):
        done = self.world.outrider("generate", "Once upon a time", "-n", "8", *more, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_grpc_door_closes_idle_connections(self):
        long = self.world.popen("generate", "Once upon a time", "-n", "400", "--ignore-eos", "-q",
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3):
            self.flood(self.world.address)
            self.check_client()
        _, errors = long.communicate(timeout=60 * PATIENCE)
        self.assertEqual(long.returncode, 0, errors)  # its connection was in use
        self.assertIn("rpc_door_full", self.world.coordinator.log())

    def test_the_http_door_closes_idle_connections(self):
        body = json.dumps({"prompt": "Once upon a time", "max_tokens": 900,
                           "stream": True, "outrider": {"ignore_eos": True}}).encode()
        request = urllib.request.Request(f"{self.world.url}/v1/completions", body,
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60 * PATIENCE) as stream:
            for _ in range(3):
                self.flood(self.world.http)
                with urllib.request.urlopen(f"{self.world.url}/health",
                                            timeout=10 * PATIENCE) as answer:
                    self.assertEqual(answer.status, 200)
                self.check_client()
            self.assertTrue(stream.read().endswith(b"data: [DONE]\n\n"))

    def test_a_request_under_way_is_not_idle(self):
        host, _, port = self.world.http.rpartition(":")
        with socket.create_connection((host, int(port)), 10 * PATIENCE) as slow:
            slow.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                         b"application/json\r\nContent-Length: 14\r\n\r\n{")
            time.sleep(0.5)
            self.flood(self.world.http)
            slow.sendall(b'"prompt":"a"}')
            self.assertIn(b" 200 ", slow.recv(4096))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
