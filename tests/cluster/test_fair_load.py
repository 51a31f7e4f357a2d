#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes cores=2 timeout=600
"""Nobody waits for another's long prompt or slow reading: counted in steps and in their tokens, at
a proxy in front of the rank, and not in seconds. Skipped (77) where grpcio is not installed."""
import json
import os
import random
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from load_client import Client, Reader, job, score_job
from cluster import TALES, wait_until
from fault_util import PATIENCE, FaultTest, main
from random_model import write_random_model
from step_proxy import SteppedWorld

VOCABULARY = 512
LONG = 8000         # tokens of a prompt that is fed in many steps
LONG_TEXT = 100000  # tokens of a prompt, as text
LONGER = 16         # times that text: too long for the context
TEXT_STEPS = 50     # of such a prompt that are looked at
LETTERS = "abcdefghijklmnop"
SHORT = 16
STEP_TOKENS = 256
SHORT_STEPS = 3     # from the arrival of a short prompt to its first token
TRIES = 5           # of a text beside which steps are looked for
FEW_TOKENS = 64     # of a step in which a prompt of MIDDLE has more than an even share
MIDDLE = 40
READ_STEPS = 2      # in which a client that has left is noticed
READER_TIMEOUT = 2
READ_SECONDS = 0.5  # between the looks of a client that reads a little ...
FEW_MESSAGES = 30   # ... each time
MANY_TOKENS = 1000
CROWD_TOKENS = 1350 # of which three do not fit together
SMALL_WINDOW = (("grpc.http2.lookahead_bytes", 64), ("grpc.http2.bdp_probe", 0))
GREEDY = {"temperature": 0, "ignore_eos": True}
PLAIN = {**GREEDY, "n_draft": 0}
SHAPE = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY,
         "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_act": "silu",
         "max_position_embeddings": 16384, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "tie_word_embeddings": False}


def is_free(load):
    """Nobody is there, and nobody's step, which may end later, keeps blocks."""
    return load.is_idle() and (load.target_kv[0], load.draft_kv[0]) == (0, 0)


