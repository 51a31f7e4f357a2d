#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=600
"""Equal beginnings of prompts are computed once, for the target and for the draft: counted in the
tokens of the steps that a rank gets, and in what the summary and Describe say. The texts are those
of a coordinator that knows nothing. Skipped (77) where grpcio is not installed."""
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from load_client import Client, job, run_jobs, score_job
from cluster import wait_until
from fault_util import PATIENCE, FaultTest, World, main
from step_proxy import SteppedWorld

VOCABULARY = 4096
BLOCK = 16
COMMON = 512
TOKENS = 6
PAUSE_SECONDS = 3.0
SMALL_KV = 1024

PLAIN = {"temperature": 0, "n_draft": 0, "ignore_eos": True, "max_tokens": TOKENS}
KINDS = ({"temperature": 0},
         {"temperature": 1, "rule": "coupled", "seed": 5},
         {"temperature": 1, "rule": "rejection", "n_draft": 4, "seed": 6},
         {"temperature": 1, "rule": "block", "n_draft": 6, "seed": 7})


class Ids:
    """Prompts that nobody has sent before."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def take(self, n):
        return [self.rng.randrange(1, VOCABULARY) for _ in range(n)]


class ReuseTest(FaultTest):
    WORLD = SteppedWorld
    FLAGS = {"worker_flags": [], "coordinator_flags": ["--calibrate", "0"]}

    @classmethod
    def setUpClass(cls):
        cls.world = cls.WORLD(**cls.FLAGS)
        cls.addClassCleanup(cls.world.leave)
        cls.world.start()
        cls.client = Client(cls.world.address)
        cls.addClassCleanup(cls.client.close)
        cls.ids = Ids(cls.__name__)

    def ask(self, ids, **options):
        """The answer, which must be whole."""
        answer = self.client.ask(job(ids, **{**PLAIN, **options}))
        self.assertEqual(answer.status, "OK", answer.details)
        return answer

    def fed(self, ids, **options):
        """The answer, and how many tokens the rank was fed for it."""
        n = len(self.world.proxy.steps)
        answer = self.ask(ids, **options)
        return answer, sum(step.n_tokens for step in self.world.proxy.steps[n:])

    def tearDown(self):
        load = self.client.load()
        self.assertEqual((load.target_kv[0], load.draft_kv[0]), (0, 0))
        self.check_logs(self.world)


class Counted(ReuseTest):
    def test_second_of_two_computes_the_rest(self):
        common = self.ids.take(COMMON)
        first, n_first = self.fed(common + self.ids.take(20))
        self.assertEqual(n_first, COMMON + 20 + TOKENS - 1)
        self.assertEqual(first.total("target_reused"), 0)
        before = self.client.load()
        second, n_second = self.fed(common + self.ids.take(20))
        after = self.client.load()
        self.assertEqual(n_second, 20 + TOKENS - 1)
        self.assertEqual(second.total("target_reused"), COMMON)
        self.assertEqual(after.computed - before.computed, 20)
        self.assertEqual(after.reused - before.reused, COMMON)

    def test_draft_too(self):
        common = self.ids.take(COMMON)
        first = self.ask(common + self.ids.take(20), n_draft=4, max_tokens=24)
        second = self.ask(common + self.ids.take(20), n_draft=4, max_tokens=24)
        self.assertEqual((first.total("target_reused"), first.total("draft_reused")), (0, 0))
        self.assertEqual(second.total("target_reused"), COMMON)
        self.assertEqual(second.total("draft_reused"), COMMON)
        self.assertGreater(min(first.total("drafted"), second.total("drafted")), 0)

    def test_only_whole_blocks(self):
        for n_common in (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK):
            with self.subTest(n_common):
                common = self.ids.take(n_common)
                self.ask(common + self.ids.take(40))
                second, n_fed = self.fed(common + self.ids.take(40))
                reused = n_common // BLOCK * BLOCK
                self.assertEqual(second.total("target_reused"), reused)
                self.assertEqual(n_fed, n_common + 40 - reused + TOKENS - 1)

    def test_equal_prompts_leave_a_token_to_read(self):
        """The row of the last token is wanted, so its block is read again."""
        for n in (BLOCK, BLOCK + 1, 2 * BLOCK, 100):
            with self.subTest(n):
                ids = self.ids.take(n)
                first = self.ask(ids)
                second, n_fed = self.fed(ids)
                reused = (n - 1) // BLOCK * BLOCK
                self.assertEqual(second.total("target_reused"), reused)
                self.assertEqual(n_fed, n - reused + TOKENS - 1)
                self.assertEqual(second.words(), first.words())

    def test_answers_are_reused_as_prompts(self):
        """The next turn of a conversation begins with the answer of the one before it."""
        for n_tokens in (60, 62, 63):  # 62 ends a block, whose last token is never read
            with self.subTest(n_tokens):
                ids = self.ids.take(50)
                whole = ids + self.ask(ids, max_tokens=n_tokens).texts[0].ids
                second, n_fed = self.fed(whole + self.ids.take(10))
                reused = (len(whole) - 1) // BLOCK * BLOCK
                self.assertEqual(second.total("target_reused"), reused)
                self.assertEqual(n_fed, len(whole) + 10 - reused + TOKENS - 1)

    def test_another_beginning_is_another_text(self):
        """Equal blocks after different ones are not equal."""
        first, rest = self.ids.take(BLOCK), self.ids.take(4 * BLOCK)
        self.ask(first + rest)
        answer, n_fed = self.fed(self.ids.take(BLOCK) + rest)
        self.assertEqual(answer.total("target_reused"), 0)
        self.assertEqual(n_fed, 5 * BLOCK + TOKENS - 1)

    def test_n_texts_read_the_prompt_once(self):
        for n_prompt, n in ((100, 4), (97, 2), (15, 3)):
            with self.subTest(f"{n_prompt} tokens, n = {n}"):
                ids = self.ids.take(n_prompt)
                answer, n_fed = self.fed(ids, n=n, temperature=1, seed=3, rule="coupled")
                rest = n_prompt - (n_prompt - 1) // BLOCK * BLOCK
                self.assertEqual(n_fed, n_prompt + (n - 1) * rest + n * (TOKENS - 1))
                self.assertLess(rest, BLOCK + 1)
                self.assertEqual(len(answer.texts), n)

    def test_n_texts_read_the_prompt_once_in_the_draft_too(self):
        """The texts but the first get their places before the draft has read the prompt."""
        for n_prompt in (300, 1000):
            with self.subTest(n_prompt):
                before = self.client.load().draft_reused
                answer = self.ask(self.ids.take(n_prompt), n=4, n_draft=4, temperature=1, seed=3,
                                  rule="rejection", max_tokens=24)
                self.assertEqual(len(answer.texts), 4)
                self.assertGreater(min(text.counters["drafted"]
                                       for text in answer.texts.values()), 0)
                reused = 3 * (n_prompt // BLOCK * BLOCK)
                self.assertEqual(answer.total("draft_reused"), reused)
                self.assertEqual(self.client.load().draft_reused - before, reused)

    def test_equal_prompts_at_once_are_read_once_by_the_draft(self):
        """All but their last parts: the last 64 tokens are read with the first guess, and how long
        the part before that is depends on measured times."""
        common = self.ids.take(COMMON)
        jobs = [job(common + self.ids.take(5), n_draft=4, temperature=0, ignore_eos=True,
                    max_tokens=24) for _ in range(4)]
        answers = run_jobs([self.client], jobs, 4)
        self.assertEqual({answer.status for answer in answers}, {"OK"})
        self.assertGreaterEqual(sum(answer.total("draft_reused") for answer in answers),
                                3 * (COMMON - 128))

    def test_scores_read_all(self):
        """Every row of the text is wanted, so nothing is left out, but others may reuse it."""
        ids = self.ids.take(100)
        self.ask(ids)
        n = len(self.world.proxy.steps)
        scores = self.client.ask(score_job(ids), method="Score").scores
        self.assertEqual(len(scores), 100)
        self.assertEqual(sum(step.n_tokens for step in self.world.proxy.steps[n:]), 99)

    def test_a_cancelled_prompt_is_reused_as_far_as_it_was_read(self):
        ids = self.ids.take(COMMON)
        call = self.client.begin(job(ids, temperature=0, n_draft=0, ignore_eos=True))
        self.assertTrue(call.read_one())
        call.cancel()
        wait_until(lambda: self.client.load().is_idle(), 10 * PATIENCE, "it is gone")
        second, n_fed = self.fed(ids + [1])
        self.assertEqual(second.total("target_reused"), COMMON)
        self.assertEqual(n_fed, 1 + TOKENS - 1)

    def test_after_a_pause(self):
        common = self.ids.take(COMMON)
        self.ask(common + [1])
        time.sleep(PAUSE_SECONDS)
        second, n_fed = self.fed(common + [2])
        self.assertEqual((second.total("target_reused"), n_fed), (COMMON, 1 + TOKENS - 1))

    def test_while_the_first_one_runs(self):
        common = self.ids.take(COMMON)
        first = self.client.begin(job(common + [1], temperature=0, n_draft=0, ignore_eos=True))
        self.assertTrue(first.read_one())
        second = self.ask(common + [2])
        self.assertEqual(second.total("target_reused"), COMMON)
        first.cancel()
        wait_until(lambda: self.client.load().is_idle(), 10 * PATIENCE, "it is gone")


class Texts(ReuseTest):
    """Reused KV gives the text that computed KV gives."""
    WORLD = World

    def test_as_on_a_fresh_cluster(self):
        common = self.ids.take(200)
        prompts = [common + self.ids.take(7) for _ in KINDS]
        jobs = [job(ids, max_tokens=40, ignore_eos=True, **kind)
                for ids, kind in zip(prompts, KINDS)]
        reused = [self.client.ask(one) for one in jobs]
        self.assertEqual([answer.total("target_reused") for answer in reused],
                         [0] + [192] * (len(KINDS) - 1))
        for one, answer in zip(jobs, reused):
            self.restart_coordinator()
            fresh = self.client.ask(one)
            self.assertEqual(fresh.total("target_reused"), 0)
            self.assertEqual(fresh.words(), answer.words())

    def restart_coordinator(self):
        """It forgets all prefixes."""
        self.world.coordinator.stop()
        self.client.close()
        self.world.start_coordinator()
        self.world.wait_serving()
        type(self).client = Client(self.world.address)

    def test_none_across_a_group_restart(self):
        common = self.ids.take(COMMON)
        first = self.ask(common + [1])
        self.assertEqual(self.ask(common + [1]).total("target_reused"), COMMON)
        self.world.restart_workers()
        again = self.ask(common + [1])
        self.assertEqual(again.total("target_reused"), 0)
        self.assertEqual(again.words(), first.words())


class Pressure(ReuseTest):
    FLAGS = {"worker_flags": ["--kv-tokens", str(SMALL_KV)],
             "coordinator_flags": ["--draft-kv-tokens", str(SMALL_KV), "--calibrate", "0"]}

    def test_others_need_the_blocks(self):
        """Blocks that are forgotten are read again, and then known again; the text is the same."""
        common = self.ids.take(COMMON)
        first = self.ask(common + [1])
        self.assertEqual(self.ask(common + [1]).total("target_reused"), COMMON)
        fillers = [job(self.ids.take(300), **PLAIN) for _ in range(8)]
        run_jobs([self.client], fillers, 4)
        again, n_fed = self.fed(common + [1])
        reused = again.total("target_reused")
        self.assertLess(reused, COMMON)
        self.assertEqual(n_fed, COMMON + 1 - reused + TOKENS - 1)
        self.assertEqual(again.words(), first.words())
        self.assertEqual(self.ask(common + [1]).total("target_reused"), COMMON)


class LeastRecentlyUsed(ReuseTest):
    FLAGS = Pressure.FLAGS

    def test_those_used_last_stay(self):
        often, once = self.ids.take(COMMON // 2), self.ids.take(COMMON // 2)
        self.ask(often + [1])
        self.ask(once + [1])
        for _ in range(4):
            self.assertEqual(self.ask(often + [2]).total("target_reused"), COMMON // 2)
            self.ask(self.ids.take(200))
        self.assertEqual(self.ask(often + [3]).total("target_reused"), COMMON // 2)
        self.assertEqual(self.ask(once + [3]).total("target_reused"), 0)


if __name__ == "__main__":
    main()
