#!/usr/bin/env python3
# ctest: labels=full libs=coordinator beside=yes timeout=300
"""Clients while a rank hangs in a step: those whose time is over, who cancel or who leave are done
with at once, whether they wait or are in the step, and others may take their places in the queue; a
place is used again when the step is answered. /ready says that the group is late, a group that does
not answer is let go after seconds, and SIGTERM ends the coordinator in its time."""
import json
import os
import signal
import socket
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
import parallel_cases
from cluster import Cluster, bound, wait_until

BUILD = sys.argv[1]
PROMPT = "Once upon a time there was a king who"
TIMEOUT_MS = 1500
LATE_S = 1.5  # far less than the seconds after which the group would be lost


class Post(threading.Thread):
    """One request, whose answer or error is kept, and when it came."""

    def __init__(self, world, path="/v1/completions", **body):
        super().__init__()
        self.url, self.body = world.url + path, body
        self.status = self.answer = None
        self.began, self.seconds = time.monotonic(), None
        self.start()

    def run(self):
        request = urllib.request.Request(self.url, json.dumps(self.body).encode())
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                self.status, self.answer = answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            self.status, self.answer = error.code, json.loads(error.read())
        except OSError as error:
            self.answer = str(error)
        self.seconds = time.monotonic() - self.began

    def text(self):
        self.join()
        assert self.status == 200, self.answer
        return self.answer["choices"][0]["text"]


def ask(n=1, **more):
    return {"prompt": PROMPT, "max_tokens": n, "temperature": 0, "ignore_eos": True, **more}


def in_time():
    return {"outrider": {"timeout_ms": TIMEOUT_MS}}


def get(world, path):
    try:
        with urllib.request.urlopen(world.url + path, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def load(world):
    now = json.loads(world.outrider("describe", "--json").stdout)["load"]
    return now["running"], now["waiting"]


def client_that_waits(world):
    host, port = world.http.rsplit(":", 1)
    data = json.dumps(ask()).encode()
    client = socket.create_connection((host, int(port)))
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
                   % len(data) + data)
    return client