class FairTest(FaultTest):
    STRETCH = "1"
    PAUSE_S = 0
    WORKER = ["--kv-tokens", "65536"]
    COORDINATOR = []

    @classmethod
    def setUpClass(cls):
        cls.world = SteppedWorld(
            worker_flags=["--max-step-tokens", str(STEP_TOKENS), *cls.WORKER],
            coordinator_flags=["--prompt-stretch", cls.STRETCH, "--draft-kv-tokens", "65536",
                               *cls.COORDINATOR])
        cls.addClassCleanup(cls.world.leave)
        cls.choose_models()
        cls.world.start()
        cls.world.proxy.pause_s = cls.PAUSE_S
        cls.client = Client(cls.world.address)
        cls.addClassCleanup(cls.client.close)
        cls.rng = random.Random(cls.__name__)

    @classmethod
    def choose_models(cls):
        path = os.path.join(cls.world.folder, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(SHAPE, file)
        cls.world.target = f"synthetic:{path},seed=5,agree=0.8"
        cls.world.draft = cls.world.target + ",draft=1"

    def ids(self, n):
        return [self.rng.randrange(VOCABULARY) for _ in range(n)]

    def begin(self, ids, **options):
        reader = Reader(self.client, job(ids, **{**PLAIN, **options}))
        self.addCleanup(reader.call.cancel)
        return reader

    def steps(self):
        return self.world.proxy.steps

    def wait_tokens(self, reader, n=1):
        wait_until(lambda: reader.n_tokens() >= n, 20 * PATIENCE, f"{n} tokens are here")

    def find(self, ids, begin=0):
        """(number of the step, lane) of the first step from `begin` on that begins this prompt."""
        for number, step in enumerate(self.steps()[begin:], begin):
            for lane in step.lanes:
                if lane.position == 0 and lane.tokens[:lane.end()] == ids[:lane.end()]:
                    return number, lane
        return None

    def running(self, n_tokens=40):
        """A stream that runs, and its slot."""
        ids = self.ids(n_tokens)
        reader = self.begin(ids)
        self.wait_tokens(reader, 3)
        return reader, self.find(ids)[1].slot

    def feed_long(self, n_steps=4, **options):
        """A long prompt of which some steps have been fed, and its slot."""
        ids = self.ids(LONG)
        reader = self.begin(ids, max_tokens=4, **options)
        wait_until(lambda: self.find(ids), 20 * PATIENCE, "the long prompt is read")
        first, lane = self.find(ids)
        wait_until(lambda: len(self.steps()) > first + n_steps, 20 * PATIENCE, "steps went by")
        return reader, first, lane.slot

    def hold(self):
        """A step is in flight from now on. Returns the number of those before it and with it."""
        self.world.proxy.hold()
        n = -1
        while n != len(self.steps()):
            n = len(self.steps())
            time.sleep(0.1 * PATIENCE)
        return n

    def release(self):
        """Goes on when whatever was sent meanwhile has certainly come."""
        time.sleep(0.4 * PATIENCE)
        self.world.proxy.release()

    def tearDown(self):
        self.world.proxy.release()
        self.doCleanups()
        wait_until(lambda: is_free(self.client.load()), 20 * PATIENCE, "nothing is left")
        self.check_logs(self.world)


class LongPrompt(FairTest):
    PAUSE_S = 0.05  # a long prompt must not be at its end when others come

    def test_running_streams_have_a_token_in_each_step(self):
        """And no step is longer than the budget allows."""
        runners = [self.running() for _ in range(3)]
        long_one, first, slot = self.feed_long()
        self.wait_tokens(long_one)
        fed = [step for step in self.steps()[first:] if step.lane_of(slot)]
        fed = [step for step in fed if step.lane_of(slot).end() <= LONG]
        self.assertGreater(len(fed), LONG // STEP_TOKENS)
        for step in fed:
            self.assertLessEqual(step.n_tokens, STEP_TOKENS)
            for _, runner in runners:
                self.assertEqual(len(step.lane_of(runner).tokens), 1)
        print(f"{len(fed)} steps for {LONG} tokens, the longest of "
              f"{max(step.n_tokens for step in fed)}", file=sys.stderr)

    def test_guessing_streams_too(self):
        ids = self.ids(40)
        reader = self.begin(ids, n_draft=3)
        self.wait_tokens(reader, 6)
        runner = self.find(ids)[1].slot
        long_one, first, slot = self.feed_long(n_draft=2)
        self.wait_tokens(long_one)
        fed = [step for step in self.steps()[first:]
               if step.lane_of(slot) and step.lane_of(slot).end() < LONG]
        self.assertGreater(len(fed), LONG // STEP_TOKENS)
        for step in fed:
            lane = step.lane_of(runner)
            self.assertEqual((len(lane.tokens), lane.n_draft), (4, 3))

    def test_short_prompts_do_not_wait(self):
        self.running()
        long_one, _, slot = self.feed_long()
        for n in (1, 3):
            held = self.hold()
            prompts = [self.ids(SHORT) for _ in range(n)]
            readers = [self.begin(ids, max_tokens=4) for ids in prompts]
            self.release()
            for reader in readers:
                self.wait_tokens(reader)
            for ids in prompts:
                number, lane = self.find(ids, held)
                self.assertEqual((lane.end(), lane.n_rows), (SHORT, 1))
                self.assertLess(number, held + SHORT_STEPS)
                self.assertLess(self.steps()[number].lane_of(slot).end(), LONG)
        self.assertEqual(long_one.n_tokens(), 0)

    def test_long_prompts_are_read_in_turn(self):
        """The younger one begins when the older one ends."""
        held = self.hold()
        prompts = [self.ids(LONG // 2) for _ in range(2)]
        readers = [self.begin(ids, max_tokens=2) for ids in prompts]
        self.release()
        for reader in readers:
            self.wait_tokens(reader)
        # The one that was sent later may come first.
        older, younger = sorted((self.find(ids, held) for ids in prompts), key=lambda it: it[0])
        before = [step.lane_of(older[1].slot).end() for step in self.steps()[older[0]:younger[0]]]
        self.assertGreaterEqual(len(before), LONG // 2 // STEP_TOKENS)
        self.assertGreaterEqual(before[-1], LONG // 2 - STEP_TOKENS)

    def test_left_client_is_noticed_within_a_chunk(self):
        """Also where the draft has to read the prompt."""
        _, runner = self.running()
        for options in ({"n_draft": 0}, {"n_draft": 4}):
            with self.subTest(str(options)):
                long_one, _, slot = self.feed_long(**options)
                held = self.hold()
                self.assertLess(self.steps()[held - 1].lane_of(slot).end(), LONG)
                long_one.call.cancel()
                self.release()
                wait_until(lambda: len(self.steps()) > held + 20, 20 * PATIENCE, "others go on")
                for step in self.steps()[held + READ_STEPS:held + 20]:
                    self.assertIsNone(step.lane_of(slot))
                    self.assertIsNotNone(step.lane_of(runner))
                self.assertEqual(long_one.n_tokens(), 0)

    def test_long_score_delays_nobody(self):
        _, runner = self.running()
        text = self.ids(LONG)
        first = len(self.steps())
        answer = self.client.ask(score_job(text, top_n=2), method="Score")
        self.assertEqual(len(answer.scores), LONG)
        for step in self.steps()[first + 1:]:
            self.assertIsNotNone(step.lane_of(runner))
            self.assertLessEqual(step.n_tokens, STEP_TOKENS)


class PromptsAlone(FairTest):
    """Nobody decodes."""
    PAUSE_S = 0.05
    WORKER = [*FairTest.WORKER, "--max-step-tokens", str(FEW_TOKENS)]

    def test_short_prompts_do_not_wait_for_a_long_one(self):
        """They have half of each step until they are read, and it has the other half."""
        long_one, _, slot = self.feed_long()
        held = self.hold()
        prompts = [self.ids(MIDDLE) for _ in range(3)]
        readers = [self.begin(ids, max_tokens=1) for ids in prompts]
        self.release()
        for reader in readers:
            self.assertEqual(reader.end(20 * PATIENCE), "OK")
        slots = [self.find(ids, held)[1].slot for ids in prompts]
        last = max(number for number, step in enumerate(self.steps()[held:], held)
                   if any(step.lane_of(short) for short in slots))
        n_steps = -(-len(prompts) * MIDDLE // (FEW_TOKENS // 2))
        self.assertLess(last, held + n_steps + SHORT_STEPS)
        for step in self.steps()[held:last + 1]:
            self.assertGreaterEqual(len(step.lane_of(slot).tokens), FEW_TOKENS // 2)
        self.assertLess(self.steps()[last].lane_of(slot).end(), LONG // 2)
        self.assertEqual(long_one.n_tokens(), 0)
        for ids, reader in zip(prompts, readers):
            alone = self.client.ask(job(ids, max_tokens=1, **PLAIN))
            self.assertEqual(reader.answer.texts[0].ids, alone.texts[0].ids)


class LongText(FairTest):
    """A text of 100,000 tokens: while it is tokenized, and while it is fed."""
    WORKER = ["--kv-tokens", "131072"]

    @classmethod
    def choose_models(cls):
        """The tales tokenizer, and a context that has room for the text."""
        folder = write_random_model(os.path.join(cls.world.folder, "model"),
                                    os.path.join(TALES, "draft"), 3)
        path = os.path.join(folder, "config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**config, "max_position_embeddings": 131072}, file)
        cls.world.target = cls.world.draft = folder

    def check_runner(self, runner, before):
        """It has had a token in each step since then."""
        for step in self.steps()[before:]:
            self.assertEqual(len(step.lane_of(runner).tokens), 1)
            self.assertLessEqual(step.n_tokens, STEP_TOKENS)

    def tokens_beside(self, runner, text):
        """The tokens of a text that is too long, if steps came in each third of the time until it
        was refused, and otherwise 0."""
        before = len(self.steps())
        answer = self.client.ask(job(text=text, **PLAIN))
        self.assertEqual(answer.status, "INVALID_ARGUMENT")
        n_tokens = int(re.search(r"the prompt has (\d+) tokens", answer.details)[1])
        self.assertGreater(n_tokens, LONGER * LONG_TEXT)
        self.check_runner(runner, before)
        came = [step.came for step in self.steps()[before:] if step.came < answer.ended]
        gaps = [after - one for one, after in zip([answer.began] + came, came + [answer.ended])]
        print(f"{n_tokens} tokens refused after {answer.seconds():.2f} s and {len(came)} steps, "
              f"at most {max(gaps):.3f} s apart", file=sys.stderr)
        third = answer.seconds() / 3
        parts = {int((one - answer.began) / third) for one in came if one > answer.began}
        return n_tokens if {0, 1, 2} <= parts else 0

    def test_running_streams_do_not_wait_for_it(self):
        _, runner = self.running()
        text = " ".join("".join(self.rng.choices(LETTERS, k=3)) for _ in range(LONG_TEXT // 2))
        # A busy machine may hold up a step for as long as a text takes. If steps waited for the
        # text, there would be one at its beginning or end, however often it is tried.
        tries = (self.tokens_beside(runner, " ".join([text] * LONGER)) for _ in range(TRIES))
        n_tokens = next(filter(None, tries), 0)
        self.assertGreater(n_tokens, 0, "steps came in each third of the time")
        before = len(self.steps())
        reader = Reader(self.client, job(text=text, max_tokens=1, **PLAIN))
        self.addCleanup(reader.call.cancel)
        wait_until(lambda: len(self.steps()[-1].lanes) > 1, 20 * PATIENCE, "it is being fed")
        first = next(number for number, step in enumerate(self.steps()[before:], before)
                     if len(step.lanes) > 1)
        wait_until(lambda: len(self.steps()) > first + TEXT_STEPS, 60 * PATIENCE, "it is fed")
        self.check_runner(runner, before)
        slot = next(lane.slot for lane in self.steps()[first].lanes if lane.slot != runner)
        fed = [step.lane_of(slot).end() for step in self.steps()[first:first + TEXT_STEPS]]
        self.assertEqual(fed, sorted(set(fed)))
        self.assertLess(fed[-1], n_tokens // LONGER)
        print(f"{first - before} steps until {n_tokens // LONGER} tokens were there",
              file=sys.stderr)


class SlowReader(FairTest):
    """256 KiB wait for a client, then its texts pause."""

    def begin_slow(self, message, method="Generate"):
        client = Client(self.world.address, SMALL_WINDOW)
        self.addCleanup(client.close)
        call = client.begin(message, method=method)
        self.assertTrue(call.read_one())
        return call

    def check_others_go_on(self, quiet):
        """While a client does not read, a stream has a token in each step, and steps go on without
        the slots of that client."""
        reader, runner = self.running()
        n_before, first = reader.n_tokens(), len(self.steps())
        wait_until(lambda: len(self.steps()) > first + 50 and quiet(self.steps()[-20:], runner),
                   60 * PATIENCE, "steps go on without the slow one")
        for step in self.steps()[first:]:
            self.assertIsNotNone(step.lane_of(runner))
        self.wait_tokens(reader, n_before + 50)
        reader.call.cancel()

    @staticmethod
    def is_alone(steps, runner):
        return all([lane.slot for lane in step.lanes] == [runner] for step in steps)

    def test_slow_reader_of_texts(self):
        ids = self.ids(30)
        message = job(ids, max_tokens=MANY_TOKENS, n=16, **PLAIN)
        right = self.client.ask(job(ids, max_tokens=MANY_TOKENS, **PLAIN)).texts[0].ids
        call = self.begin_slow(message)
        self.check_others_go_on(self.is_alone)
        n_before = len(self.steps())
        answer = call.read()
        self.assertEqual(answer.status, "OK")
        # It had paused and was not at its end.
        self.assertTrue(any(len(step.lanes) == 16 for step in self.steps()[n_before:]))
        self.assertEqual([text.ids for text in answer.texts.values()], [right] * 16)

    def test_slow_reader_of_scores(self):
        message = score_job(self.ids(LONG), top_n=60)
        call = self.begin_slow(message, "Score")
        self.check_others_go_on(self.is_alone)
        right = self.client.ask(message, method="Score")
        answer = call.read()
        self.assertEqual((answer.status, len(answer.scores)), ("OK", LONG))
        self.assertEqual(answer.scores, right.scores)

    def test_slow_reader_leaves(self):
        call = self.begin_slow(score_job(self.ids(LONG), top_n=60), "Score")
        time.sleep(1)
        call.cancel()
        wait_until(lambda: self.client.load().is_idle(), 2 * PATIENCE, "its place is free")


class SlowReaderEnds(FairTest):
    COORDINATOR = ["--reader-timeout", str(READER_TIMEOUT)]

    def test_who_never_reads_is_ended(self):
        client = Client(self.world.address, SMALL_WINDOW)
        self.addCleanup(client.close)
        before = self.client.load().ends["slow_reader"]
        call = client.begin(job(self.ids(30), max_tokens=MANY_TOKENS, n=16, **PLAIN))
        self.assertTrue(call.read_one())
        began = time.monotonic()
        wait_until(lambda: self.client.load().ends["slow_reader"] == before + 1, 10 * PATIENCE,
                   "it is ended")
        self.assertGreater(time.monotonic() - began, READER_TIMEOUT - 0.5)
        wait_until(lambda: self.client.load().is_idle(), 2 * PATIENCE, "its places are free")
        answer = call.read()
        self.assertEqual(answer.status, "RESOURCE_EXHAUSTED")
        self.assertIn(f"has not read its answer for {READER_TIMEOUT} s", answer.details)

    def test_who_reads_a_little_goes_on(self):
        """Its queue stays full, and grows while other sequences of the job fill it, for much longer
        than the limit."""
        client = Client(self.world.address, SMALL_WINDOW)
        self.addCleanup(client.close)
        ids = self.ids(30)
        options = {"max_tokens": 100, "logprobs": 64, **PLAIN}
        right = self.client.ask(job(ids, **options)).texts[0]
        call = client.begin(job(ids, n=16, **options))
        for _ in range(int(3 * READER_TIMEOUT / READ_SECONDS)):
            for _ in range(FEW_MESSAGES):
                self.assertTrue(call.read_one())
            time.sleep(READ_SECONDS)
        self.assertEqual(self.client.load().running, 16)
        answer = call.read()
        self.assertEqual(answer.status, "OK")
        self.assertEqual([text.words() for text in answer.texts.values()], [right.words()] * 16)


class SlowReaderInTheWay(FairTest):
    """Places and KV for few: those of a client that does not read are given to others."""
    WORKER = ["--kv-tokens", "4096"]
    COORDINATOR = ["--sequences", "3"]

    def begin_slow(self, ids):
        """A text with so much to send that it soon waits for its client."""
        client = Client(self.world.address, SMALL_WINDOW)
        self.addCleanup(client.close)
        call = client.begin(job(ids, max_tokens=CROWD_TOKENS, logprobs=64, **PLAIN))
        self.assertTrue(call.read_one())
        return call

    def wait_quiet(self):
        wait_until(lambda: self.is_quiet(0.5), 20 * PATIENCE, "the slow ones wait")

    def is_quiet(self, seconds):
        n = len(self.steps())
        time.sleep(seconds)
        return n == len(self.steps())

    def test_who_found_no_room_is_next_when_there_is(self):
        """The room that was there when a prompt began is not what it leaves: another text has
        grown since, and nothing is left to read."""
        running = self.begin(self.ids(20), max_tokens=CROWD_TOKENS)
        self.wait_tokens(running)
        first_ids, second_ids = self.ids(3000), self.ids(1200)
        first = self.begin(first_ids, max_tokens=2)
        wait_until(lambda: self.find(first_ids), 20 * PATIENCE, "the first prompt is read")
        second = self.begin(second_ids, max_tokens=2)
        self.assertEqual(first.end(20 * PATIENCE), "OK")
        self.assertEqual(second.end(20 * PATIENCE), "OK")
        self.assertTrue(running.is_alive())

    def test_others_get_their_places(self):
        texts = [self.ids(20) for _ in range(3)]
        short = self.ids(SHORT)
        right = [self.client.ask(job(ids, max_tokens=CROWD_TOKENS, logprobs=64, **PLAIN))
                 for ids in texts]
        calls = [self.begin_slow(ids) for ids in texts]
        self.wait_quiet()
        self.assertEqual(self.client.load().running, 3)
        before = self.client.load().preemptions
        self.assertGreaterEqual(self.client.load().target_kv[0], 60) # blocks that the texts hold
        # It fits only without all of them, and the short ones only beside it.
        long = self.begin(self.ids(3700), max_tokens=300)
        self.wait_tokens(long)
        for _ in range(3):
            answer = self.client.ask(job(short, max_tokens=5, **PLAIN), timeout=20 * PATIENCE)
            self.assertEqual(answer.status, "OK")
        self.assertTrue(long.is_alive())
        long.call.cancel()
        for call, answer in zip(calls, right):
            self.assertEqual(call.read().words(), answer.words())
        # They are counted at the end of a text.
        self.assertGreaterEqual(self.client.load().preemptions, before + len(texts))


if __name__ == "__main__":
    main(at_once=3)
