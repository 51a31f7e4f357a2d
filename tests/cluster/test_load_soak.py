#!/usr/bin/env python3
# ctest: labels=full,memory libs=client timeout=900 long=900
"""2,000 jobs at random times (500 but in `tests/run long`), among them clients that cancel,
leave, hang up, read slowly, are late or make no sense: each ends in exactly one state, the counts
by end add up, the right texts come, no block is lost, no process restarts and the memory stays
flat. Skipped (77) where grpcio is not installed."""
import collections
import os
import random
import socket
import struct
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from http2_raw import call as raw_call
from load_client import Client, job, score_job
from rpc_python import SERVICE, field, grpc
from cluster import is_sanitized, wait_until
from fault_util import BUILD, PATIENCE, FaultTest, World, main

SEED = 41
ONE_OF = 4 if is_sanitized(BUILD) or "OUTRIDER_TEST_LONG" not in os.environ else 1
N_JOBS = 2000 // ONE_OF
WARM_UP_JOBS = 300 // ONE_OF  # after them the memory is measured for the first time
SECONDS = 40 // ONE_OF        # in which they arrive, half of them in bursts
BURST_SECONDS = 2.0
N_THREADS = 200
N_PROMPTS = 8
ANSWER_TOKENS = 24
LONG_TOKENS = 250   # of those that make the KV cache too small for all
VOCABULARY, CONTEXT = 4096, 1024
GROWTH_MIB = 24
SLOW_SECONDS = 2.0
# A stream's window is at least that of one message, so that a client that stops reading is felt.
SMALL_WINDOW = (("grpc.http2.lookahead_bytes", 64), ("grpc.http2.bdp_probe", 0))
LINGER_NONE = struct.pack("ii", 1, 0)  # a reset instead of an orderly end

SHARES = {"right": 27, "edited": 6, "stored": 6, "long": 2, "score": 6, "several": 4, "cancel": 12,
          "late": 8, "leave": 6, "hang_up": 6, "slow": 3, "wrong": 15}
EDITS = {"logprobs": 3, "repetition": 1.3, "presence": 0.5, "frequency": 0.2,
         "biases": {7: 4.0, 9: -100.0}, "bans": [[11], [12, 13]]}
GREEDY = {"temperature": 0, "ignore_eos": True}


def wrong_jobs():
    """Requests that make no sense."""
    rng = random.Random(SEED)
    ok = {"ids": [1, 2, 3], "max_tokens": 4}
    return [
        job([1, -5], max_tokens=4),
        job([1, VOCABULARY]),
        job([(1 << 31) - 1]),
        job([]),
        job(text=""),
        job([7] * CONTEXT),
        job([7] * (3 * CONTEXT)),
        job(**ok, rule="nonsense"),
        job(**ok, temperature=1, rule="greedy"),
        job(**ok, temperature=float("nan")),
        job(**ok, temperature=-1),
        job(**ok, top_p=2),
        job(**ok, min_p=-1),
        job(**ok, n_draft=17),
        job(**ok, strategy="planned", threshold=0.5),
        job(**ok, n=65),
        job(**ok, stop=["a"] * 17),
        job(**ok) + field(1000, b"unknown"),
        b"",
        b"\x0a\x7fabc",
        rng.randbytes(60),
        rng.randbytes(3000),
    ]


