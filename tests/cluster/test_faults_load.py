#!/usr/bin/env python3
# ctest: labels=full libs=client timeout=600
"""Ranks and the coordinator end, and time runs out, while many jobs run: each job ends in time and
in one defined way, and the next ones are served. Skipped (77) where grpcio is not installed."""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from load_client import Client, Reader, job, score_job
from cluster import TALES, bound, wait_until
from far_cluster import FarRanks
from fault_util import PATIENCE, FaultTest, World, main
from random_model import write_random_model

N_RUNNING, N_WAITING = 32, 8
N_SCORES, SCORED_TOKENS = 16, 1000
LOST_SECONDS = 3.0      # from a rank's end to that of the jobs that ran
AWAITED_SECONDS = 10.0  # jobs that wait for their first round wait so long for a group
SHUTDOWN_SECONDS = 2.0
TIMEOUT_MS = 300
LATE_SECONDS = 1.5
SHORT = {"temperature": 0, "ignore_eos": True, "max_tokens": 8}
LONG_TOKENS, BLOCK_TOKENS = 800, 16
SLACK_TOKENS = 96  # of a running job: its prompt, tokens on their way here, guesses


def prompt(number):
    return [1 + (7 * number + i) % 4000 for i in range(20 + number % 5)]


class FarWorld(FarRanks, World):
    delay_s = 0.02


class LoadTest(FaultTest):
    """A running text gets a token in 40 ms at most often, so that it is there for 30 s or more, on
    every machine."""
    WORLD = FarWorld
    RANKS = 1
    KV = ["--kv-tokens", str(N_RUNNING * 1024)]

    def setUp(self):
        self.world = self.WORLD(n_ranks=self.RANKS, worker_flags=self.KV, coordinator_flags=[
            "--sequences", str(N_RUNNING), "--calibrate", "0", "--lookup", "none"])
        self.addCleanup(self.world.leave)
        self.world.start()
        self.client = Client(self.world.address)
        self.addCleanup(self.client.close)
        self.right = self.client.ask(job(prompt(0), **SHORT)).texts[0].ids
        self.assertEqual(len(self.right), SHORT["max_tokens"])

    def run_long(self, n=N_RUNNING, **fields):
        """So many endless jobs that have begun."""
        fields = {"temperature": 0, "ignore_eos": True, "n_draft": 0, **fields}
        readers = [Reader(self.client, job(prompt(i), **fields)) for i in range(n)]
        wait_until(lambda: all(reader.n_tokens() > 0 for reader in readers), 30 * PATIENCE,
                   "all of them run")
        return readers

    def wait_short(self, n=N_WAITING):
        """So many short jobs that wait."""
        readers = [Reader(self.client, job(prompt(0), **SHORT)) for _ in range(n)]
        wait_until(lambda: self.client.load().waiting == n, 10 * PATIENCE, "they wait")
        return readers

    def check_served(self):
        answer = self.client.ask(job(prompt(0), **SHORT))
        self.assertEqual((answer.status, answer.texts[0].ids), ("OK", self.right))
        wait_until(self.is_free, 10 * PATIENCE, "nothing is left")
        self.check_logs(self.world)

    def is_free(self):
        """Nobody is there, and nobody's step, which may end later, keeps blocks."""
        load = self.client.load()
        return load.is_idle() and (load.target_kv[0], load.draft_kv[0]) == (0, 0)

    def stop(self, readers):
        for reader in readers:
            reader.call.cancel()
        for reader in readers:
            self.assertIn(reader.end(5 * PATIENCE), ("CANCELLED", "OK"))
        wait_until(lambda: self.client.load().running == 0, 10 * PATIENCE, "nobody runs")
        self.check_served()

    def check_all(self, readers, status, seconds, *words):
        for reader in readers:
            self.assertEqual(reader.end(seconds * PATIENCE), status)
            for word in words:
                self.assertIn(word, reader.answer.details)


