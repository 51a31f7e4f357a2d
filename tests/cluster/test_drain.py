#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes timeout=300
"""SIGTERM under load: both doors say at once that nothing new is taken, and every request that was
accepted, whether it runs or waits, is answered as if nothing had happened. What does not end in
time ends with a sentence, and a second SIGTERM ends the process at once."""
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
import parallel_cases
from cluster import Cluster, bound, slowness, wait_until
from far_cluster import FarRanks

BUILD = sys.argv[1]
PROMPT = "Once upon a time there was a king who"
N_TEXTS = 24
N_PLACES = 8


class FarCluster(FarRanks, Cluster):
    """A text without guesses takes 100 ms or more for each token."""
    delay_s = 0.05


class NearCluster(FarRanks, Cluster):
    """A text without guesses takes 20 ms or more for each token."""
    delay_s = 0.01


class Post(threading.Thread):
    """One request over HTTP, whose answer or error is kept."""

    def __init__(self, world, body, path="/v1/completions"):
        super().__init__()
        self.url, self.body = world.url + path, body
        self.status = self.answer = self.headers = None
        self.start()

    def run(self):
        request = urllib.request.Request(self.url, json.dumps(self.body).encode())
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                self.status, self.headers = answer.status, answer.headers
                self.answer = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            self.status, self.headers = error.code, error.headers
            self.answer = json.loads(error.read())
        except OSError as error:
            self.answer = str(error)


def body(seed, n=60):
    return {"prompt": PROMPT, "max_tokens": n, "temperature": 1, "seed": seed, "ignore_eos": True}


class Watch(threading.Thread):
    """Reads the events of a job, as slowly as told."""

    def __init__(self, world, job, pause=0):
        super().__init__()
        self.url, self.pause = f"{world.url}/v1/jobs/{job}/events", pause
        self.events = []
        self.start()

    def run(self):
        try:
            with urllib.request.urlopen(self.url, timeout=60) as answer:
                for line in answer:
                    if line.startswith(b"event: "):
                        self.events.append(line[7:].strip().decode())
                        time.sleep(self.pause)
        except OSError as error:
            self.events.append(repr(error))


def slow_answer(world, ask, pause):
    """The status line and the body of a large answer, read in small pieces with pauses."""
    host, port = world.http.rsplit(":", 1)
    data = json.dumps(ask).encode()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host, int(port)))
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                       b"Content-Length: %d\r\n\r\n" % len(data) + data)
        client.settimeout(30)
        parts = []
        while part := client.recv(65536):
            parts.append(part)
            time.sleep(pause)
    head, _, rest = b"".join(parts).partition(b"\r\n\r\n")
    promised = int(re.search(rb"(?i)content-length: (\d+)", head).group(1))
    return head.split(b"\r\n")[0], promised, len(rest)


