#!/usr/bin/env python3
# ctest: labels=quick,threads,slow libs=http timeout=600 beside=yes
"""The HTTP server of http/ as clients meet it: whole answers and streams, keep-alive, bodies that
are too large or too many, requests that can be read in two ways, clients that leave, that are slow,
that say nothing, TLS with certificates that are replaced, and the end of the server with answers
open. tests/programs/prog_http.c is the server."""
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import bound
from http_program import Server, read_all

BODY_BYTES_MAX = 1 << 20
BODIES_BYTES_MAX = 3 << 20
BIG_BYTES = 30 << 20  # more than the kernel keeps for a connection


def slow_reader(server, path):
    """A connection that has asked for path and keeps little of the answer."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    connection.connect(server.at)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    connection.settimeout(bound(10))
    return connection


def body_of(answer):
    return answer.partition(b"\r\n\r\n")[2]


def check_refused(test, answer, status):
    """One head, a body of JSON, and the end of the connection."""
    head, _, body = answer.partition(b"\r\n\r\n")
    test.assertEqual(head.split(b" ", 2)[:2], [b"HTTP/1.1", status])
    test.assertEqual(answer.count(b"HTTP/1.1"), 1)
    test.assertIn(f"Content-Length: {len(body)}".encode(), head)
    test.assertEqual(json.loads(body)["error"]["type"], "invalid_request_error")


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_whole(self):
        body = bytes(range(256)) * 400
        self.assertEqual(self.server.get("/echo", body), (200, body))
        self.assertEqual(self.server.get("/echo", b""), (200, b""))
        self.assertEqual(self.server.get("/nowhere")[0], 404)

    def test_stream(self):
        status, text = self.server.get("/stream?n=50&ms=1")
        self.assertEqual(status, 200)
        self.assertEqual([int(line.split()[0]) for line in text.splitlines()], list(range(50)))

    def test_stream_comes_as_it_is_made(self):
        connection = http.client.HTTPConnection(*self.server.at, timeout=30)
        begin = time.monotonic()
        connection.request("GET", "/stream?n=200&ms=100")  # 20 s
        answer = connection.getresponse()
        answer.fp.readline()
        answer.readline()
        self.assertLess(time.monotonic() - begin, 18)
        connection.close()

    def test_connection_is_kept(self):
        connection = http.client.HTTPConnection(*self.server.at, timeout=30)
        for path, body in (("/echo", b"one"), ("/stream?n=2&ms=1", b""), ("/echo", b"two")):
            connection.request("POST", path, body=body)
            before = connection.sock.getsockname()
            text = connection.getresponse().read()
            self.assertTrue(text == body or path != "/echo")
        self.assertEqual(connection.sock.getsockname(), before)
        connection.close()

    def test_pipelined(self):
        with self.server.connect() as connection:
            one = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
            last = b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            connection.sendall(one + last)
            text = read_all(connection)
            self.assertIn(b"\r\n\r\nabcHTTP/1.1 404", text)

    def test_body_announced_too_large(self):
        """The refusal does not wait for the body."""
        with self.server.connect() as connection:
            connection.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\n"
                               b"Content-Length: 99999999999\r\n\r\n")
            self.assertIn(b" 413 ", connection.recv(4096))

    def test_body_too_large(self):
        self.assertEqual(self.server.get("/echo", b"x" * BODY_BYTES_MAX)[0], 200)
        chunks = iter([b"x" * 65536] * 17)
        status, text = self.server.get("/echo", chunks, {"Transfer-Encoding": "chunked"})
        self.assertEqual(status, 413)
        self.assertIn(b"more than 1048576 bytes", text)
        chunks = iter([b"x" * 65536] * 16)
        self.assertEqual(
            self.server.get("/echo", chunks, {"Transfer-Encoding": "chunked"})[0], 200)

    def test_small_limit_of_a_route(self):
        self.assertEqual(self.server.get("/small", b"x" * 4096), (200, b"x" * 4096))
        status, text = self.server.get("/small", b"x" * 4097)
        self.assertEqual(status, 413)
        self.assertIn(b"more than 4096 bytes", text)

    def test_header_is_replaced(self):
        answer = self.server.send(b"GET /held HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        self.assertEqual(answer.lower().count(b"x-begun: yes"), 1, answer)
        self.assertEqual(answer.lower().count(b"x-begun"), 1, answer)

    def test_refused_unread(self):
        """No byte of the body is awaited."""
        for length in (b"Content-Length: 900000", b"Transfer-Encoding: chunked"):
            answer = self.server.send(b"POST /refused HTTP/1.1\r\nHost: x\r\n" + length +
                                      b"\r\n\r\n")
            self.assertIn(b" 401 ", answer[:20])
            self.assertIn(b"Connection: close", answer)
            self.assertTrue(answer.endswith(b"who?\n"), answer)

    def test_refused_with_a_small_body(self):
        """The connection goes on after it."""
        answer = self.server.send(b"POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n"
                                  b"abcGET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertIn(b" 401 ", answer[:20])
        self.assertIn(b"who?\nHTTP/1.1 404", answer)
        self.assertTrue(answer.endswith(b"no\n<open>"), answer)

    def test_bodies_are_bounded_together(self):
        n, rest = BODIES_BYTES_MAX // BODY_BYTES_MAX, 1000
        head = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % BODY_BYTES_MAX
        others = [self.server.connect() for _ in range(n)]
        for connection in others:
            connection.sendall(head + b"x" * (BODY_BYTES_MAX - rest))
        for _ in range(100):  # until all of it has been read
            answer = self.server.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                                      b"Content-Length: 5000\r\n\r\n" + b"y" * 5000)
            if b" 429 " in answer[:20]:
                break
            time.sleep(0.02)
        self.assertIn(b" 429 ", answer[:20])
        self.assertIn(b"Retry-After: 1", answer)
        self.assertEqual(self.server.get("/echo", b"a little")[0], 200)
        for connection in others:
            connection.sendall(b"x" * rest)
            answer = b""
            while len(body_of(answer)) < BODY_BYTES_MAX:
                answer += connection.recv(65536)
            self.assertIn(b" 200 ", answer[:20])
            connection.close()
        self.assertEqual(self.server.get("/echo", b"x" * BODY_BYTES_MAX)[0], 200)

    def test_client_leaves_in_mid_body(self):
        """An exchange's memory is released, and its bytes count no more."""
        for _ in range(2 * BODIES_BYTES_MAX // BODY_BYTES_MAX):
            with self.server.connect() as connection:
                connection.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
                                   b"\r\n" + b"x" * 900000)
        end = time.monotonic() + bound(5)
        while self.server.get("/held")[1] != b"1\n":
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        self.assertEqual(self.server.get("/echo", b"x" * BODY_BYTES_MAX)[0], 200)

    def test_requests_that_can_be_read_in_two_ways(self):
        hidden = b"abcGET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"
        chunked = b"3\r\nabc\r\n0\r\n\r\n"
        for headers, body in (
                (b"Content-Length: 3\r\nContent-Length: 40", hidden),
                (b"Content-Length: 40\r\nContent-Length: 3", hidden),
                (b"Content-Length: 3\r\nContent-Length: 3", hidden),
                (b"Content-Length: 3\r\nTransfer-Encoding: chunked", chunked),
                (b"Transfer-Encoding: chunked\r\ncontent-length: 3", chunked),
                (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", chunked),
                (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", chunked),
                (b"Transfer-Encoding: xchunked", chunked),
                (b"Transfer-Encoding: identity, chunked", chunked),
                (b"Transfer-Encoding: gzip, chunked", chunked),
                (b"Transfer-Encoding:", chunked),
                (b"Content-Length : 3", hidden), (b" Content-Length: 3", hidden),
                (b"Content-Length\t: 3", hidden), (b"Content Length: 3", hidden),
                (b"A: b\r\n Content-Length: 3", hidden), (b"Content-Lengt: 3\r\n h", hidden),
                (b"Content-Length: 3\r\n 7", hidden), (b"A(b): 3", b""),
                (b"Content-Length: +3", hidden), (b"Content-Length: 0x3", hidden),
                (b"Content-Length: 3, 3", hidden), (b"Content-Length: -3", hidden),
                (b"Content-Length: 3 3", hidden), (b"Content-Length:", b""),
                (b"Content-Length: 9223372036854775808", hidden),
                (b"Content-Length: 18446744073709551617", hidden),
                (b"Content-Length: 340282366920938463463374607431768211459", hidden),
                (b": 3", hidden), (b":", hidden), (b"A: b\r\n:\r\nContent-Length: 3", hidden),
                (b"A: b\rContent-Length: 3", hidden), (b"Content-Length: 3\rA: b", hidden),
                (b"A: b\nContent-Length: 3", hidden), (b"A: b\n\nContent-Length: 3", hidden),
                (b"A: b\0c\r\nContent-Length: 3", hidden), (b"Content-Length: 3\0 7", hidden),
                (b"A: b\r\r\nContent-Length: 3", hidden), (b"Host: y", b"")):
            for method in (b"POST /echo", b"GET /echo"):
                answer = self.server.send(method + b" HTTP/1.1\r\nHost: x\r\n" + headers +
                                          b"\r\n\r\n" + body)
                with self.subTest(headers):
                    check_refused(self, answer, b"400")
        for text in (b"GET /echo HTTP/1.1\r\n\r\n", b"GET /echo HTTP/1.1\r\nA: b\r\n\r\n",
                     b"GET /echo HTTP/1.1\nHost: x\r\n\r\n", b"GET /echo HTTP/1.1\r\nHost: x\n\n",
                     b"GET /echo HTTP/1.1\r\nHost: x\r\n\n", b"GET /echo HTTP/1.0\n\n",
                     b"GET /echo x HTTP/1.1\r\nHost: x\r\n\r\n",
                     b"GET /echo  HTTP/1.1\r\nHost: x\r\n\r\n",
                     b"GET /echo?a b HTTP/1.1\r\nHost: x\r\n\r\n",
                     b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked):
            with self.subTest(text):
                check_refused(self, self.server.send(text), b"400")

    def test_cookies_without_room_are_refused_once(self):
        answer = self.server.send(b"GET /echo HTTP/1.1\r\nHost: x\r\nCookie: " + b"c" * 60000 +
                                  b"\r\n\r\n")
        check_refused(self, answer, b"431")

    def test_a_refusal_is_for_its_own_connection(self):
        """Others are in the middle of their heads, or of their answers."""
        with self.server.connect() as half, self.server.connect() as kept:
            half.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nCookie: a=b\r\n")
            kept.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nab")
            self.server.get("/echo", b"both are there")
            for length in (b"+3", b"3, 3", b"99999999999999999999999"):
                check_refused(self, self.server.send(b"POST /echo HTTP/1.1\r\nHost: x\r\n"
                                                    b"Content-Length: " + length + b"\r\n\r\n"),
                                   b"400")
            half.sendall(b"Connection: close\r\n\r\nabc")
            kept.sendall(b"cPOST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: a\r\n\r\n")
            self.assertTrue(read_all(half).endswith(b"\r\n\r\nabc"))
            first, _, rest = read_all(kept).partition(b"\r\n\r\nabc")
            self.assertIn(b" 200 ", first)
            check_refused(self, rest, b"400")

    def test_nothing_is_read_after_chunks(self):
        """Where they end, a proxy may read differently: here after the LF of an extension."""
        hidden = b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"
        for chunks in (b"3\r\nabc\r\n0\r\n\r\n", b"3;a\nabc\r\n0\r\n\r\n",
                       b"3\r\nabc\r\n0\r\nA: b\n\n", b"3\r\nabc\r\n0\r\n: b\r\n\r\n"):
            answer = self.server.send(b"POST /echo HTTP/1.1\r\nHost: x\r\n"
                                      b"Transfer-Encoding: chunked\r\n\r\n" + chunks + hidden)
            with self.subTest(chunks):
                self.assertTrue(answer.endswith(b"\r\n\r\nabc"), answer)
                self.assertIn(b"Connection: close\r\n", answer)

    def test_plain_requests_are_taken(self):
        for version, headers, body in (
                (b"1.0", b"", b""), (b"1.1", b"Host:\r\n", b""), (b"1.1", b"Host: x \t\r\n", b""),
                (b"1.1", b"Host: x\r\nA:b\r\nC: \t d e \r\nE:\r\n", b""),
                (b"1.1", b"host: x\r\nCONTENT-LENGTH:3\r\n", b"abc"),
                (b"1.1", b"Host: x\r\ntransfer-encoding: Chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n"),
                (b"1.1", b"Host: x\r\nCookie: a=b; c=d\r\n" + b"Long: " + b"x" * 30000 + b"\r\n",
                 b"")):
            answer = self.server.send(b"POST /echo HTTP/" + version + b"\r\nConnection: close\r\n" +
                                      headers + b"\r\n" + body)
            with self.subTest(headers):
                self.assertIn(b" 200 ", answer[:20])
                self.assertTrue(answer.endswith(b"abc" if body else b"\r\n"), answer)

    def test_headers_are_bounded(self):
        for length, lines, status in ((60000, b"GET /nowhere HTTP/1.1\r\nHost: x\r\nX: %s", b"404"),
                                      (66000, b"GET /nowhere HTTP/1.1\r\nHost: x\r\nX: %s", b"431"),
                                      (66000, b"GET /%s HTTP/1.1\r\nHost: x", b"414")):
            answer = self.server.send(lines % (length * b"a") + b"\r\nConnection: close\r\n\r\n")
            self.assertEqual(answer.split(b" ", 2)[1], status)

    def test_broken_requests(self):
        for text in (b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                     b"GET /echo HTTP/9.9\r\n\r\n", b"GET /echo HTTP/1.1\r\nNo colon\r\n\r\n",
                     b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -3\r\n\r\n",
                     b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                     b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 30000 + b"\r\n"):
            with self.server.connect() as connection:
                connection.settimeout(bound(5))
                try:
                    connection.sendall(text)
                    connection.shutdown(socket.SHUT_WR)
                    answer = read_all(connection)
                except OSError:
                    answer = b""
                self.assertNotIn(b" 200 ", answer[:20])
        self.assertEqual(self.server.get("/echo", b"still here"), (200, b"still here"))


class Leaving(unittest.TestCase):
    def test_client_leaves(self):
        """Also a client whose connection waits, and writes nothing, is missed at once."""
        with Server() as server:
            for path in ("/silent", "/stream?n=100000&ms=20"):
                n_gone = server.stats()[1]
                for _ in range(20):
                    with server.connect() as connection:
                        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                        server.wait_for(lambda live, _: live == 1, 5)
                    server.wait_for(lambda live, _: live == 0, 1)
                self.assertEqual(server.stats()[1], n_gone + 20)

    def test_slow_requests_are_cut(self):
        """A request must be there within the time limit, however much of it trickles in."""
        with Server("2") as server:
            with server.connect() as silent, server.connect() as slow:
                begin = time.monotonic()
                slow.sendall(b"GET /echo HTTP/1.1\r\nHost: x\r\nX: ")
                slow.settimeout(0.1)
                while True:
                    try:
                        slow.sendall(b"a")
                        if not slow.recv(10):
                            break
                    except TimeoutError:
                        pass
                    except ConnectionError:
                        break
                    self.assertLess(time.monotonic() - begin, bound(10))
                silent.settimeout(bound(10))
                self.assertEqual(silent.recv(10), b"")
            self.assertEqual(server.get("/echo", b"x"), (200, b"x"))

    def test_slow_readers_have_a_time_limit_of_their_own(self):
        with Server("1,60") as server:
            with slow_reader(server, f"/big?n={BIG_BYTES}") as connection:
                time.sleep(3)  # three times what a request may take
                text = b""
                while len(body_of(text)) < BIG_BYTES:
                    part = connection.recv(1 << 20)
                    self.assertTrue(part, len(text))
                    text += part
                connection.settimeout(50)  # the next request has the first limit again
                self.assertEqual(connection.recv(10), b"")

    def read_after(self, server, seconds):
        """How many bytes come to a reader that pauses so long."""
        n = 0
        with slow_reader(server, f"/big?n={BIG_BYTES}") as connection:
            time.sleep(seconds)
            try:
                while part := connection.recv(1 << 20):
                    n += len(part)
            except ConnectionError:
                pass
        return n

    def test_readers_that_pause_too_long_are_cut(self):
        """A server on a busy machine may still fill the connection for some of the first pause."""
        with Server("1,2") as server:
            self.assertTrue(any(self.read_after(server, seconds) < BIG_BYTES
                                for seconds in (4, 16, 64)))

    def test_many_streams(self):
        with Server() as server:
            connections = [server.connect() for _ in range(300)]
            for connection in connections:
                connection.sendall(b"GET /stream?n=20&ms=10 HTTP/1.1\r\nHost: x\r\n"
                                   b"Connection: close\r\n\r\n")
            for connection in connections:
                text = read_all(connection)
                self.assertIn(b"\n19 ", text)
                connection.close()
            server.wait_for(lambda live, _: live == 0, 5)

    def test_end_with_streams_open(self):
        with Server() as server:
            streams = [server.connect() for _ in range(10)]
            for i, connection in enumerate(streams):
                path = b"/silent" if i % 2 else b"/stream?n=100000&ms=5"
                connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            server.wait_for(lambda live, _: live == 10, 5)
            begin = time.monotonic()
            server.stop()
            self.assertLess(time.monotonic() - begin, bound(5))
            for connection in streams:
                connection.close()


    def test_end_waits_for_slow_readers(self):
        """They get their answer whole, and no further request is taken."""
        with Server("30,30,60000") as server:
            with slow_reader(server, f"/big?n={BIG_BYTES}") as connection:
                parts = [connection.recv(100)]
                server.process.send_signal(signal.SIGTERM)
                time.sleep(1.5)
                while part := connection.recv(1 << 20):
                    parts.append(part)
                self.assertEqual(len(body_of(b"".join(parts))), BIG_BYTES)

    def test_last_answer_closes(self):
        with Server("30,30,3000") as server:
            kept = server.connect()
            kept.sendall(b"GET /stream?n=40&ms=20 HTTP/1.1\r\nHost: x\r\n\r\n")
            other = server.connect()
            other.sendall(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertNotIn(b"Connection: close", other.recv(4096))
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            other.sendall(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertIn(b"Connection: close", read_all(other))
            self.assertIn(b"\n39 ", read_all(kept))
            kept.close()
            other.close()


def make_certificate(folder, name):
    paths = [os.path.join(folder, f"{name}.{kind}") for kind in ("crt", "key")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                    "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-out", paths[0], "-keyout", paths[1]], check=True, capture_output=True)
    return paths


class Tls(unittest.TestCase):
    def names(self, server):
        """The name in the certificate that is served."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(self.trusted)
        with context.wrap_socket(server.connect()) as connection:
            connection.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
            self.assertIn(b"abc", connection.recv(4096) + connection.recv(4096))
            return connection.getpeercert()["subject"][0][0][1]

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.first = make_certificate(self.folder.name, "first")
        self.second = make_certificate(self.folder.name, "second")
        self.trusted = os.path.join(self.folder.name, "all")
        pathlib.Path(self.trusted).write_text(
            "".join(pathlib.Path(path).read_text() for path in (self.first[0], self.second[0])))

    def tearDown(self):
        self.folder.cleanup()

    def test_certificate_is_replaced(self):
        live = [os.path.join(self.folder.name, f"live.{kind}") for kind in ("crt", "key")]

        def serve_now(paths):
            for source, target in zip(paths, live):
                os.replace(shutil.copy(source, target + ".new"), target)

        serve_now(self.first)
        with Server(tls=live) as server:
            self.assertEqual(self.names(server), "first")
            serve_now(self.second)
            self.assertEqual(self.names(server), "second")
            serve_now((self.first[0], self.second[1]))  # which do not belong together
            for _ in range(2):
                self.assertEqual(self.names(server), "second")
            server.stop()
            log = server.log
        self.assertEqual(log.count("certificates_refused"), 1, log)
        self.assertIn("does not belong to the certificate", log)

    def test_a_refusal_has_one_head(self):
        context = ssl._create_unverified_context()
        with Server(tls=self.first) as server:
            with context.wrap_socket(server.connect()) as connection:
                connection.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\n")
                answer = b""
                try:
                    while part := connection.recv(4096):
                        answer += part
                except ssl.SSLError:  # the connection may end without a goodbye
                    pass
            check_refused(self, answer, b"400")
            # libmicrohttpd 0.9.75 must not be stopped before it has made its own answer, too.
            self.assertEqual(self.status(server), 200)

    def status(self, server, certificate=None):
        context = ssl._create_unverified_context()
        if certificate:
            context.load_cert_chain(*certificate)
        with context.wrap_socket(server.connect()) as connection:
            for _ in range(2):  # the second one finds what the first one has found
                connection.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\n"
                                   b"Content-Length: 3\r\n\r\nabc")
                answer = connection.recv(4096)
                while b"\r\n\r\n" not in answer:
                    answer += connection.recv(4096)
                status = int(answer.split()[1])
                if status != 200:
                    break
            return status

    def test_clients_show_certificates(self):
        with Server(tls=[*self.second, self.first[0]]) as server:
            self.assertEqual(self.status(server, self.first), 200)
            self.assertEqual(self.status(server, self.second), 403)
            self.assertEqual(self.status(server), 403)

    def test_authorities_of_clients_are_replaced(self):
        """Also for connections that are there."""
        authorities = os.path.join(self.folder.name, "authorities")
        shutil.copy(self.first[0], authorities)
        with Server(tls=[*self.second, authorities]) as server:
            kept = ssl._create_unverified_context()
            kept.load_cert_chain(*self.first)
            with kept.wrap_socket(server.connect()) as connection:
                request = b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n"
                connection.sendall(request)
                answer = connection.recv(4096)
                while not answer.endswith(b"1\n"):
                    answer += connection.recv(4096)
                self.assertIn(b" 200 ", answer[:20])
                os.replace(shutil.copy(self.second[0], authorities + ".new"), authorities)
                self.assertEqual(self.status(server, self.first), 403)
                self.assertEqual(self.status(server, self.second), 200)
                connection.sendall(request)
                self.assertIn(b" 403 ", connection.recv(4096)[:20])
            pathlib.Path(authorities).write_text("nonsense")
            self.assertEqual(self.status(server, self.second), 200)
            self.assertEqual(self.status(server), 403)

    def test_leaving_is_noticed(self):
        context = ssl._create_unverified_context()
        with Server(tls=self.first) as server:
            with context.wrap_socket(server.connect()) as connection:
                connection.sendall(b"GET /stream?n=3&ms=1 HTTP/1.1\r\nHost: x\r\n\r\n")
                self.assertIn(b" 200 ", connection.recv(4096))
            with server.connect() as plain:
                plain.sendall(b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n")
                self.assertNotIn(b" 200 ", plain.recv(4096))

    def test_wrong_files(self):
        for files, words in (((self.first[0], self.second[1]), "does not belong"),
                             ((self.first[1], self.first[1]), "holds no certificate"),
                             ((self.first[0], self.first[0]), "holds no private key"),
                             (("/nowhere", self.first[1]), "/nowhere")):
            with self.assertRaisesRegex(AssertionError, words):
                Server(tls=files)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