class LostRank(LoadTest):
    RANKS = 2

    def lose(self):
        running, waiting = self.run_long(), self.wait_short()
        before = [reader.n_tokens() for reader in running]
        wait_until(lambda: all(reader.n_tokens() > n for reader, n in zip(running, before)),
                   10 * PATIENCE, "the engine has taken those that wait, between two rounds")
        began = time.monotonic()
        self.world.kill_rank(1)
        self.check_all(running, "UNAVAILABLE", LOST_SECONDS, "target group")
        self.assertTrue(all(reader.is_alive() for reader in waiting), "those wait for longer")
        self.assertEqual({len(reader.answer.texts) for reader in running}, {1})
        self.assertEqual(self.client.load().ends["unavailable"], N_RUNNING)
        return waiting, began

    def check_refused(self):
        began = time.monotonic()
        answer = self.client.ask(job(prompt(1), **SHORT))
        self.sooner(AWAITED_SECONDS, began)
        self.assertEqual(answer.status, "UNAVAILABLE")
        self.assertIn("target group", answer.details)

    def test_group_comes_back_in_time(self):
        waiting, _ = self.lose()
        self.check_refused()
        self.assertTrue(all(reader.is_alive() for reader in waiting))
        self.world.restart_workers()
        self.check_all(waiting, "OK", 10)
        for reader in waiting:
            self.assertEqual(reader.answer.texts[0].ids, self.right)
        self.check_served()

    def test_group_comes_back_late(self):
        waiting, began = self.lose()
        self.check_all(waiting, "UNAVAILABLE", AWAITED_SECONDS + 2, "target group")
        self.assertGreater(time.monotonic() - began, AWAITED_SECONDS - 1)
        self.check_refused()
        self.world.restart_workers()
        self.check_served()

    def test_rank_that_stands_still(self):
        """A client's own deadline ends its job though the step that it is in does not end; the
        others go on when the rank does."""
        running = self.run_long(4)
        os.kill(self.world.rank_pids()[1], signal.SIGSTOP)
        time.sleep(0.5)
        answer = self.client.ask(job(prompt(0), **SHORT), timeout=1)
        self.assertEqual(answer.status, "DEADLINE_EXCEEDED")
        self.assertEqual(self.client.load().running, 4) # it is answered while nothing is computed
        os.kill(self.world.rank_pids()[1], signal.SIGCONT)
        before = [reader.n_tokens() for reader in running]
        wait_until(lambda: all(reader.n_tokens() > n or not reader.is_alive()
                               for reader, n in zip(running, before)), 10 * PATIENCE, "they go on")
        for reader in running:
            reader.call.cancel()
        self.check_served()


class LostGroup(LoadTest):
    """Texts that had given up their place when the group was lost go on with its successor, if that
    is the same model."""
    WORLD = World
    KV = ["--kv-tokens", "1024"]

    def lacks_room(self, readers):
        before = self.client.load().preemptions

        def look():
            load, n_begun = self.client.load(), sum(reader.n_tokens() > 0 for reader in readers)
            n_ended = sum(not reader.is_alive() for reader in readers)
            return load.preemptions - before > 2 and n_begun - n_ended > load.running

        return look

    def n_ends(self):
        ends = self.client.load().ends
        return ends["unavailable"] + ends["length"]

    def lose_evicted(self):
        """The right texts, and the jobs that still wait after the group is gone: some of them have
        text already."""
        jobs = [job(prompt(i) * 4, temperature=0, ignore_eos=True, max_tokens=700)
                for i in range(N_WAITING)]
        right = [self.client.ask(one).texts[0].ids for one in jobs]
        n_before = self.n_ends()
        readers = [Reader(self.client, one) for one in jobs]
        # The first one may have its place again at once; later there is no room for all of them.
        wait_until(self.lacks_room(readers), 20 * PATIENCE, "some have lost their place")
        self.world.kill_rank(0)
        wait_until(lambda: self.client.load().running == 0, LOST_SECONDS * PATIENCE, "it is lost")
        wait_until(lambda: sum(not reader.is_alive() for reader in readers) ==
                   self.n_ends() - n_before, 10 * PATIENCE, "the ends of those that ran are here")
        left = [(reader, ids) for reader, ids in zip(readers, right) if reader.is_alive()]
        ended = [reader for reader in readers if not reader.is_alive()]
        self.assertGreater(sum(reader.n_tokens() > 0 for reader, _ in left), 0)
        statuses = {reader.answer.status for reader in ended}
        self.assertEqual(statuses - {"OK"}, {"UNAVAILABLE"})  # the first may have been done before
        return left

    def test_same_model_goes_on(self):
        left = self.lose_evicted()
        self.world.restart_workers()
        for reader, ids in left:
            self.assertEqual(reader.end(30 * PATIENCE), "OK")
            self.assertEqual(reader.answer.texts[0].ids, ids)
        self.check_served()

    def test_another_model_does_not(self):
        left = self.lose_evicted()
        self.world.target = write_random_model(os.path.join(self.world.folder, "other"),
                                               os.path.join(TALES, "draft"), 3)
        self.world.restart_workers()
        self.check_all([reader for reader, _ in left], "UNAVAILABLE", 5, "another one has come")
        self.assertEqual(self.client.ask(job(prompt(0), **SHORT)).status, "OK")


