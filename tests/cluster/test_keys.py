#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=300
"""API keys with real processes: who is served and who is not, what the holder of a key may do, and
that his jobs are his own; the file, its commands, and reading it again while texts are generated.
Skipped (77) where grpcio is not installed."""
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import stat
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from rpc_python import Caller, field, fields
from cluster import Cluster, TALES, wait_until
from fault_util import PATIENCE, SLOW_STEPS, FaultTest, Stream, World, main, program, run

COORDINATOR = program("outrider-coordinator")
DRAFT = os.path.join(TALES, "draft")
NOBODY = "unix:/tmp/outrider-nobody-listens-here"
METHODS = ("Generate", "Score", "Describe", "Submit", "Watch", "Get", "List", "Cancel", "Nonsense")
TURN_TOKENS = 512  # of a client of weight 1, and of each job here
N_EACH = 8


def request(prompt="Once upon a time", n=24, stop=""):
    """A GenerateRequest: greedy and plain."""
    return field(1, prompt) + field(3, n) + field(4, field(1, 0.0)) + field(5, field(1, 0)) + \
        (field(6, stop) if stop else b"") + field(7, 1)


def add_key(path, name, *limits):
    status, output = run(program("outrider"), "key", "add", path, name, *limits)
    assert status == 0, output
    return output.split()[0]


class KeysTest(FaultTest):
    """A coordinator whose file has the keys of alice, bob and carol. One text at a time."""
    LIMITS = {"alice": ["--weight", "3"], "bob": ["--weight", "1"], "carol": ["--max-jobs", "2"]}

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="outrider-keys-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.path = os.path.join(self.folder, "keys")
        self.keys = {name: add_key(self.path, name, *limits)
                     for name, limits in self.LIMITS.items()}
        self.world = World(worker_flags=SLOW_STEPS, coordinator_flags=[
            "--keys", self.path, "--sequences", "1"],
            environment={"OUTRIDER_API_KEY": self.keys["alice"]})
        self.addCleanup(self.world.leave)
        self.world.start()

    def tearDown(self):
        self.check_logs(self.world)

    def caller(self, name=None, key=None):
        made = Caller(self.world.address, key=self.keys[name] if name else key)
        self.addCleanup(made.close)
        return made

    def outrider_as(self, name, *args):
        return self.world.outrider(*args, environment={"OUTRIDER_API_KEY": self.keys[name]})

    def read_again(self, event="keys_read"):
        before = self.world.logs()["coordinator.log"].count(event)
        os.kill(self.world.coordinator.pid, signal.SIGHUP)
        wait_until(lambda: self.world.logs()["coordinator.log"].count(event) > before,
                   5 * PATIENCE, "the file is read again")

    def refused(self, caller, status, words, method="Generate", message=None):
        name, text = caller.refusal(method, request() if message is None else message)
        self.assertEqual((method, name), (method, status), text)
        self.assertIn(words, text)