def status_of(world, path):
    try:
        with urllib.request.urlopen(world.url + path, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def blocks_sigterm(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        mask = int(re.search(r"^SigBlk:\s*(\w+)", status.read(), re.M).group(1), 16)
    return bool(mask >> (signal.SIGTERM - 1) & 1)


def load(world):
    return json.loads(world.outrider("describe", "--json").stdout)["load"]


def accepted(world):
    """Requests that run, wait or have ended: on a busy machine some end before others come."""
    now = load(world)
    return now["running"] + now["waiting"] + sum(now["ends"].values())


class Drain(unittest.TestCase):
    def cluster(self, seconds, kind=Cluster, flags=()):
        world = kind(BUILD, http=True, coordinator_flags=[
            "--drain-timeout", str(seconds), "--sequences", str(N_PLACES), "--queue", "64",
            *flags])
        self.addCleanup(world.__exit__, None, None, None)
        return world.__enter__()

    def test_all_that_was_accepted_is_answered(self):
        world = self.cluster(60, NearCluster)
        alone = [Post(world, body(seed)) for seed in range(3)]
        for post in alone:
            post.join()
        posts = [Post(world, body(seed, 200 if seed > 2 else 60)) for seed in range(N_TEXTS)]
        calls = [subprocess.Popen(world.command("generate", PROMPT, "-n", "200", "--ignore-eos",
                                                "--json"),
                                  stdout=subprocess.PIPE, env=world.client_environment())
                 for _ in range(4)]
        job = Post(world, body(1, 100), "/v1/jobs")
        job.join()
        wait_until(lambda: accepted(world) >= len(alone) + N_TEXTS + len(calls) + 1, 60,
                   "all of them are there")
        # The coordinator is there until this text ends, 6 s later at the earliest.
        last = Post(world, dict(body(1, min(900, int(300 * slowness()))), outrider={"n_draft": 0}))
        wait_until(lambda: accepted(world) >= len(alone) + N_TEXTS + len(calls) + 2, 60,
                   "the last one is there")
        world.coordinator.process.send_signal(signal.SIGTERM)
        wait_until(lambda: status_of(world, "/ready") == 503, 5, "it is not ready any more")
        self.assertEqual(status_of(world, "/health"), 200)
        self.assertFalse(world.is_serving())
        late = Post(world, body(0))
        late.join()
        self.assertEqual((late.status, late.headers["retry-after"]), (503, "1"))
        self.assertIn("shutting down", late.answer["error"]["message"])
        refused = world.outrider("generate", PROMPT, "-n", "1")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("shutting down", refused.stderr)
        self.assertEqual(status_of(world, f"/v1/jobs/{job.answer['id']}"), 200)
        for post in [*posts, last]:
            post.join()
            self.assertEqual(post.status, 200, post.answer)
        for seed in range(3):
            self.assertEqual(posts[seed].answer["choices"][0]["text"],
                             alone[seed].answer["choices"][0]["text"])
        for call in calls:
            out, _ = call.communicate(timeout=60)
            self.assertEqual(call.returncode, 0)
            self.assertEqual(json.loads(out)["completion_tokens"], 200)
        self.assertEqual(world.coordinator.wait(20), 0)

    def test_watchers_hear_how_their_jobs_ended(self):
        """Through both doors, although the last job ends with the engine."""
        for _ in range(3):
            world = self.cluster(60, NearCluster)
            plain = dict(body(1, min(900, int(150 * slowness()))), outrider={"n_draft": 0})
            job = Post(world, plain, "/v1/jobs")
            job.join()
            name = job.answer["id"]
            watches = [Watch(world, name), Watch(world, name, 0.005)]
            call = subprocess.Popen(world.command("jobs", "watch", name), stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, env=world.client_environment())
            wait_until(lambda: all(w.events for w in watches) and
                       select.select([call.stdout], [], [], 0)[0], 20, "they watch")
            world.coordinator.process.send_signal(signal.SIGTERM)
            for watch in watches:
                watch.join()
                self.assertEqual(watch.events[-2:], ["summary", "end"])
                self.assertEqual(set(watch.events), {"tokens", "summary", "end"})
            _, said = call.communicate(timeout=60)
            self.assertEqual(call.returncode, 0, said)
            self.assertEqual(world.coordinator.wait(20), 0)

    def test_a_slow_reader_reads_to_the_end(self):
        world = self.cluster(30)
        ask = {"prompt": list(range(300, 1300)), "max_tokens": 1, "echo": True, "logprobs": 20,
               "n": 4}
        answers = []
        reader = threading.Thread(
            target=lambda: answers.append(slow_answer(world, ask, 0.01)))
        reader.start()
        wait_until(lambda: accepted(world) > 0, 60, "it has come")
        world.coordinator.process.send_signal(signal.SIGTERM)
        reader.join()
        status, promised, got = answers[0]
        self.assertIn(b" 200 ", status)
        self.assertGreater(promised, 1 << 20)
        self.assertEqual(got, promised)
        self.assertEqual(world.coordinator.wait(30), 0)

    def test_a_reader_that_does_not_read_is_cut_off_in_time(self):
        world = self.cluster(2)
        ask = json.dumps({"prompt": list(range(300, 1300)), "max_tokens": 1, "echo": True,
                          "logprobs": 20, "n": 4}).encode()
        host, port = world.http.rsplit(":", 1)
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect((host, int(port)))
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Length: %d\r\n\r\n"
                           % len(ask) + ask)
            client.recv(100)
            world.coordinator.process.send_signal(signal.SIGTERM)
            self.assertEqual(world.coordinator.wait(15), 0)

    def test_what_does_not_end_in_time(self):
        world = self.cluster(1, FarCluster, ["--calibrate", "0"])
        posts = [Post(world, dict(body(seed, 1000), outrider={"n_draft": 0}))
                 for seed in range(2 * N_PLACES)]
        wait_until(lambda: load(world)["waiting"] > 0, 20, "some of them wait")
        began = time.monotonic()
        world.coordinator.process.send_signal(signal.SIGTERM)
        self.assertEqual(world.coordinator.wait(20), 0)
        self.assertGreaterEqual(time.monotonic() - began, 0.9)
        for post in posts:
            post.join()
            self.assertEqual(post.status, 503)
            self.assertIn("shutting down", post.answer["error"]["message"])

    def test_second_signal(self):
        """While texts run that take 20 s or more: none of them ends before the signals come."""
        world = self.cluster(60, NearCluster, ["--calibrate", "0"])
        posts = [Post(world, dict(body(seed, 1000), outrider={"n_draft": 0}))
                 for seed in range(N_PLACES)]
        wait_until(lambda: load(world)["running"] == N_PLACES, 20, "they run")
        world.coordinator.process.send_signal(signal.SIGTERM)
        wait_until(lambda: status_of(world, "/ready") == 503, 5, "it drains")
        world.coordinator.process.send_signal(signal.SIGTERM)
        self.assertEqual(world.coordinator.wait(5), 128 + signal.SIGTERM)
        for post in posts:
            post.join()

    def test_told_while_it_starts(self):
        """It has accepted nothing: it does not begin to serve, only to be cut off later."""
        command = [os.path.join(BUILD, "bin", "outrider-coordinator"), "--target", "127.0.0.1:1",
                   "--draft", "synthetic:qwen2.5-0.5b,seed=1", "--listen", "127.0.0.1:0",
                   "--http", "127.0.0.1:0", "--drain-timeout", "60"]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as program:
            self.addCleanup(program.kill)
            wait_until(lambda: blocks_sigterm(program.pid), 10, "it takes signals")
            program.send_signal(signal.SIGTERM)
            self.assertEqual(program.wait(bound(10)), 128 + signal.SIGTERM)
            self.assertNotIn(b"ready", program.stderr.read())

    def test_idle(self):
        world = self.cluster(60)
        world.coordinator.process.send_signal(signal.SIGTERM)
        self.assertEqual(world.coordinator.wait(5), 0)


if __name__ == "__main__":
    parallel_cases.main(verbosity=2)