class Shutdown(LoadTest):
    def test_coordinator_ends_in_time(self):
        """And computes none of the scores that wait."""
        running, waiting = self.run_long(), self.wait_short()
        scores = [self.client.begin(score_job([7] * SCORED_TOKENS), method="Score")
                  for _ in range(N_SCORES)]
        wait_until(lambda: self.client.load().waiting == N_WAITING + N_SCORES, 10 * PATIENCE,
                   "the scores wait too")
        self.world.coordinator.process.terminate()
        self.assertEqual(self.world.coordinator.wait(SHUTDOWN_SECONDS * PATIENCE), 0)
        self.check_all(running + waiting, "UNAVAILABLE", 1)
        said = [reader for reader in running + waiting
                if "shutting down" in reader.answer.details]
        self.assertEqual(len(said), N_RUNNING + N_WAITING)
        for answer in [call.read() for call in scores]:
            self.assertEqual((answer.status, answer.scores), ("UNAVAILABLE", []))
            self.assertIn("shutting down", answer.details)
        self.world.start_coordinator()
        self.world.wait_serving()
        with Client(self.world.address) as client:
            self.assertEqual(client.ask(job(prompt(0), **SHORT)).texts[0].ids, self.right)


class Time(LoadTest):
    def ask_timed(self, timeout_ms=TIMEOUT_MS):
        """An endless job of so many ms on a busy server, and how long it took."""
        answer = self.client.ask(job(prompt(3), temperature=0, ignore_eos=True, n_draft=0,
                                     timeout_ms=timeout_ms))
        self.assertEqual(answer.status, "DEADLINE_EXCEEDED", answer.details)
        self.assertIn("time is over", answer.details)
        self.assertGreaterEqual(answer.seconds(), timeout_ms / 1000)
        self.assertLess(answer.seconds(), timeout_ms / 1000 + bound(LATE_SECONDS * PATIENCE))
        return answer

    def test_time_is_over_among_others(self):
        running = self.run_long(N_RUNNING - 1)
        before = [reader.n_tokens() for reader in running]
        # A busy machine may need longer for the first token.
        answers = (self.ask_timed(n * TIMEOUT_MS) for n in (1, 4, 16))
        n_asked, answer = next(found for found in enumerate(answers, 1) if found[1].texts)
        self.assertGreater(len(answer.texts[0].ids), 0)
        wait_until(lambda: all(reader.n_tokens() > n for reader, n in zip(running, before)),
                   10 * PATIENCE, "the others go on")
        self.assertEqual(self.client.load().ends["deadline"], n_asked)
        self.stop(running)

    def test_time_is_over_in_the_queue(self):
        running = self.run_long()
        answer = self.ask_timed()
        self.assertEqual(answer.texts, {})
        self.assertEqual(self.client.load().waiting, 0)
        self.stop(running)

    def test_cancelled_job_leaves_the_queue(self):
        running, waiting = self.run_long(), self.wait_short(3)
        waiting[1].call.cancel()
        wait_until(lambda: self.client.load().waiting == 2, 1 * PATIENCE, "it is gone")
        self.stop(running)
        self.assertEqual([waiting[i].end(10 * PATIENCE) for i in (0, 2)], ["OK", "OK"])


class Blocks(LoadTest):
    """A running text stays short beside a prompt of 800 tokens."""

    def test_cancelled_job_leaves_its_blocks_at_once(self):
        """The first answer of Describe without the job is one without its blocks."""
        running = self.run_long(3)
        long_one = Reader(self.client, job([5] * LONG_TOKENS, temperature=0, ignore_eos=True))
        wait_until(lambda: long_one.n_tokens() > 0, 10 * PATIENCE, "it runs")
        before = self.client.load()
        self.assertGreater(before.target_kv[0], LONG_TOKENS // BLOCK_TOKENS)
        long_one.call.cancel()
        after = wait_until(self.three_run, 1 * PATIENCE, "it is gone")
        kept = sum((reader.n_tokens() + SLACK_TOKENS) // BLOCK_TOKENS for reader in running)
        self.assertLess(after.target_kv[0], kept)
        self.assertLess(kept, LONG_TOKENS // BLOCK_TOKENS)
        self.assertEqual(sum(before.target_kv), sum(after.target_kv))
        self.assertEqual(after.ends["cancelled"], 1)
        self.assertTrue(all(reader.is_alive() for reader in running))
        self.stop(running)

    def three_run(self):
        load = self.client.load()
        return load if load.running == 3 else None


if __name__ == "__main__":
    main()
