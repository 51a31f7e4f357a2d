#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes cores=2 timeout=300
"""One lane's trouble is its own, and neighbours that need much leave the others what they need:
lanes that a rank refuses, rows that fail, steps with room for one lane's guesses only, and KV for
one text and a little. Skipped (77) where grpcio is not installed."""
import os
import sys
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from load_client import Client, Reader, job, run_jobs
from cluster import wait_until
from fault_util import PATIENCE, FaultTest, World, main
from step_proxy import SteppedWorld

N_NEIGHBOURS = 4
NO_TOKEN = 99999
LONG = {"temperature": 0, "ignore_eos": True, "max_tokens": 120}


def prompt(number):
    return [1 + (11 * number + i) % 4000 for i in range(30)]


class Company(FaultTest):
    def start(self, world):
        self.world = world
        self.addCleanup(world.leave)
        world.start()
        self.client = Client(world.address)
        self.addCleanup(self.client.close)

    def restart_coordinator(self):
        """It forgets all prefixes."""
        self.world.coordinator.stop()
        self.client.close()
        self.world.start_coordinator()
        self.world.wait_serving()
        self.client = Client(self.world.address)

    def check_idle(self):
        wait_until(lambda: self.client.load().is_idle(), 10 * PATIENCE, "nobody is left")
        load = self.client.load()
        self.assertEqual((load.target_kv[0], load.draft_kv[0]), (0, 0))
        self.check_logs(self.world)

    def compare(self, jobs):
        """All of them, alone and together."""
        alone = [self.client.ask(one).words() for one in jobs]
        self.assertEqual({words[0] for words in alone}, {"OK"})
        for _ in range(2):
            together = [answer.words() for answer in run_jobs([self.client], jobs, len(jobs))]
            self.assertEqual(together, alone)
        self.check_idle()


class Trouble(Company):
    """Bytes on their way to a rank and back are spoilt for one lane."""

    def setUp(self):
        self.start(SteppedWorld(coordinator_flags=["--calibrate", "0"]))
        self.jobs = [job(prompt(i), n_draft=i % 3, **LONG) for i in range(N_NEIGHBOURS)]
        self.right = [self.client.ask(one).words() for one in self.jobs]

    def check_one_fails(self, *words):
        """A job with a prompt of its own fails in the midst of the others."""
        marked = prompt(77)
        self.world.proxy.mark(marked[0])
        jobs = self.jobs[:2] + [job(marked, n_draft=2, **LONG)] + self.jobs[2:]
        before = self.client.load().ends["failed"]
        answers = run_jobs([self.client], jobs, len(jobs))
        failed = answers.pop(2)
        self.assertEqual([answer.words() for answer in answers], self.right)
        self.assertEqual(failed.status, "INTERNAL")
        for word in words:
            self.assertIn(word, failed.details)
        self.assertEqual(self.client.load().ends["failed"], before + 1)
        self.assertGreater(self.world.proxy.n_spoilt, 0)
        self.check_idle()

    def test_lane_that_a_rank_refuses(self):
        self.world.proxy.spoil_lanes(NO_TOKEN)
        self.check_one_fails("refused this request's part", f"{NO_TOKEN}")

    def test_row_that_fails(self):
        self.world.proxy.spoil_rows("this row has failed")
        self.check_one_fails("this row has failed")


class Crowd(Company):
    N = 256

    def test_256_at_a_time(self):
        """No reply to a step passes until all have come, and then one after the other until all
        run: a text needs more of them before it ends."""
        self.start(SteppedWorld(
            worker_flags=["--slots", str(self.N), "--kv-tokens", "32768"],
            coordinator_flags=["--sequences", str(self.N), "--queue", str(self.N),
                               "--draft-kv-tokens", "32768", "--calibrate", "0"]))
        ways = ({"n_draft": 0}, {"n_draft": 2}, {"n_draft": 3, "strategy": "heuristic"}, {})
        jobs = [job(prompt(i), temperature=0, ignore_eos=True, max_tokens=40, **ways[i % 4])
                for i in range(self.N)]
        self.world.proxy.hold()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(run_jobs, [self.client], jobs, self.N)
            try:
                wait_until(self.are_here, 30 * PATIENCE, f"{self.N} texts are here")
                wait_until(self.run_together, 30 * PATIENCE, f"{self.N} texts run at a time")
            finally:
                self.world.proxy.release()
            together = [answer.words() for answer in asked.result()]
        alone = [answer.words() for answer in run_jobs([self.client], jobs, 1)]
        self.assertEqual({words[0] for words in alone}, {"OK"})
        self.assertEqual(together, alone)
        self.check_idle()

    def are_here(self):
        load = self.client.load()
        return load.running + load.waiting == self.N

    def run_together(self):
        """Lets a step end where they do not yet."""
        if self.client.load().running == self.N:
            return True
        self.world.proxy.pass_one()
        return False


class Tight(Company):
    def test_steps_with_room_for_one_lane_s_guesses(self):
        """17 rows: the last token and 16 guesses of one lane."""
        self.start(World(worker_flags=["--max-step-rows", "17"],
                         coordinator_flags=["--calibrate", "0"]))
        self.compare([job(prompt(i), n_draft=16, **LONG) for i in range(2)])
        sampled = {"temperature": 1, "max_tokens": 120, "ignore_eos": True}
        ways = ((8, "rejection"), (16, "rejection"), (12, "block"), (3, "rejection"))
        self.compare([job(prompt(i), n_draft=k, rule=rule, seed=i, **sampled)
                      for i, (k, rule) in enumerate(ways)])

    def test_kv_for_little_more_than_one_text(self):
        self.start(World(worker_flags=["--kv-tokens", "1024"], coordinator_flags=[
            "--draft-kv-tokens", "1024", "--calibrate", "0"]))
        self.compare([job(prompt(i), temperature=1, seed=i, max_tokens=500, ignore_eos=True,
                          rule="rejection", n_draft=4) for i in range(4)])
        self.assertGreater(self.client.load().preemptions, 0)

    def test_drafts_that_hold_what_another_needs(self):
        """Two texts whose draft has read a part and has no room for the rest: the younger one gives
        way. A stream that runs keeps the draft to short readings."""
        self.start(World(coordinator_flags=["--draft-kv-tokens", "528", "--calibrate", "0"]))
        common = [9 + i % 4000 for i in range(0, 256 * 17, 17)]
        first, second = prompt(5) * 17, common + prompt(6) * 8
        fixed = {"temperature": 1, "seed": 3, "rule": "rejection", "n_draft": 4, "max_tokens": 10}
        jobs = [job(first[:500], **fixed), job(second[:490], **fixed)]
        alone = [self.client.ask(one).words() for one in jobs]
        self.restart_coordinator()
        self.client.ask(job(common + [1], **fixed))
        stream = Reader(self.client, job(prompt(1), temperature=0, ignore_eos=True, n_draft=0))
        wait_until(lambda: stream.n_tokens() > 0, 10 * PATIENCE, "a stream runs")
        together = [answer.words() for answer in run_jobs([self.client], jobs, 2)]
        self.assertEqual(together, alone)
        stream.call.cancel()
        self.check_idle()


if __name__ == "__main__":
    main()