class Soak(FaultTest):
    @classmethod
    def setUpClass(cls):
        cls.world = World(worker_flags=["--kv-tokens", "512"], coordinator_flags=[
            "--draft-kv-tokens", "512", "--queue", "4096", "--calibrate", "0"])
        cls.addClassCleanup(cls.world.leave)
        cls.world.start()
        cls.clients = [Client(cls.world.address) for _ in range(4)]
        for client in cls.clients:
            cls.addClassCleanup(client.close)

    def setUp(self):
        rng = random.Random(SEED)
        self.prompts = [[rng.randrange(1, VOCABULARY) for _ in range(rng.randrange(3, 60))]
                        for _ in range(N_PROMPTS)]
        self.texts = [self.ask(0, job(ids, max_tokens=LONG_TOKENS, **GREEDY)).texts[0].ids
                      for ids in self.prompts]
        edited = {"max_tokens": ANSWER_TOKENS, **GREEDY, **EDITS}
        self.edited_texts = [self.ask(0, job(ids, **edited)).texts[0] for ids in self.prompts]
        self.scores = [self.clients[0].ask(score_job(ids), method="Score").scores
                       for ids in self.prompts]
        self.wrong = wrong_jobs()
        self.outcomes, self.faults = collections.Counter(), []
        self.lock = threading.Lock()

    def ask(self, number, message, **more):
        return self.clients[number % len(self.clients)].ask(message, **more)

    # ---- one job of each kind: (what came of it, whether that is right) ----

    def greedy(self, rng, **more):
        which, n = rng.randrange(N_PROMPTS), rng.randrange(1, ANSWER_TOKENS + 1)
        return which, n, job(self.prompts[which], max_tokens=n, **GREEDY, **more)

    def check_text(self, answer, which, n, n_texts=1):
        texts = [text.ids for text in answer.texts.values()]
        return answer.status, texts == [self.texts[which][:n]] * n_texts

    def right(self, number, rng):
        draft = rng.choice(({}, {"n_draft": 0}, {"n_draft": 3}, {"strategy": "heuristic"}))
        which, n, message = self.greedy(rng, **draft)
        return self.check_text(self.ask(number, message), which, n)

    def edited(self, number, rng):
        """Asks for changes of p, with the log-probabilities of each token."""
        draft = rng.choice(({}, {"n_draft": 0}, {"n_draft": 3}))
        which, n, message = self.greedy(rng, **EDITS, **draft)
        answer = self.ask(number, message)
        right = self.edited_texts[which]
        return answer.status, [(text.ids, text.logprobs) for text in answer.texts.values()] == \
            [(right.ids[:n], right.logprobs[:n])]

    def stored(self, number, rng):
        """Submitted; who watches may leave and come back."""
        client = self.clients[number % len(self.clients)]
        which, n, message = self.greedy(rng)
        name = client.submit(message, f"soak {number}")
        if rng.random() < 0.5:
            watch = client.watch(name)
            watch.read_one()
            watch.cancel()
            begin = rng.randrange(n)
            rest = client.watch(name, begin).read()
            if rest.texts[0].ids != self.texts[which][begin:n]:
                return f"from token {begin}: {rest.status}", False
        if rng.random() < 0.5 and client.submit(message, f"soak {number}") != name:
            return "another job for the same key", False
        return self.check_text(client.watch(name).read(), which, n)

    def long(self, number, rng):
        which = rng.randrange(N_PROMPTS)
        message = job(self.prompts[which], max_tokens=LONG_TOKENS, **GREEDY)
        return self.check_text(self.ask(number, message), which, LONG_TOKENS)

    def several(self, number, rng):
        n_texts = rng.randrange(2, 4)
        which, n, message = self.greedy(rng, n=n_texts)
        return self.check_text(self.ask(number, message), which, n, n_texts)

    def score(self, number, rng):
        which = rng.randrange(N_PROMPTS)
        answer = self.ask(number, score_job(self.prompts[which]), method="Score")
        return answer.status, answer.scores == self.scores[which]

    def endless(self, rng, **more):
        return job(self.prompts[rng.randrange(N_PROMPTS)], max_tokens=400, **GREEDY, **more)

    def cancel(self, number, rng):
        call = self.clients[number % len(self.clients)].begin(self.endless(rng))
        threading.Timer(rng.uniform(0, 0.3), call.cancel).start()
        status = call.read().status
        return status, status in ("CANCELLED", "OK")

    def late(self, number, rng):
        status = self.ask(number, self.endless(rng, timeout_ms=rng.randrange(1, 80))).status
        return status, status in ("DEADLINE_EXCEEDED", "OK")

    def leave(self, _, rng):
        """The channel goes, with everything in it."""
        client = Client(self.world.address)
        calls = [client.begin(self.endless(rng)) for _ in range(2)]
        if rng.random() < 0.5:
            calls[0].read_one()
        client.close()
        statuses = [call.read().status for call in calls]
        return "left twice", all(status in ("CANCELLED", "OK") for status in statuses)

    def hang_up(self, _, rng):
        """The connection breaks, before or after the request is there."""
        data = raw_call(SERVICE + "Generate", self.endless(rng))
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(self.world.address.partition(":")[2])
            peer.sendall(data[:rng.choice((len(data), len(data) - 3, 30))])
            time.sleep(rng.uniform(0, 0.1))
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NONE)
        return "hung up", True

    def slow(self, _, rng):
        which, n, message = self.greedy(rng)
        with Client(self.world.address, SMALL_WINDOW) as client:
            call = client.begin(message)
            call.read_one()
            time.sleep(SLOW_SECONDS)
            return self.check_text(call.read(), which, n)

    def wrong_one(self, number, rng):
        answer = self.ask(number, rng.choice(self.wrong))
        is_right = answer.status == "INVALID_ARGUMENT" and len(answer.details) > 10
        return "refused", is_right

    # ---- all of them ----

    def run_one(self, number, kind):
        rng = random.Random(SEED * N_JOBS + number)
        method = getattr(self, "wrong_one" if kind == "wrong" else kind)
        try:
            outcome, is_right = method(number, rng)
        except (grpc.RpcError, OSError, ValueError, KeyError) as failure:
            outcome, is_right = repr(failure), False
        with self.lock:
            self.outcomes[kind, outcome] += 1
            if not is_right:
                self.faults.append((number, kind, outcome))

    def memory_mib(self):
        pids = [self.world.coordinator.pid, *self.world.rank_pids().values()]
        sizes = []
        for pid in pids:
            with open(f"/proc/{pid}/status", encoding="ascii") as file:
                line = next(line for line in file if line.startswith("VmRSS:"))
            sizes.append(int(line.split()[1]) / 1024)
        return sizes

    def run_all(self):
        """Opens the jobs at their times, whether earlier ones have ended or not. Returns the memory
        after the warm-up."""
        rng = random.Random(SEED)
        kinds = rng.choices(list(SHARES), list(SHARES.values()), k=N_JOBS)
        times = [rng.uniform(0, SECONDS) for _ in range(N_JOBS)]
        times[::2] = [at // BURST_SECONDS * BURST_SECONDS for at in times[::2]]
        times.sort()
        began, memory = time.monotonic(), None
        with ThreadPoolExecutor(N_THREADS) as pool:
            for number, (kind, at) in enumerate(zip(kinds, times)):
                time.sleep(max(0.0, began + at - time.monotonic()))
                pool.submit(self.run_one, number, kind)
                if number == WARM_UP_JOBS:
                    memory = self.memory_mib()
        print(f"{N_JOBS} jobs in {time.monotonic() - began:.0f} s", file=sys.stderr)
        return memory

    def count(self, outcome, *kinds):
        return sum(n for (kind, what), n in self.outcomes.items()
                   if what == outcome and (not kinds or kind in kinds))

    def check_ends(self, before, after):
        """Compares what clients saw with what the engine counted. The engine may have ended some of
        the clients who left before it learned of that, and never have heard of others."""
        ends = {end: after.ends[end] - before.ends[end] for end in after.ends}
        print(ends, dict(self.outcomes), file=sys.stderr)
        n_gone = (self.count("CANCELLED", "cancel") + 2 * self.count("left twice") +
                  self.count("hung up"))
        n_texts = self.count("OK") - self.count("OK", "score")
        self.assertEqual(ends["answered"], self.count("OK", "score"))
        self.assertEqual(ends["deadline"], self.count("DEADLINE_EXCEEDED"))
        self.assertEqual(ends["refused"], self.count("refused"))
        self.assertLessEqual(n_texts, ends["length"])
        self.assertGreater(ends["cancelled"], 0)
        self.assertLessEqual(ends["length"] + ends["cancelled"], n_texts + n_gone)
        for end in ("none", "stop", "failed", "unavailable", "slow_reader", "shutdown"):
            self.assertEqual(ends[end], 0, end)

    def check_blocks(self, before, after):
        for old, new in ((before.target_kv, after.target_kv), (before.draft_kv, after.draft_kv)):
            self.assertEqual(sum(old), sum(new))
            self.assertEqual(new[0], 0)

    def test_each_job_has_one_end(self):
        pids = [self.world.coordinator.pid, *self.world.rank_pids().values()]
        before = self.clients[0].load()
        warm = self.run_all()
        self.assertEqual(self.faults, [])
        wait_until(lambda: self.clients[0].load().is_idle(), 20 * PATIENCE, "nothing is left")
        after = self.clients[0].load()
        self.check_ends(before, after)
        self.check_blocks(before, after)
        self.assertGreater(after.preemptions, 0)
        self.assertEqual(pids, [self.world.coordinator.pid, *self.world.rank_pids().values()])
        memory = self.memory_mib()
        print(f"memory {warm} MiB, at the end {memory}", file=sys.stderr)
        # AddressSanitizer keeps up to 256 MiB of freed memory, which looks like growth.
        for old, new in zip(warm, memory) if not is_sanitized(BUILD) else ():
            self.assertLess(new - old, GROWTH_MIB)
        for which in range(N_PROMPTS):
            answer = self.ask(0, job(self.prompts[which], max_tokens=ANSWER_TOKENS, **GREEDY))
            self.assertEqual(answer.texts[0].ids, self.texts[which][:ANSWER_TOKENS])
        self.check_logs(self.world)


if __name__ == "__main__":
    main()