class Calls(KeysTest):
    def test_who_is_served(self):
        stranger, right = self.caller(), self.caller("bob")
        for method in METHODS:
            self.refused(stranger, "UNAUTHENTICATED", "send it as 'authorization: Bearer", method)
        for key in ("or-" + "0" * 64, self.keys["bob"][:-1], self.keys["bob"] + "0", "bob", ""):
            self.refused(self.caller(key=key), "UNAUTHENTICATED", "Bearer KEY" if not key
                         else "the API key is not known here")
        self.assertEqual(len(list(right.stream("Describe", b""))), 1)
        self.assertGreater(len(list(right.stream("Generate", request()))), 1)
        self.refused(right, "UNIMPLEMENTED", "there is no method", "Nonsense")

    def test_health_asks_nobody(self):
        status, word = run(program("outrider"), "health", "-a", self.world.address,
                           environment={"OUTRIDER_API_KEY": ""})
        self.assertEqual((status, word), (0, "serving\n"))
        done = run(program("outrider"), "describe", "-a", self.world.address,
                   environment={"OUTRIDER_API_KEY": ""})
        self.check_failure(*done, "give --api-key KEY or set OUTRIDER_API_KEY")
        done = run(program("outrider"), "describe", "-a", self.world.address, "--api-key", "or-1")
        self.check_failure(*done, "the API key is not known here")

    def test_a_removed_key_is_refused_and_its_stream_goes_on(self):
        stream = Stream(self.world)
        self.assertEqual(run(program("outrider"), "key", "remove", self.path, "alice")[0], 0)
        self.assertEqual(self.world.outrider("describe").returncode, 0)
        self.read_again()
        self.assertIn("not known", self.world.outrider("describe").stderr)
        self.assertEqual(self.outrider_as("bob", "describe").returncode, 0)
        self.keys["dave"] = add_key(self.path, "dave")
        self.read_again()
        self.assertEqual(self.outrider_as("dave", "describe").returncode, 0)
        self.assertTrue(stream.is_running())
        self.assertEqual(stream.end(60)[0], 0)

    def test_a_bad_file_changes_nothing(self):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write("dave secret\n")
        self.read_again("keys_refused")
        log = self.world.logs()["coordinator.log"]
        self.assertEqual(log.count("keys_refused"), 1)
        self.assertIn(f"{self.path}:4: 'secret' is no hash of a key", log)
        self.assertEqual(self.outrider_as("bob", "describe").returncode, 0)

    def test_jobs_at_once_are_limited(self):
        carol = self.caller("carol")
        first = carol.stream("Generate", request(n=900))
        next(first)
        second = carol.stream("Generate", request(n=900))
        wait_until(lambda: self.waiting() == 1, 10 * PATIENCE, "the second one waits")
        for method, message in (("Generate", request()), ("Score", field(1, "Once upon")),
                                ("Submit", field(1, request()))):
            self.refused(carol, "RESOURCE_EXHAUSTED",
                         "the key of 'carol' allows 2 requests at once", method, message)
        self.assertEqual(self.outrider_as("bob", "describe").returncode, 0)
        second.cancel()
        wait_until(lambda: self.waiting() == 0, 10 * PATIENCE, "the second one has left")
        job = fields(carol.unary("Submit", field(1, request(n=900))))
        self.refused(carol, "RESOURCE_EXHAUSTED", "allows 2 requests", "Generate", request())
        carol.unary("Cancel", field(1, job[1][0]))
        wait_until(lambda: self.waiting() == 0, 10 * PATIENCE, "the job has ended")
        first.cancel()
        self.assertGreater(len(list(carol.stream("Generate", request()))), 1)

    def waiting(self):
        described = json.loads(self.outrider_as("bob", "describe", "--json").stdout)
        return described["load"]["waiting"]

    def test_jobs_are_their_owners(self):
        alice, bob = self.caller("alice"), self.caller("bob")
        mine = fields(alice.unary("Submit", field(1, request("One")) + field(2, "k")))[1][0]
        other = fields(bob.unary("Submit", field(1, request("Two")) + field(2, "k")))
        self.assertNotIn(12, other) # it did not exist
        for method in ("Get", "Watch", "Cancel"):
            self.refused(bob, "NOT_FOUND", "there is no job", method, field(1, mine))
        ids = [fields(job)[1][0] for job in fields(bob.unary("List", b"")).get(1, [])]
        self.assertEqual(ids, other[1])
        wait_until(lambda: fields(alice.unary("Get", field(1, mine)))[3][0] == 3, 30 * PATIENCE,
                   "the job has ended")
        again = fields(alice.unary("Submit", field(1, request("One")) + field(2, "k")))
        self.assertEqual((again[1][0], again[12]), (mine, [1]))

    def test_weights_are_shares_of_turns(self):
        """All wait for one text; in each turn alice gets three jobs and bob gets one."""
        blocker = self.caller("carol").stream("Generate", request(n=900))
        next(blocker)
        n = TURN_TOKENS - len("Once upon a time") // 4 - 4
        for i in range(N_EACH):
            for name in ("bob", "alice"):
                self.caller(name).unary("Submit", field(1, request(n=n, stop=",")) +
                                        field(2, f"{name} {i}"))
        blocker.cancel()
        done = []
        for name in ("alice", "bob"):
            wait_until(lambda: all("ended_ms" in job for job in self.list_of(name)), 60 * PATIENCE,
                       "all have ended")
            done += [(job["ended_ms"], name) for job in self.list_of(name)]
        order = [name for _, name in sorted(done)]
        self.assertEqual(len(order), 2 * N_EACH)
        shares = [order[:k].count("alice") for k in (4, 8)]
        self.assertEqual(shares, [3, 6], order)

    def list_of(self, name):
        lines = self.outrider_as(name, "jobs", "list", "--json").stdout.splitlines()
        return [json.loads(line) for line in lines]


