#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=300
"""Stored jobs as another gRPC implementation sees them: keys, watching from a token, pages, cancel,
bounds. Skipped (77) where grpcio is not installed."""
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from rpc_python import Caller, field, fields, grpc, packed
from cluster import wait_until
from load_client import Client
from fault_util import PATIENCE, SLOW_STEPS, FaultTest, World, main

WAITING, RUNNING, ENDED = 1, 2, 3
STOP, LENGTH, CANCELLED = 1, 2, 4
KEPT = 40


def request(prompt="Once upon a time", n=24, **more):
    """A GenerateRequest: greedy and plain."""
    sampling = field(1, 0.0)
    out = field(1, prompt) + field(3, n) + field(4, sampling) + field(5, field(1, 0))
    return out + field(7, 1) + b"".join(more.values())


def text_of(data):
    return data.decode()


class Job:
    """A Job message."""

    def __init__(self, data):
        f = fields(data)
        self.id, self.key = (text_of(f.get(i, [b""])[0]) for i in (1, 2))
        self.state, self.end = f.get(3, [0])[0], f.get(4, [0])[0]
        self.error = text_of(f.get(5, [b""])[0])
        self.n_tokens = f.get(8, [0])[0]
        self.existed = bool(f.get(12, [0])[0])
        self.texts = []
        for text in f.get(13, []):
            t = fields(text)
            self.texts.append((packed(t.get(1, [b""])[0]), text_of(t.get(2, [b""])[0]), 3 in t))


class Answer:
    """The messages of Watch or Generate, put together."""

    def __init__(self, messages):
        self.ids, self.text, self.summary = [], b"", None
        for message in messages:
            f = fields(message)
            if 1 in f:
                tokens = fields(f[1][0])
                ids = packed(tokens.get(1, [b""])[0])
                ends = packed(tokens.get(4, [b""])[0])
                assert len(ends) == len(ids)
                assert all(end <= len(tokens.get(2, [b""])[0]) for end in ends)
                self.ids += ids
                self.text += tokens.get(2, [b""])[0]
            if 2 in f:
                self.summary = fields(f[2][0])


