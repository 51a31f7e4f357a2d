#!/usr/bin/env python3
# ctest: labels=quick,slow libs=client timeout=60
"""outrider link, on this host.

Usage: test_link.py BUILD_FOLDER
"""
import json
import os
import socket
import subprocess
import sys
import threading
import unittest

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
OUTRIDER = os.path.join(BUILD, "bin", "outrider")


def link(*args):
    return subprocess.run([OUTRIDER, "link", *args], capture_output=True, encoding="utf-8",
                          stdin=subprocess.DEVNULL, timeout=30)


class Link(unittest.TestCase):
    def serve(self, *args):
        server = subprocess.Popen([OUTRIDER, "link", "--serve", *args], stdout=subprocess.PIPE,
                                  encoding="utf-8")
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        words = server.stdout.readline().split()
        self.assertEqual(words[0], "serving")
        return server, words[1]

    def closed_port(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return f"127.0.0.1:{probe.getsockname()[1]}"

    def test_round_trip_and_bandwidth(self):
        _, address = self.serve("127.0.0.1:0")
        done = link(address)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, rf"^{address}  round trip 0\.\d+ ms \(median of 300; least "
                                      r"0\.\d+, 90 % within \d+\.\d+\), \d+ MB/s\n$")
        found = json.loads(link("--json", "--quick", address).stdout)["links"]
        self.assertEqual([f["address"] for f in found], [address])
        self.assertTrue(0 < found[0]["least_us"] <= found[0]["round_trip_us"] < 1e6)
        self.assertEqual((found[0]["rounds"], found[0]["bytes_per_second"]), (5, 0))

    def test_several_addresses_of_which_one_does_not_answer(self):
        _, address = self.serve(":0", "--network", "127.0.0.0/8")
        closed = self.closed_port()
        done = link("--quick", closed, address)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"outrider: no connection to {closed}: Connection refused\n", done.stderr)
        self.assertIn(f"{address}  round trip", done.stdout)
        self.assertIn("Connection refused",
                      json.loads(link("--json", closed).stdout)["links"][0]["error"])

    def test_somebody_else_is_no_link(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            def answer():
                caller, _ = server.accept()
                with caller:
                    caller.recv(64)
                    caller.sendall(b"HTTP/1.1 400 Bad Request\r\n" * 10)
            threading.Thread(target=answer, daemon=True).start()
            address = "127.0.0.1:%d" % server.getsockname()[1]
            done = link("--quick", address)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"outrider: {address}: the other side is no 'outrider link'", done.stderr)

    def test_one_that_accepts_and_says_nothing(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            done = link("--timeout", "1", "127.0.0.1:%d" % server.getsockname()[1])
        self.assertEqual(done.returncode, 1)
        self.assertIn("the other side does not answer in time", done.stderr)

    def test_a_server_refuses_what_is_not_its_own_and_goes_on(self):
        _, address = self.serve("127.0.0.1:0")
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=10) as caller:
            caller.sendall(b"ol1s" + (1 << 30).to_bytes(4, "little")) # more than is allowed
            self.assertEqual(caller.recv(64), b"")
        self.assertEqual(link("--quick", address).returncode, 0)

    def test_it_ends_after_its_time_and_without_a_reader(self):
        server, _ = self.serve("127.0.0.1:0", "--seconds", "1")
        self.assertEqual(server.wait(10), 0)
        server, _ = self.serve("127.0.0.1:0")
        server.stdout.close()
        server.wait(10)
        server.stdout = None

    def test_wrong_command_lines(self):
        for args, sentence in (
                ((), "give either --serve ADDRESS or addresses to measure"),
                (("--serve", ":1", "a:1"), "give either"),
                (("--network", "lo", "a:1"), "--network goes with --serve :PORT"),
                (("--serve", ":0", "--network", "10/8"), "expected the name of an interface"),
                (("--serve", "nowhere"), "expected HOST:PORT")):
            with self.subTest(args=args):
                done = link(*args)
                self.assertEqual(done.stdout, "")
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