class Http(unittest.TestCase):
    """The door for OpenAI's clients: who has no key sends no body."""
    def setUp(self):
        folder = tempfile.mkdtemp(prefix="outrider-keys-")
        self.addCleanup(shutil.rmtree, folder)
        self.key = add_key(os.path.join(folder, "keys"), "alice", "--max-jobs", "2")
        self.world = Cluster(sys.argv[1], http=True, coordinator_flags=[
            "--keys", os.path.join(folder, "keys")], environment={"OUTRIDER_API_KEY": self.key})
        self.world.__enter__()
        self.addCleanup(self.world.__exit__, None, None, None)

    def connect(self):
        host, port = self.world.http.split(":")
        made = socket.create_connection((host, int(port)), timeout=10 * PATIENCE)
        self.addCleanup(made.close)
        return made

    @staticmethod
    def head(path, length, key=None, method="POST"):
        more = f"Authorization: Bearer {key}\r\n" if key else ""
        return (f"{method} {path} HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\n{more}"
                f"Content-Length: {length}\r\n\r\n").encode()

    def refuse_unread(self, status, *head):
        """The answer comes before any byte of the body, which is not awaited."""
        connection = self.connect()
        connection.sendall(self.head(*head))
        answer = b""
        while part := connection.recv(4096):
            answer += part
        for words in (f"HTTP/1.1 {status} ", "Connection: close", "X-Request-Id: mine"):
            self.assertIn(words.encode(), answer)

    def n_refused(self):
        """As /metrics says."""
        connection = http.client.HTTPConnection(self.world.http, timeout=10 * PATIENCE)
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {self.key}"})
        page = connection.getresponse().read().decode()
        connection.close()
        return int(re.search(r"^outrider_unauthenticated_requests_total{.*} (\d+)$", page,
                             re.MULTILINE).group(1))

    def resident(self):
        with open(f"/proc/{self.world.coordinator.pid}/status", encoding="ascii") as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1)) << 10

    def test_bodies_of_strangers_are_not_read(self):
        self.refuse_unread(401, "/v1/completions", 9 << 20)
        self.refuse_unread(401, "/v1/completions", 9 << 20, "or-" + "0" * 64)
        self.refuse_unread(401, "/nowhere", 9 << 20)
        self.assertEqual(self.n_refused(), 3)
        self.refuse_unread(404, "/nowhere", 9 << 20, self.key)
        self.refuse_unread(405, "/v1/models", 9 << 20, self.key)
        before = self.resident()
        for _ in range(40):
            connection = self.connect()
            try:
                connection.sendall(self.head("/v1/completions", 9 << 20) + b"x" * (8 << 20))
            except ConnectionError:
                pass
        self.assertLess(self.resident() - before, 40 << 20)

    def test_strangers_learn_no_address_of_a_worker(self):
        self.world.workers.stop()

        def ready():
            connection = http.client.HTTPConnection(self.world.http, timeout=10 * PATIENCE)
            connection.request("GET", "/ready")
            answer = connection.getresponse()
            text = answer.read().decode()
            connection.close()
            return answer.status, text

        wait_until(lambda: ready()[0] == 503, 10 * PATIENCE, "it is not ready")
        self.assertNotIn(self.world.worker_addresses[0], ready()[1])
        self.assertIn("no request is served now", ready()[1])

    def test_the_key_counts_until_the_answer(self):
        """Also with clients that leave in mid-body; a grant that is released twice is an error of
        memory under the sanitizer."""
        body = json.dumps({"prompt": "Once upon", "max_tokens": 4}).encode()
        for _ in range(20):
            connection = self.connect()
            connection.sendall(self.head("/v1/completions", len(body), self.key) + body[:9])
            connection.close()
        connection = self.connect()
        for status, sent in ((401, None), (200, self.key), (401, "or-1"), (200, self.key)):
            connection.sendall(self.head("/v1/completions", len(body), sent) + body)
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            self.assertEqual(answer.status, status, answer.read())
            answer.read()
            self.assertEqual(answer.headers["X-Request-Id"], "mine")


