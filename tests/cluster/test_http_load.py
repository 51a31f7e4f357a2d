#!/usr/bin/env python3
# ctest: labels=full,memory libs=base beside=yes timeout=900
"""The HTTP door under crowds and under attack: a thousand streams at once of which none is lost,
hundreds of clients that vanish in mid-stream and leave nothing over, and thousands of requests that
are wrong in every way, of which each gets the right status and none costs anybody else anything."""
import asyncio
import http.client
import json
import random
import re
import resource
import socket
import sys
import time
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from cluster import Cluster, bound, is_sanitized, wait_until
from far_cluster import FarRanks

BUILD = sys.argv[1]
SLOW = 10 if is_sanitized(BUILD) else 1
N_STREAMS = 1000 // SLOW
N_VANISHING = 500 // SLOW
N_MALFORMED = 10000 // SLOW
SEED = 11
DONE = "(?:length|stop)"  # how a text ends that was made as a whole
PROMPT = "Once upon a time"


def setUpModule():
    global world
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    world = Cluster(BUILD, http=True, coordinator_flags=[
        "--queue", "2048", "--http-connections", "4096"])
    world.__enter__()


def tearDownModule():
    """A sanitizer's complaint, also of a leak, is an exit status."""
    statuses = world.stop()
    world.__exit__(None, None, None)
    if any(statuses.values()):
        raise AssertionError(f"exit statuses: {statuses}")


def request(body, path="/v1/completions", method="POST", headers=""):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    head = (f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}"
            f"Content-Length: {len(body)}\r\n\r\n")
    return head.encode("latin-1") + body


async def connect():
    host, port = world.http.rsplit(":", 1)
    return await asyncio.open_connection(host, int(port))


async def exchange(data, timeout=60 * SLOW):
    """Returns what comes back for these bytes until the server closes; b"" where it cuts the
    connection."""
    reader, writer = await connect()
    try:
        writer.write(data)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), timeout)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def load():
    return json.loads(world.outrider("describe", "--json").stdout)["load"]


def text_of(answer):
    """The text of a stream, and whether its end has come."""
    texts = [json.loads(line[6:])["choices"] for line in answer.decode().splitlines()
             if line.startswith("data: {")]
    return "".join(c[0]["text"] for c in texts if c), b"data: [DONE]" in answer


class Crowds(unittest.TestCase):
    def test_a_thousand_streams(self):
        async def all_of_them():
            bodies = [{"prompt": PROMPT, "max_tokens": 12, "temperature": 1, "seed": seed % 10,
                       "ignore_eos": True, "stream": True} for seed in range(N_STREAMS)]
            return await asyncio.gather(*(exchange(request(body), 300) for body in bodies))

        answers = [text_of(answer) for answer in asyncio.run(all_of_them())]
        self.assertTrue(all(is_done for _, is_done in answers))
        for seed in range(10):
            self.assertEqual(len({text for text, _ in answers[seed::10]}), 1)
        self.assertEqual(len({text for text, _ in answers}), 10)

    def test_clients_that_vanish(self):
        """Their places and their blocks are free before their texts are at their ends."""
        async def vanish():
            body = {"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "stream": True,
                    "outrider": {"n_draft": 0}}
            pairs = [await connect() for _ in range(N_VANISHING)]
            for _, writer in pairs:
                writer.write(request(body))
            await asyncio.wait_for(pairs[0][0].readuntil(b"data: "), 60)
            await asyncio.sleep(0.5)
            for number, (_, writer) in enumerate(pairs):
                if number % 2:
                    writer.transport.abort() # a reset
                else:
                    writer.close()

        before = load()["ends"]["cancelled"]
        asyncio.run(vanish())
        wait_until(lambda: load()["running"] + load()["waiting"] == 0, 10, "all jobs are gone")
        self.assertGreater(load()["ends"]["cancelled"] - before, 0.9 * N_VANISHING)
        self.assertEqual(load()["target_kv"]["in_use"], 0)


class FarWorld(FarRanks, Cluster):
    """A text of 900 tokens without guesses takes 36 s or more."""
    delay_s = 0.02