class Hang(unittest.TestCase):
    def cluster(self, *flags):
        world = Cluster(BUILD, http=True, coordinator_flags=["--sequences", "1", *flags])
        self.addCleanup(world.__exit__, None, None, None)
        return world.__enter__()

    def hang(self, world):
        pid = world.rank_pids()[0]
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(self.go_on, pid)
        return pid

    @staticmethod
    def go_on(pid):
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def check_in_time(self, post):
        post.join()
        self.assertEqual(post.status, 504, post.answer)
        self.assertGreaterEqual(post.seconds, TIMEOUT_MS / 1000)
        self.assertLess(post.seconds, TIMEOUT_MS / 1000 + bound(LATE_S))

    def check_cancel(self, world, job):
        began = time.monotonic()
        cancel = Post(world, f"/v1/jobs/{job}/cancel")
        cancel.join()
        self.assertEqual(cancel.status, 200, cancel.answer)
        wait_until(lambda: get(world, f"/v1/jobs/{job}")[1]["end"] == "cancelled", 10,
                   "the job is cancelled")
        self.assertLess(time.monotonic() - began, bound(LATE_S))

    def submit(self, world):
        post = Post(world, "/v1/jobs", **ask())
        post.join()
        self.assertEqual(post.status, 200, post.answer)
        return post.answer["id"]

    def test_nobody_waits_longer_than_asked(self):
        """Nothing is known of the group's steps yet, so it is not let go meanwhile."""
        world = self.cluster("--queue", "2", "--calibrate", "0")
        pid = self.hang(world)
        inside = Post(world, **ask(**in_time()))
        wait_until(lambda: load(world) == (1, 0) or inside.status, 10, "it is in the step")
        behind = Post(world, **ask(**in_time()))
        wait_until(lambda: load(world)[1] == 1 or behind.status, 10, "the other one waits")
        job = self.submit(world)
        self.check_cancel(world, job)
        self.check_in_time(inside)
        self.check_in_time(behind)
        self.assertEqual(load(world), (0, 0))
        clients = [client_that_waits(world) for _ in range(2)]
        wait_until(lambda: load(world) == (0, 2), 10, "the queue is full")
        refused = Post(world, **ask(**in_time()))
        refused.join()
        self.assertEqual(refused.status, 429, refused.answer)
        for client in clients:
            client.close()
        wait_until(lambda: load(world) == (0, 0), 10, "they have left")
        self.check_in_time(Post(world, **ask(**in_time())))
        began = time.monotonic()
        done = world.outrider("generate", PROMPT, "-n", "1", "--deadline", str(TIMEOUT_MS))
        self.assertLess(time.monotonic() - began, TIMEOUT_MS / 1000 + bound(LATE_S))
        self.assertIn("time is over", done.stderr)
        self.go_on(pid)
        self.assertTrue(Post(world, **ask()).text())
        pid = self.hang(world)
        running = self.submit(world)
        wait_until(lambda: load(world) == (1, 0), 10, "it is in the step")
        self.check_cancel(world, running)
        self.assertEqual(load(world), (0, 0))
        next_one = Post(world, **ask(20))
        wait_until(lambda: load(world) == (0, 1), 10, "it waits for the place")
        self.go_on(pid)
        text = next_one.text()
        self.assertEqual(Post(world, **ask(20, outrider={"n_draft": 0})).text(), text)
        self.assertNotIn("target_lost", world.coordinator.log())

    def test_a_group_that_does_not_answer(self):
        world = self.cluster("--drain-timeout", "2")
        for n_draft in (0, 4):  # so that its steps are known
            Post(world, **ask(200, outrider={"n_draft": n_draft})).join()
        text = Post(world, **ask(20)).text()
        self.assertEqual(get(world, "/ready")[0], 200)
        # It is late, and goes on.
        pid = self.hang(world)
        post = Post(world, **ask(20))
        status, why = wait_until(lambda: (lambda r: r if r[0] == 503 else None)(
            get(world, "/ready")), 20, "it is not ready any more")
        self.assertGreater(time.monotonic() - post.began, 1.9)
        self.assertIn("does not answer", why["error"]["message"])
        self.assertEqual(get(world, "/health")[0], 200)
        self.assertFalse(world.is_serving())
        self.assertIsNone(post.status)
        self.assertIn(" step_overdue ", world.coordinator.log())
        self.go_on(pid)
        self.assertEqual(post.text(), text)
        wait_until(lambda: get(world, "/ready")[0] == 200, 10, "it is ready again")
        self.assertNotIn("target_lost", world.coordinator.log())
        for _ in range(3):  # short steps again
            self.assertEqual(Post(world, **ask(200)).text()[:len(text)], text)
        # It does not go on.
        pid = self.hang(world)
        post = Post(world, **ask(20))
        post.join()
        self.assertEqual(post.status, 503, post.answer)
        self.assertIn("no answer for", post.answer["error"]["message"])
        self.assertGreater(post.seconds, 4)
        self.go_on(pid)
        wait_until(lambda: get(world, "/ready")[0] == 200, 30, "the group is there again")
        self.assertEqual(Post(world, **ask(20)).text(), text)
        # It hangs while the coordinator is told to stop.
        self.hang(world)
        posts = [Post(world, **ask(20)) for _ in range(2)]
        wait_until(lambda: sum(load(world)) == 2, 10, "both are there")
        began = time.monotonic()
        world.coordinator.process.send_signal(signal.SIGTERM)
        self.assertEqual(world.coordinator.wait(20), 0)
        self.assertLess(time.monotonic() - began, 2 + bound(LATE_S))
        for post in posts:
            post.join()
            self.assertEqual(post.status, 503, post.answer)
            self.assertIn("shutting down", post.answer["error"]["message"])


if __name__ == "__main__":
    parallel_cases.main(verbosity=2)