class File(FaultTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="outrider-keys-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.path = os.path.join(self.folder, "keys")

    def key(self, *arguments):
        return run(program("outrider"), "key", *arguments)

    def read(self):
        with open(self.path, encoding="utf-8") as file:
            return file.read()

    def write(self, text):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(text)

    def test_a_key_is_shown_once_and_its_hash_is_kept(self):
        key = add_key(self.path, "alice", "--weight", "3", "--max-jobs", "8", "--max-priority",
                      "low")
        digest = hashlib.sha256(key.encode()).hexdigest()
        self.assertEqual(self.read(), f"alice {digest} weight=3 max_jobs=8 max_priority=low\n")
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)
        self.assertNotIn(key, self.key("list", self.path)[1])
        self.assertEqual(os.listdir(self.folder), ["keys"])

    def test_what_else_is_in_the_file_stays(self):
        add_key(self.path, "alice")
        self.write("# ours\n" + self.read() + "\n# the rest, without an end of line")
        before = self.read()
        add_key(self.path, "bob")
        self.assertTrue(self.read().startswith(before + "\nbob "))
        self.assertEqual(self.key("remove", self.path, "bob")[0], 0)
        self.assertEqual(self.read(), before + "\n")
        self.assertEqual(self.key("remove", self.path, "alice")[0], 0)
        self.assertEqual(self.read(), "# ours\n\n# the rest, without an end of line\n")

    def test_who_could_read_the_file_can_read_it_still(self):
        """Such as the user of the coordinator, when root adds a key."""
        add_key(self.path, "alice")
        os.chmod(self.path, 0o640)
        owner = (12345, 23456) if os.geteuid() == 0 else (os.getuid(), os.getgid())
        os.chown(self.path, *owner)
        add_key(self.path, "bob")
        self.assertEqual(self.key("remove", self.path, "alice")[0], 0)
        found = os.stat(self.path)
        self.assertEqual((stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid), (0o640, *owner))
        os.chmod(self.path, 0o666)
        add_key(self.path, "carol")
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o644)

    def test_wrong_words(self):
        add_key(self.path, "alice")
        for arguments, words in (
                (["add"], ["no file"]), (["add", self.path], ["no name"]),
                (["add", self.path, "a b"], ["'a b' is no name of a key"]),
                (["add", self.path, "alice"], ["has a key of 'alice' in line 1 already"]),
                (["add", self.path, "bob", "--weight", "0"], ["--weight", "'0'"]),
                (["add", self.path, "bob", "--max-priority", "top"], ["--max-priority", "'top'"]),
                (["remove", self.path, "bob"], ["has no key of 'bob'"]),
                (["list", self.path, "more"], ["'more' is too much"]),
                (["nonsense"], ["'nonsense' is not a command of key"]),
                ([], ["no command of key"])):
            with self.subTest(arguments):
                self.check_usage(*self.key(*arguments), *words)
        self.check_failure(*self.key("list", "/nowhere"), "/nowhere")
        self.write("alice\n")
        self.check_failure(*self.key("add", self.path, "bob"), f"{self.path}:1: '' is no hash")
        self.assertEqual(self.read(), "alice\n")

    def test_files_that_no_coordinator_takes(self):
        command = (COORDINATOR, "--target", NOBODY, "--draft", "none", "--tokenizer", DRAFT,
                   "--keys", self.path)
        self.check_refusal(*run(*command), self.path)
        add_key(self.path, "alice")
        os.chmod(self.path, 0o666)
        self.check_refusal(*run(*command), self.path, "can be written by others", "chmod go-w")
        os.chmod(self.path, 0o600)
        self.write(self.read() + "bob 12\n")
        self.check_refusal(*run(*command), f"{self.path}:2: '12' is no hash of a key")

    def test_keys_open_doors_to_others(self):
        add_key(self.path, "alice")
        done = run(COORDINATOR, "--target", NOBODY, "--draft", "none", "--tokenizer", "/nowhere",
                   "--listen", "0.0.0.0:0", "--keys", self.path)
        self.check_refusal(*done, "/nowhere")


if __name__ == "__main__":
    main()