class Leaving(unittest.TestCase):
    """A client that closes its connection is noticed while it waits, and before its text, or the
    text before it, has come to an end. How long that takes is only printed: from close() to the
    count of cancelled requests, which is asked for again and again."""
    N_TIMES = 20

    @classmethod
    def setUpClass(cls):
        cls.one = FarWorld(BUILD, http=True, coordinator_flags=["--sequences", "1"])
        cls.one.__enter__()
        cls.addClassCleanup(cls.one.__exit__, None, None, None)
        cls.host, cls.port = cls.one.http.rsplit(":", 1)
        cls.scraper = http.client.HTTPConnection(cls.host, int(cls.port), timeout=bound(10))
        cls.addClassCleanup(cls.scraper.close)

    def metric(self, pattern):
        self.scraper.request("GET", "/metrics")
        text = self.scraper.getresponse().read().decode()
        return sum(float(value) for value in re.findall(rf"^{pattern} (\S+)$", text, re.M))

    def ends(self, kind):
        """kind: a pattern."""
        return self.metric(rf'outrider_job_ends_total\{{[^}}]*end="{kind}"[^}}]*\}}')

    def begin(self):
        client = socket.create_connection((self.host, int(self.port)), timeout=bound(20))
        client.sendall(request({"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True,
                                "stream": True, "outrider": {"n_draft": 0}}))
        return client

    def time_of_leaving(self, client):
        before = self.ends("cancelled")
        began = time.monotonic()
        client.close()
        while self.ends("cancelled") == before:
            self.assertLess(time.monotonic() - began, bound(5))
        return time.monotonic() - began

    @staticmethod
    def print_times(what, times):
        times.sort()
        print(f"{what}: noticed after {1e3 * times[len(times) // 2]:.2f} ms at the median of "
              f"{len(times)}, {1e3 * times[-1]:.2f} at most", file=sys.stderr)

    def test_in_mid_stream(self):
        times, done = [], self.ends(DONE)
        for _ in range(self.N_TIMES):
            client = self.begin()
            while b"data: " not in client.recv(65536):
                pass
            times.append(self.time_of_leaving(client))
        self.assertEqual(self.ends(DONE), done, "a text was made to its end for nobody")
        self.print_times("mid-stream", times)

    def test_in_the_queue(self):
        """Somebody else has the only place, and a second one is next; the connection of the one who
        waits is suspended."""
        times, others, n_early = [], [], 0
        while len(times) < self.N_TIMES:
            while self.metric(r"outrider_num_requests_(?:running|waiting)(?:\{.*\})?") < 2:
                others.append(self.begin())
                time.sleep(0.05)
            client = self.begin()
            time.sleep(0.03) # it is in the queue
            done = self.ends(DONE)
            times.append(self.time_of_leaving(client))
            n_early += self.ends(DONE) == done
        for other in others:
            other.close()
        self.assertGreater(n_early, 0, "it was noticed only when a text before it had ended")
        self.print_times("in the queue", times)


WORDS = ["prompt", "messages", "max_tokens", "n", "stop", "stream", "logit_bias", "outrider",
         "model", "temperature", "seed", "role", "content", "stream_options"]