class Jobs(FaultTest):
    @classmethod
    def setUpClass(cls):
        # One sequence at a time, so that jobs wait.
        cls.world = World(worker_flags=SLOW_STEPS, coordinator_flags=[
            "--jobs-kept", str(KEPT), "--sequences", "1"])
        cls.addClassCleanup(cls.world.leave)
        cls.world.start()

    def setUp(self):
        self.caller = Caller(self.world.address)
        self.addCleanup(self.caller.close)

    def tearDown(self):
        self.check_logs(self.world)

    def submit(self, message, key=""):
        return Job(self.caller.unary("Submit", field(1, message) + field(2, key)))

    def watch(self, job, from_token=0):
        return self.caller.stream("Watch", field(1, job.id) + field(2, from_token))

    def get(self, job):
        return Job(self.caller.unary("Get", field(1, job.id)))

    def n_refused(self):
        client = Client(self.world.address)
        try:
            return client.load().ends["refused"]
        finally:
            client.close()

    def wait_ended(self, job):
        wait_until(lambda: self.get(job).state == ENDED, 60 * PATIENCE, "the job has ended")
        return self.get(job)

    def refused(self, status, words, method, message):
        name, text = self.caller.refusal(method, message)
        self.assertEqual(name, status, text)
        for word in words:
            self.assertIn(word, text)

    def test_an_answer_equals_that_of_generate(self):
        direct = Answer(self.caller.stream("Generate", request()))
        job = self.submit(request())
        self.assertFalse(job.existed)
        watched = Answer(self.watch(job))
        self.assertEqual((watched.ids, watched.text), (direct.ids, direct.text))
        self.assertIsNotNone(watched.summary)
        ended = self.get(job)
        self.assertEqual((ended.state, ended.end, ended.n_tokens), (ENDED, LENGTH, 24))
        self.assertEqual(ended.texts, [(direct.ids, direct.text.decode(), True)])

    def test_a_key_gives_the_same_job(self):
        first = self.submit(request("One"), "k1")
        again = self.submit(request("One"), "k1")
        self.assertEqual((again.id, again.existed), (first.id, True))
        self.wait_ended(first)
        again = self.submit(request("One"), "k1")
        self.assertEqual((again.id, again.existed, again.state), (first.id, True, ENDED))
        self.assertEqual(Answer(self.watch(again)).ids, self.get(first).texts[0][0])
        self.refused("INVALID_ARGUMENT", ["key 'k1' belongs to " + first.id], "Submit",
                     field(1, request("Two")) + field(2, "k1"))
        self.assertNotEqual(self.submit(request("One"), "k2").id, first.id)
        self.assertNotEqual(self.submit(request("One")).id, self.submit(request("One")).id)

    def test_watching_from_any_token(self):
        """Text and ids from token k on are those of the whole answer without its first k tokens,
        also while it is still growing, and for several who watch."""
        job = self.submit(request("The king", n=200))
        live = [self.watch(job, k) for k in (0, 0, 7, 150)]
        answers = [Answer(stream) for stream in live]
        whole = answers[0]
        self.assertEqual(len(whole.ids), 200)
        for answer, k in zip(answers, (0, 0, 7, 150)):
            self.assertEqual(answer.ids, whole.ids[k:])
            self.assertTrue(whole.text.endswith(answer.text))
        for k in (1, 2, 100, 199, 200, 500):
            later = Answer(self.watch(job, k))
            self.assertEqual(later.ids, whole.ids[k:])
            self.assertTrue(whole.text.endswith(later.text))
            self.assertIsNotNone(later.summary)

    def test_a_client_that_leaves_cancels_nothing(self):
        job = self.submit(request("Leaving", n=300))
        stream = self.watch(job)
        next(iter(stream))
        stream.cancel()
        self.assertEqual(len(Answer(self.watch(job)).ids), 300)

    def test_a_client_that_reads_late(self):
        """The job ends meanwhile, and the client gets everything."""
        job = self.submit(request("Reading", n=600))
        stream = self.watch(job)
        self.wait_ended(job)
        self.assertEqual(Answer(stream).ids, self.get(job).texts[0][0])

    def test_cancel(self):
        pid = self.world.rank_pids()[0]
        running = self.submit(request("Cancel me", n=900))
        next(iter(self.watch(running)))
        waiting = self.submit(request("Me too", n=900))
        self.assertEqual(self.get(waiting).state, WAITING)
        self.assertEqual(self.get(running).state, RUNNING)
        for job in (waiting, running):
            self.caller.unary("Cancel", field(1, job.id))
        for job in (waiting, running):
            ended = self.wait_ended(job)
            self.assertEqual((ended.end, ended.error), (CANCELLED, "the job was cancelled"))
            self.refused("CANCELLED", ["the job was cancelled"], "Watch", field(1, job.id))
        self.assertEqual(self.get(waiting).n_tokens, 0)
        self.assertLess(self.get(running).n_tokens, 900)
        again = Job(self.caller.unary("Cancel", field(1, running.id)))
        self.assertEqual((again.state, again.end), (ENDED, CANCELLED))
        os.kill(pid, 0)

    def list(self, *more):
        f = fields(self.caller.unary("List", b"".join(more)))
        return [Job(data) for data in f.get(1, [])], text_of(f.get(2, [b""])[0])

    def test_pages_are_newest_first_and_complete(self):
        mine = [self.submit(request(f"Page {i}", n=1)) for i in range(11)]
        for job in mine:
            self.wait_ended(job)
        seen, token = [], ""
        while True:
            jobs, token = self.list(field(1, 4), field(2, token), field(3, ENDED))
            self.assertLessEqual(len(jobs), 4)
            seen += jobs
            if not token:
                break
        ids = [job.id for job in seen]
        self.assertEqual(ids[:11], [job.id for job in reversed(mine)])
        self.assertEqual(len(set(ids)), len(ids))
        self.assertTrue(all(job.state == ENDED and not job.texts for job in seen))
        self.assertEqual(self.list(field(3, RUNNING))[0], [])
        self.refused("INVALID_ARGUMENT", ["page_token is 'x1'"], "List", field(2, "x1"))
        self.refused("INVALID_ARGUMENT", ["page_size is 1001"], "List", field(1, 1001))
        self.refused("INVALID_ARGUMENT", ["state is 4"], "List", field(3, 4))

    def test_ids_of_no_job(self):
        for method in ("Get", "Watch", "Cancel"):
            self.refused("NOT_FOUND", ["there is no job 'job-1'"], method, field(1, "job-1"))
            self.refused("NOT_FOUND", ["there is no job"], method,
                         field(1, "job-0000000000000001-1"))

    def test_a_long_message_is_not_decoded_beside_the_network(self):
        for method in ("List", "Cancel"):
            self.refused("INVALID_ARGUMENT", ["4096 are the most here"], method,
                         field(1, b"x" * 5000))

    def test_the_oldest_ended_job_makes_room(self):
        first = self.wait_ended(self.submit(request("First", n=1), "first"))
        for i in range(KEPT):
            self.wait_ended(self.submit(request(f"Then {i}", n=1)))
        self.refused("NOT_FOUND", [first.id, f"--jobs-kept {KEPT}"], "Get", field(1, first.id))
        self.refused("NOT_FOUND", ["is no longer kept"], "Watch", field(1, first.id))
        again = self.submit(request("First", n=1), "first")
        self.assertEqual((again.existed, again.id == first.id), (False, False))
        self.assertEqual(len(self.list(field(1, 1000))[0]), KEPT)

    def test_jobs_that_have_not_ended_are_never_dropped(self):
        pid = self.world.rank_pids()[0]
        os.kill(pid, signal.SIGSTOP)
        try:
            held = [self.submit(request(f"Held {i}", n=1)) for i in range(KEPT)]
            self.refused("RESOURCE_EXHAUSTED", [f"--jobs-kept {KEPT}"], "Submit",
                         field(1, request("One too many")))
        finally:
            os.kill(pid, signal.SIGCONT)
        for job in held:
            self.assertEqual(self.wait_ended(job).end, LENGTH)

    def test_a_refused_request_leaves_no_job(self):
        before = [job.id for job in self.list(field(1, 1000))[0]]
        n_refused = self.n_refused()
        self.refused("INVALID_ARGUMENT", ["request is not set"], "Submit", field(2, "k"))
        self.refused("INVALID_ARGUMENT", ["temperature is 101"], "Submit",
                     field(1, field(1, "a") + field(4, field(1, 101.0))) + field(2, "bad"))
        self.refused("INVALID_ARGUMENT", ["token id 99999"], "Submit",
                     field(1, field(2, field(1, b"\x9f\x8d\x06"))) + field(2, "bad"))
        self.assertEqual([job.id for job in self.list(field(1, 1000))[0]], before)
        self.assertEqual(self.n_refused(), n_refused + 3)
        self.assertFalse(self.submit(request("Good", n=1), "bad").existed)

    def test_without_a_group_there_is_no_job(self):
        """Its key stays free; a job that was there before is still found."""
        old = self.submit(request("Before", n=2), "before")
        self.wait_ended(old)
        listed = [job.id for job in self.list(field(1, 1000))[0]]
        self.world.workers.stop()
        try:
            self.world.wait_not_serving()
            self.refused("UNAVAILABLE", ["target group"], "Submit",
                         field(1, request("Away", n=2)) + field(2, "away"))
            again = self.submit(request("Before", n=2), "before")
            self.assertEqual((again.id, again.existed), (old.id, True))
            self.assertEqual([job.id for job in self.list(field(1, 1000))[0]], listed)
        finally:
            self.world.start_workers()
        self.world.wait_serving()
        self.assertFalse(self.submit(request("Away", n=2), "away").existed)


if __name__ == "__main__":
    main()
