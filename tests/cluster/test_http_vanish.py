#!/usr/bin/env python3
# ctest: labels=full libs=http timeout=240 beside=yes
"""Clients of http/ that vanish without a word, as when a cable is cut: the server ends their
requests although nothing tells it so. tests/programs/prog_http.c is the server. Skipped where no
network may be made."""
import contextlib
import os
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import parallel_cases
from http_program import Server


@contextlib.contextmanager
def network(number):
    """Another network with one machine, 10.213.NUMBER.2, and a cable to this one, 10.213.NUMBER.1.
    Skips the test where that may not be made."""
    name = f"or{number}-{os.getpid()}"
    steps = (f"ip netns add {name}",
             f"ip link add {name} type veth peer name eth0 netns {name}",
             f"ip address add 10.213.{number}.1/24 dev {name}", f"ip link set {name} up",
             f"ip -n {name} address add 10.213.{number}.2/24 dev eth0",
             f"ip -n {name} link set eth0 up")
    try:
        for step in steps:
            try:
                subprocess.run(step.split(), check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError) as error:
                raise unittest.SkipTest(f"{step}: {error}") from None
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)


class Vanishing(unittest.TestCase):
    def test_probes_are_sent(self):
        """The kernel's timer of an idle connection is that of probes, and runs within 10 s."""
        with Server() as server, server.connect() as connection:
            connection.sendall(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
            connection.recv(4096)
            ends = [f"{at[0]}:{at[1]}" for at in (connection.getpeername(),
                                                  connection.getsockname())]
            line = subprocess.run(["ss", "-tnoH", "src", ends[0], "dst", ends[1]], check=True,
                                  capture_output=True, text=True).stdout
            self.assertRegex(line, r"timer:\(keepalive,([0-9]sec|10sec|[0-9]\.[0-9]+ms)")

    def vanish(self, path, number, within_s):
        """A client asks for path, and then nothing comes any more, not even the end: a cable is
        cut."""
        code = ("import socket, time\n"
                "connection = socket.create_connection(('10.213.%d.1', %d))\n"
                "connection.sendall(b'GET %s HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
                "time.sleep(90)")
        with network(number) as name, Server(host=f"10.213.{number}.1") as server:
            client = subprocess.Popen(["ip", "netns", "exec", name, sys.executable, "-c",
                                       code % (number, server.at[1], path)])
            try:
                server.wait_for(lambda live, _: live == 1, 10)
                time.sleep(0.5)
                subprocess.run(["ip", "-n", name, "link", "set", "eth0", "down"], check=True)
                server.wait_for(lambda live, gone: (live, gone) == (0, 1), within_s)
            finally:
                client.kill()
                client.wait()

    def test_peer_vanishes_while_it_waits(self):
        self.vanish("/silent", 7, 40)  # before the server answers by itself

    def test_peer_vanishes_while_it_is_answered(self):
        self.vanish("/stream?n=5000&ms=20", 8, 45)


if __name__ == "__main__":
    parallel_cases.main(verbosity=2)