class Mutator:
    """Requests that are wrong, from a fixed seed, each with the statuses that it may get; None: the
    connection is cut."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def value(self, depth=0):
        choose = self.random.randrange(11 if depth < 4 else 7)
        if choose == 0:
            return self.random.choice([0, -1, 1 << 31, 1 << 63, -(1 << 63), 1e308, 0.5, 1e-9])
        if choose == 1:
            return self.random.choice([True, False, None])
        if choose < 5:
            return "".join(self.random.choice("aä🙂\u0001\"\\\u2028x \n")
                           for _ in range(self.random.randrange(9)))
        if choose < 7:
            return self.random.choice(WORDS)
        if choose < 9:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        return {self.random.choice(WORDS): self.value(depth + 1)
                for _ in range(self.random.randrange(4))}

    def wrong_values(self):
        """A body whose fields have random values; some of them are right by chance."""
        body = {"prompt": "x", "max_tokens": 1}
        for _ in range(1 + self.random.randrange(3)):
            body[self.random.choice(WORDS)] = self.value()
        if body.get("max_tokens") is None or body.get("stream"):
            body["max_tokens"], body["stream"] = 1, False
        path = self.random.choice(["/v1/completions", "/v1/chat/completions", "/tokenize",
                                   "/detokenize"])
        return request(body, path), {b"200", b"400", b"404"}

    def broken_json(self):
        text = bytearray(json.dumps({"prompt": "x", "max_tokens": 1, "stop": ["a", "b"],
                                     "logit_bias": {"1": 2}}).encode())
        for _ in range(1 + self.random.randrange(6)):
            at = self.random.randrange(len(text))
            action = self.random.randrange(3)
            if action == 0:
                text[at] = self.random.randrange(256)
            elif action == 1:
                del text[at]
            else:
                text[at:at] = bytes([self.random.randrange(256)])
        return request(bytes(text)), {b"200", b"400"}

    def deep_json(self):
        mark = self.random.choice([b"[", b'{"a":', b"[[", b'"\\ud800'])
        return request(mark * self.random.randrange(1, 5000)), {b"400", b"200"}

    def broken_http(self):
        text = bytearray(request({"prompt": "x", "max_tokens": 1}, headers="X-Some: thing\r\n"))
        for _ in range(1 + self.random.randrange(5)):
            at = self.random.randrange(min(len(text), 140))
            if self.random.randrange(2):
                text[at] = self.random.randrange(256)
            else:
                del text[at:at + self.random.randrange(1, 9)]
        return bytes(text), None

    def wrong_size(self):
        length = self.random.choice(["-1", "99999999999999999999", "1e3", "0x10", "", "5, 6", "+5"])
        return (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                f"Content-Length: {length}\r\n\r\n{{}}").encode(), {b"400", b"413"}

    def wrong_route(self):
        path = "/" + "".join(self.random.choice("v1/completions%2e.~é?&=#")
                             for _ in range(self.random.randrange(40))).replace("#", "")
        method = self.random.choice(["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "BREW"])
        data = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        is_page = path.split("?")[0] == "/"
        return data.encode(), {b"404", b"405", b"400"} | ({b"200"} if is_page else set())

    def any(self):
        return self.random.choice([self.wrong_values, self.wrong_values, self.broken_json,
                                   self.broken_json, self.deep_json, self.broken_http,
                                   self.wrong_size, self.wrong_route])()


class Attacks(unittest.TestCase):
    def test_malformed_requests(self):
        mutator = Mutator(SEED)
        cases = [mutator.any() for _ in range(N_MALFORMED)]
        seen = {}

        async def one(limit, data, allowed):
            async with limit:
                try:
                    answer = await exchange(data, 10 * SLOW)
                except asyncio.TimeoutError:
                    # Broken so that it announces more than comes: the server waits for the rest.
                    self.assertIsNone(allowed, data)
                    return
            status = answer.split(b" ", 2)[1] if answer.startswith(b"HTTP/1.1 ") else b""
            seen[status] = seen.get(status, 0) + 1
            self.assertFalse(status.startswith(b"5"), (data, answer))
            if allowed is not None:
                self.assertIn(status, allowed, (data, answer))

        async def all_of_them():
            limit = asyncio.Semaphore(64)
            await asyncio.gather(*(one(limit, *case) for case in cases))

        asyncio.run(all_of_them())
        self.assertGreater(seen.get(b"400", 0), N_MALFORMED // 4)
        answer = asyncio.run(exchange(request({"prompt": PROMPT, "max_tokens": 3})))
        self.assertTrue(answer.startswith(b"HTTP/1.1 200 "))
        wait_until(lambda: load()["running"] + load()["waiting"] == 0, 20, "nothing is left")
        self.assertEqual(load()["target_kv"]["in_use"], 0)

    def test_large_bodies(self):
        """The prompt is bounded, the body is, and what a body becomes in memory is."""
        for body, status in ((b'{"prompt":"' + b"x" * (5 << 20) + b'"}', b"400"),
                             (b"[" + b"1," * (4 << 20) + b"1]", b"400"),
                             (b"x" * (12 << 20), b"413")):
            answer = asyncio.run(exchange(request(body)))
            self.assertEqual(answer.split(b" ", 2)[1], status, answer[:300])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
