#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes timeout=300
"""OpenAI's own client under asyncio: completions and conversations, whole and streamed, n = 3, with
log-probabilities, all at once, and streams that are left in the middle. Each text is that of the
same request alone, from a client without asyncio."""
import asyncio
import json
import sys
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
import pypi

BUILD = sys.argv[1]
pypi.enter(BUILD)

import openai

from cluster import Cluster, wait_until
from far_cluster import FarRanks

N_TEXTS = 3
N_SEEDS = 4
COMPLETION = {"model": "target", "prompt": "Once upon a time there was a king who",
              "max_tokens": 24, "n": N_TEXTS, "temperature": 1, "logprobs": 2}
CHAT = {"model": "target", "messages": [{"role": "user", "content": "Of a fox."}],
        "max_tokens": 24, "n": N_TEXTS, "temperature": 1, "logprobs": True, "top_logprobs": 2}


def setUpModule():
    global world
    world = Cluster(BUILD, http=True)
    world.__enter__()


def tearDownModule():
    world.__exit__(None, None, None)


def said(choice):
    """The text and the log-probabilities of a choice, or of a chunk's; None where it has none."""
    part = getattr(choice, "message", None) or getattr(choice, "delta", None)
    text = part.content if part else choice.text
    if not choice.logprobs:
        return text or "", []
    content = getattr(choice.logprobs, "content", None)
    if content is None:
        return text or "", choice.logprobs.token_logprobs
    return text or "", [token.logprob for token in content]


async def whole(create, body):
    made = await create(**body)
    return [(*said(choice), choice.finish_reason) for choice in made.choices]


async def streamed(create, body):
    texts, logprobs, reasons = [""] * N_TEXTS, [[] for _ in range(N_TEXTS)], [None] * N_TEXTS
    async for chunk in await create(stream=True, **body):
        choice = chunk.choices[0]
        assert reasons[choice.index] is None, "a chunk behind the one with the reason"
        text, more = said(choice)
        texts[choice.index] += text
        logprobs[choice.index] += more
        reasons[choice.index] = choice.finish_reason
    return list(zip(texts, logprobs, reasons))


class Far(FarRanks, Cluster):
    """A text of 900 tokens without guesses takes 36 s or more."""
    delay_s = 0.02

    def load(self):
        return json.loads(self.outrider("describe", "--json").stdout)["load"]

    def wait_running(self, n):
        """Until n texts are made and none waits."""
        def look():
            load = self.load()
            return (load["running"], load["waiting"]) == (n, 0)
        wait_until(look, 30, f"{n} texts run")


class Together(unittest.TestCase):
    def test_texts_are_those_of_requests_alone(self):
        async def all_of_them():
            async with openai.AsyncOpenAI(base_url=world.url + "/v1", api_key="x") as client:
                made = [ask(create, {**body, "seed": seed})
                        for seed in range(N_SEEDS) for ask in (whole, streamed)
                        for create, body in ((client.completions.create, COMPLETION),
                                             (client.chat.completions.create, CHAT))]
                return await asyncio.gather(*made)

        together = iter(asyncio.run(all_of_them()))
        with openai.OpenAI(base_url=world.url + "/v1", api_key="x") as client:
            for seed in range(N_SEEDS):
                alone = [[(*said(choice), choice.finish_reason)
                          for choice in create(seed=seed, **body).choices]
                         for create, body in ((client.completions.create, COMPLETION),
                                              (client.chat.completions.create, CHAT))]
                for _ in (whole, streamed):
                    for want in alone:
                        self.assertEqual(next(together), want)
                        self.assertEqual({reason for _, _, reason in want}, {"length"})
                        self.assertEqual([len(logprobs) for _, logprobs, _ in want], [24] * N_TEXTS)

    def test_streams_are_left(self):
        """By closing them, and by cancelling the task that reads."""
        long = {"max_tokens": 900, "extra_body": {"ignore_eos": True, "outrider": {"n_draft": 0}}}

        async def leave(far):
            async with openai.AsyncOpenAI(base_url=far.url + "/v1", api_key="x") as client:
                for create, body in ((client.completions.create, COMPLETION),
                                     (client.chat.completions.create, CHAT)):
                    stream = await create(stream=True, **{**body, **long})
                    await anext(aiter(stream))
                    await stream.close()
                    await asyncio.to_thread(far.wait_running, 0)
                    task = asyncio.create_task(whole(create, {**body, **long}))
                    await asyncio.to_thread(far.wait_running, N_TEXTS)
                    task.cancel()
                    with self.assertRaises(asyncio.CancelledError):
                        await task

        with Far(BUILD, http=True) as far:
            asyncio.run(leave(far))
            far.wait_running(0)
            self.assertEqual(far.load()["target_kv"]["in_use"], 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], warnings="ignore")
