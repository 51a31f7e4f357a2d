#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes timeout=600
"""OpenAI's own client against the HTTP door: completions and conversations, whole and streamed,
from threads and from asyncio, with everything that programs rely on. The texts are those of
gRPC."""
import asyncio
import json
import re
import sys
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
import pypi

BUILD = sys.argv[1]
pypi.enter(BUILD)

import httpx
import openai

from cluster import Cluster, wait_until

PROMPT = "Once upon a time there was a king who"
CHAT = [{"role": "system", "content": "Tell a tale."}, {"role": "user", "content": "Of a fox."}]
LONG = 400

world = None
client = None


def setUpModule():
    global world, client
    world = Cluster(BUILD, n_ranks=2, http=True, coordinator_flags=["--max-stops", "6"])
    world.__enter__()
    client = openai.OpenAI(base_url=world.url + "/v1", api_key="none", max_retries=0)


def tearDownModule():
    client.close()
    world.__exit__(None, None, None)


def grpc_text(prompt, n_tokens, *more):
    """The text that the gRPC door gives."""
    done = world.outrider("generate", prompt, "-n", str(n_tokens), "--json", *more)
    return json.loads(done.stdout)["text"]


def post(path, body, headers={}):
    """Status, headers and parsed body of a plain request."""
    answer = httpx.post(world.url + path, json=body, headers=headers, timeout=60)
    return answer.status_code, answer.headers, answer.json()


def running():
    """Sequences that have a place, or wait for one."""
    load = json.loads(world.outrider("describe", "--json").stdout)["load"]
    return load["running"] + load["waiting"], load["target_kv"]["in_use"]


class Completions(unittest.TestCase):
    def test_greedy_is_the_text_of_grpc(self):
        want = grpc_text(PROMPT, 60, "--temperature", "0")
        for outrider in (None, {"n_draft": 0}, {"n_draft": 5}, {"rule": "greedy"}):
            body = {"outrider": outrider} if outrider else {}
            made = client.completions.create(model="target", prompt=PROMPT, max_tokens=60,
                                             temperature=0, extra_body=body)
            self.assertEqual(made.choices[0].text, want)
            chunks = client.completions.create(model="target", prompt=PROMPT, max_tokens=60,
                                               temperature=0, stream=True, extra_body=body)
            self.assertEqual("".join(chunk.choices[0].text for chunk in chunks), want)
            self.assertEqual(made.choices[0].finish_reason, "length")
            self.assertEqual(made.usage.completion_tokens, 60)
            self.assertEqual(made.usage.total_tokens, 60 + made.usage.prompt_tokens)

    def test_coupled_is_the_text_of_grpc(self):
        for seed in (7, 8):
            want = grpc_text(PROMPT, 60, "--temperature", "0.9", "--seed", str(seed))
            for stream in (False, True):
                for k in (0, 4):
                    made = client.completions.create(
                        model="target", prompt=PROMPT, max_tokens=60, temperature=0.9, seed=seed,
                        stream=stream, extra_body={"outrider": {"n_draft": k}})
                    text = "".join(c.choices[0].text for c in made) if stream \
                        else made.choices[0].text
                    self.assertEqual(text, want)

    def test_large_seeds_of_grpc_are_negative(self):
        for seed, signed in ((2**64 - 1, -1), (2**63, -2**63), (2**63 - 1, 2**63 - 1)):
            want = grpc_text(PROMPT, 20, "--temperature", "1", "--seed", str(seed))
            made = client.completions.create(model="target", prompt=PROMPT, max_tokens=20,
                                             temperature=1, seed=signed,
                                             extra_body={"outrider": {}})
            self.assertEqual(made.choices[0].text, want)
            self.assertEqual(made.model_extra["outrider"][0]["seed"], signed)

    def test_stream(self):
        want = grpc_text(PROMPT, 40, "--temperature", "0")
        chunks = list(client.completions.create(
            model="target", prompt=PROMPT, max_tokens=40, temperature=0, stream=True,
            stream_options={"include_usage": True}))
        *texts, last, usage = chunks
        self.assertEqual("".join(c.choices[0].text for c in texts), want)
        for chunk in texts:
            self.assertIsNone(chunk.choices[0].finish_reason)
            self.assertIsNone(chunk.usage)
        self.assertEqual((last.choices[0].text, last.choices[0].finish_reason), ("", "length"))
        self.assertEqual(usage.choices, [])
        self.assertEqual(usage.usage.completion_tokens, 40)
        details = usage.usage.completion_tokens_details
        self.assertGreaterEqual(details.accepted_prediction_tokens, 0)
        self.assertEqual(len({c.id for c in chunks}), 1)
        self.assertTrue(all(c.system_fingerprint.endswith("cpu-bf16") for c in chunks))

    def test_chunks_are_whole_characters(self):
        """Also where a character is several tokens."""
        prompt = "Ünïcödé: 日本語 🙂 “"
        answer = httpx.post(world.url + "/v1/completions", timeout=60, json={
            "prompt": prompt, "max_tokens": 200, "temperature": 1.5, "seed": 3, "stream": True})
        texts = [json.loads(line[6:])["choices"][0]["text"] for line in answer.text.splitlines()
                 if line.startswith("data: {")]
        self.assertEqual("".join(texts), grpc_text(prompt, 200, "--temperature", "1.5", "--seed",
                                                   "3"))

    def test_lists_of_prompts(self):
        prompts = ["Once upon", "There was a", "The king said"]
        made = client.completions.create(model="target", prompt=prompts, max_tokens=5,
                                         temperature=0, n=2)
        self.assertEqual([c.index for c in made.choices], list(range(6)))
        for i, prompt in enumerate(prompts):
            want = grpc_text(prompt, 5, "--temperature", "0")
            self.assertEqual([c.text for c in made.choices[2 * i:2 * i + 2]], [want] * 2)
        ids = [self.ids(p) for p in prompts]
        same = client.completions.create(model="target", prompt=ids, max_tokens=5, temperature=0)
        self.assertEqual([c.text for c in same.choices], [c.text for c in made.choices[::2]])
        one = client.completions.create(model="target", prompt=ids[0], max_tokens=5, temperature=0)
        self.assertEqual(one.choices[0].text, same.choices[0].text)

    @staticmethod
    def ids(text):
        return post("/tokenize", {"prompt": text})[2]["tokens"]

    def test_n_streams(self):
        chunks = client.completions.create(model="target", prompt=PROMPT, max_tokens=20, n=3,
                                           temperature=1.0, seed=5, stream=True)
        texts, reasons = [""] * 3, [None] * 3
        for chunk in chunks:
            choice = chunk.choices[0]
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason
        self.assertEqual(reasons, ["length"] * 3)
        whole = client.completions.create(model="target", prompt=PROMPT, max_tokens=20, n=3,
                                          temperature=1.0, seed=5)
        self.assertEqual([c.text for c in whole.choices], texts)
        self.assertEqual(len(set(texts)), 3)

    def test_stop(self):
        want = grpc_text(PROMPT, 200, "--temperature", "0")
        stop = want[40:46]
        made = client.completions.create(model="target", prompt=PROMPT, max_tokens=200,
                                         temperature=0, stop=[stop, "@@", "##", "%%", "&&", "**"])
        self.assertEqual(made.choices[0].finish_reason, "stop")
        self.assertEqual(made.choices[0].text, want[:want.index(stop)])
        with self.assertRaisesRegex(openai.BadRequestError, "stop has 7 texts, at most 6"):
            client.completions.create(model="target", prompt=PROMPT, stop=list("abcdefg"))

    def test_logprobs_of_a_stopped_text(self):
        """They are of the tokens in the text: neither a stop string's nor the id that ended it."""
        free = client.completions.create(model="target", prompt=PROMPT, max_tokens=40,
                                         temperature=0, logprobs=1).choices[0]
        tokens, offsets = free.logprobs.tokens, free.logprobs.text_offset
        at = next(i for i in range(8, 40)
                  if free.text.index("".join(tokens[i:i + 3])) == offsets[i])
        for extra in ({"stop": ["".join(tokens[at:at + 3])]},
                      {"stop": ["".join(tokens[at:at + 3]), "".join(tokens[at - 2:at + 1]) + "@"]},
                      {"extra_body": {"stop_token_ids": self.ids(tokens[at])}}):
            made = client.completions.create(model="target", prompt=PROMPT, max_tokens=40,
                                             temperature=0, logprobs=1, **extra).choices[0]
            self.assertEqual(made.finish_reason, "stop")
            self.assertEqual("".join(made.logprobs.tokens), made.text)
            self.assertEqual(len({len(made.logprobs.tokens), len(made.logprobs.token_logprobs),
                                  len(made.logprobs.top_logprobs),
                                  len(made.logprobs.text_offset)}), 1)
            for token, offset in zip(made.logprobs.tokens, made.logprobs.text_offset):
                self.assertTrue(made.text[offset:].startswith(token))
            parts = list(client.completions.create(
                model="target", prompt=PROMPT, max_tokens=40, temperature=0, logprobs=1,
                stream=True, **extra))
            lists = [c.choices[0].logprobs for c in parts if c.choices[0].logprobs]
            self.assertEqual([t for part in lists for t in part.tokens], made.logprobs.tokens)
            chat = [{"role": "user", "content": "x"}]
            talk = client.chat.completions.create(model="target", messages=chat, max_tokens=40,
                                                  temperature=0, logprobs=True).choices[0]
            stop = "".join(t.token for t in talk.logprobs.content[6:8])
            talk = client.chat.completions.create(model="target", messages=chat, max_tokens=40,
                                                  temperature=0, logprobs=True,
                                                  stop=[stop]).choices[0]
            self.assertEqual(b"".join(bytes(t.bytes) for t in talk.logprobs.content).decode(),
                             talk.message.content)

    def test_echoes_of_several_texts(self):
        """Each has all of the prompt's log-probabilities, as a single text, and in a stream."""
        ask = dict(model="target", prompt=PROMPT * 40, max_tokens=3, logprobs=5, echo=True, seed=3,
                   temperature=1)
        one = client.completions.create(**ask).choices[0].logprobs
        many = client.completions.create(n=3, **ask).choices
        self.assertEqual([c.logprobs.token_logprobs[:-3] for c in many],
                         [one.token_logprobs[:-3]] * 3)
        self.assertEqual([c.logprobs.text_offset[-3] for c in many], [len(PROMPT) * 40] * 3)
        parts = [[], [], []]
        for chunk in client.completions.create(n=3, stream=True, **ask):
            choice = chunk.choices[0]
            if choice.logprobs:
                parts[choice.index] += zip(choice.logprobs.tokens, choice.logprobs.token_logprobs,
                                           choice.logprobs.top_logprobs,
                                           choice.logprobs.text_offset)
        for choice, part in zip(many, parts):
            whole = choice.logprobs
            self.assertEqual(part, list(zip(whole.tokens, whole.token_logprobs,
                                            whole.top_logprobs, whole.text_offset)))

    def test_logprobs(self):
        made = client.completions.create(model="target", prompt=PROMPT, max_tokens=12,
                                         temperature=0, logprobs=3)
        choice = made.choices[0]
        logprobs = choice.logprobs
        self.assertEqual("".join(logprobs.tokens), choice.text)
        for token, logprob, top, offset in zip(logprobs.tokens, logprobs.token_logprobs,
                                               logprobs.top_logprobs, logprobs.text_offset):
            self.assertEqual(logprob, max(top.values()))  # as harnesses compare: float equality
            self.assertEqual(top[token], logprob)
            self.assertTrue(choice.text[offset:].startswith(token))
        streamed = list(client.completions.create(model="target", prompt=PROMPT, max_tokens=12,
                                                  temperature=0, logprobs=3, stream=True))
        lists = [c.choices[0].logprobs for c in streamed if c.choices[0].logprobs]
        self.assertEqual([t for part in lists for t in part.tokens], logprobs.tokens)
        self.assertEqual([t for part in lists for t in part.token_logprobs],
                         logprobs.token_logprobs)

    def test_loglikelihood(self):
        """What lm-evaluation-harness does: ids, one token more, echo, logprobs."""
        context, rest = self.ids("Once upon a time"), self.ids(" there was a king")
        made = client.completions.create(model="target", prompt=[context + rest] * 2, max_tokens=1,
                                         temperature=0, logprobs=1, echo=True)
        for choice in sorted(made.choices, key=lambda c: c.index):
            values = choice.logprobs.token_logprobs
            self.assertIsNone(values[0])
            self.assertEqual(len(values), len(context) + len(rest) + 1)
            self.assertEqual(choice.text[:choice.logprobs.text_offset[-1]],
                             "Once upon a time there was a king")
            for value, top in list(zip(values, choice.logprobs.top_logprobs))[1:]:
                self.assertLessEqual(value, max(top.values()))
        ended = client.completions.create(model="target", prompt=[context + rest], max_tokens=1,
                                          temperature=0, logprobs=1, echo=True,
                                          logit_bias={"0": 100})
        self.assertEqual(ended.choices[0].finish_reason, "stop")
        self.assertEqual(len(ended.choices[0].logprobs.token_logprobs),
                         len(context) + len(rest) + 1)
        scored = json.loads(world.outrider("score", "Once upon a time there was a king",
                                           "--json").stdout)
        want = [t["logprob"] for t in scored["tokens"]][1:]
        for a, b in zip(made.choices[0].logprobs.token_logprobs[1:-1], want):
            self.assertAlmostEqual(a, b, places=5)

    def test_scores_have_a_time_and_a_name(self):
        words = "A king had three daughters and a garden. " * 12
        body = {"prompt": words, "max_tokens": 0, "echo": True, "user": "alice"}
        answer = httpx.post(world.url + "/v1/completions", headers={"X-Request-Id": "scored"},
                            json=body)
        self.assertEqual(answer.status_code, 200, answer.text)
        log = world.logs()["coordinator.log"]
        line = [one for one in log.splitlines() if "request=scored" in one
                or "request_id=scored" in one]
        self.assertTrue(line and 'client="alice"' in line[0], line)
        late = httpx.post(world.url + "/v1/completions",
                          json=body | {"prompt": [words] * 8, "outrider": {"timeout_ms": 1}})
        self.assertEqual(late.status_code, 504, late.text)

    def test_texts_of_one_prompt_reuse_nothing_of_others(self):
        made = client.completions.create(
            model="target", prompt=" ".join(f"{i} owls" for i in range(50, 90)), max_tokens=4, n=8)
        self.assertLess(made.usage.prompt_tokens_details.cached_tokens, 16)

    def test_scores_alone(self):
        made = client.completions.create(model="target", prompt=["Once upon", "A king"],
                                         max_tokens=0, logprobs=2, echo=True)
        self.assertEqual([c.text for c in made.choices], ["Once upon", "A king"])
        self.assertEqual(made.usage.completion_tokens, 0)
        self.assertEqual([len(c.logprobs.tokens) for c in made.choices],
                         [len(self.ids(t)) for t in ("Once upon", "A king")])
        with self.assertRaisesRegex(openai.BadRequestError, "max_tokens is 0"):
            client.completions.create(model="target", prompt="x", max_tokens=0)

    def test_edits(self):
        plain = client.completions.create(model="target", prompt=PROMPT, max_tokens=1,
                                          temperature=0, logprobs=0)
        token = self.ids(plain.choices[0].logprobs.tokens[0])[0]
        banned = client.completions.create(model="target", prompt=PROMPT, max_tokens=1,
                                           temperature=0, logit_bias={str(token): -100})
        self.assertNotEqual(banned.choices[0].text, plain.choices[0].text)
        for field, value in (("presence_penalty", 1.5), ("frequency_penalty", 1.0)):
            changed = client.completions.create(model="target", prompt=PROMPT, max_tokens=60,
                                                temperature=0, **{field: value})
            self.assertNotEqual(changed.choices[0].text,
                                grpc_text(PROMPT, 60, "--temperature", "0"))

    def test_outrider_field(self):
        made = client.completions.create(
            model="target", prompt=PROMPT, max_tokens=40, temperature=0,
            extra_body={"outrider": {"n_draft": 4, "strategy": "fixed", "show_drafts": True}})
        told = made.model_extra["outrider"][0]
        self.assertEqual((told["rule"], told["strategy"]), ("greedy", "fixed"))
        self.assertEqual(told["accepted"],
                         made.usage.completion_tokens_details.accepted_prediction_tokens)
        self.assertGreater(told["mean_n_draft"], 0)
        self.assertEqual(len(told["origins"]), made.usage.completion_tokens)
        self.assertEqual(told["origins"].count("accepted"), told["accepted"])

    def test_cancel_in_mid_stream(self):
        """The place is free at once, and its blocks."""
        for _ in range(3):
            stream = client.completions.create(model="target", prompt=PROMPT, max_tokens=LONG,
                                               temperature=1, stream=True,
                                               extra_body={"ignore_eos": True})
            next(iter(stream))
            stream.close()
            wait_until(lambda: running()[0] == 0, 5, "the job is gone")


class LargeAnswers(unittest.TestCase):
    """What an answer keeps until it is whole is charged to --queue-bytes."""

    def test_what_does_not_fit_is_refused(self):
        ask = {"prompt": list(range(300, 1300)), "max_tokens": 0, "echo": True, "logprobs": 64,
               "n": 8}
        with Cluster(BUILD, http=True, coordinator_flags=["--queue-bytes", str(4 << 20)]) as small:
            call = urllib.request.Request(small.url + "/v1/completions", json.dumps(ask).encode())
            with self.assertRaises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(call, timeout=60)
            self.assertEqual(caught.exception.code, 400) # it would not fit into an idle server
            message = json.loads(caught.exception.read())["error"]["message"]
            self.assertIn("too large to be kept", message)
            self.assertIn("--queue-bytes", message)
            wait_until(lambda: self.kept(small) == 0, 5, "all that was charged is given back")
            few = json.dumps(dict(ask, n=1, logprobs=1)).encode()
            call = urllib.request.Request(small.url + "/v1/completions", few)
            with urllib.request.urlopen(call, timeout=60) as answer:
                self.assertEqual(answer.status, 200)

    def kept(self, small):
        with urllib.request.urlopen(small.url + "/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return float(re.search(r"^outrider_queue_bytes(?:\{.*\})? (\S+)$", text, re.M).group(1))


class Chat(unittest.TestCase):
    def create(self, **more):
        return client.chat.completions.create(
            **{"model": "target", "messages": CHAT, "temperature": 0, **more})

    def test_text_is_that_of_the_template(self):
        made = self.create(max_completion_tokens=20)
        prompt = "Tell a tale.\n<|user|>Of a fox.<|end|><|assistant|>"
        ids = post("/tokenize", {"messages": CHAT})[2]["tokens"]
        self.assertEqual(post("/detokenize", {"tokens": ids})[2]["prompt"], prompt)
        plain = client.completions.create(model="target", prompt=ids, max_tokens=20, temperature=0)
        self.assertEqual(made.choices[0].message.content, plain.choices[0].text)
        self.assertEqual(made.choices[0].message.role, "assistant")
        self.assertEqual(made.usage.prompt_tokens, len(ids))

    def test_stream(self):
        whole = self.create(max_tokens=20)
        chunks = list(self.create(max_tokens=20, stream=True))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertTrue(all(c.choices[0].delta.role is None for c in chunks[1:]))
        last = chunks[-1].choices[0]
        self.assertEqual(last.delta.model_dump(exclude_none=True), {})
        self.assertEqual(last.finish_reason, "length")
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks),
                         whole.choices[0].message.content)

    def test_logprobs(self):
        made = self.create(max_tokens=8, logprobs=True, top_logprobs=2)
        content = made.choices[0].logprobs.content
        self.assertEqual(len(content), 8)
        self.assertEqual(b"".join(bytes(t.bytes) for t in content).decode(),
                         made.choices[0].message.content)
        for token in content:
            self.assertEqual(len(token.top_logprobs), 2)
            self.assertEqual(token.logprob, token.top_logprobs[0].logprob)

    def test_n(self):
        made = self.create(max_tokens=10, n=3, temperature=1, seed=2)
        self.assertEqual([c.index for c in made.choices], [0, 1, 2])
        self.assertEqual(made.usage.completion_tokens, 30)

    def test_parts(self):
        parts = [{"role": "system", "content": [{"type": "text", "text": "Tell a tale."}]}, CHAT[1]]
        self.assertEqual(self.create(messages=parts, max_tokens=8).choices[0].message.content,
                         self.create(max_tokens=8).choices[0].message.content)
        image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
        with self.assertRaisesRegex(openai.BadRequestError, r"messages\[0\].content.*image_url"):
            self.create(messages=image)

    def test_template_refuses(self):
        with self.assertRaisesRegex(openai.BadRequestError, "not robot"):
            self.create(messages=[{"role": "robot", "content": "beep"}])

    def test_async(self):
        async def one(client_, seed):
            stream = await client_.chat.completions.create(
                model="target", messages=CHAT, max_tokens=30, temperature=1, seed=seed,
                stream=True)
            return "".join([c.choices[0].delta.content or "" async for c in stream])

        async def all_of_them():
            async with openai.AsyncOpenAI(base_url=world.url + "/v1", api_key="x") as client_:
                return await asyncio.gather(*(one(client_, seed) for seed in range(16)))

        texts = asyncio.run(all_of_them())
        for seed in (0, 9):
            alone = self.create(max_tokens=30, temperature=1, seed=seed)
            self.assertEqual(alone.choices[0].message.content, texts[seed])


class Errors(unittest.TestCase):
    def test_bodies(self):
        for body, status, param, words in (
                ({}, 400, "prompt", "prompt is missing"),
                ({"prompt": 3}, 400, "prompt", "is an integer"),
                ({"prompt": []}, 400, "prompt", "has 0 texts"),
                ({"prompt": ""}, 400, "prompt", "prompt is empty"),
                ({"prompt": ["x", ""], "echo": True, "max_tokens": 0}, 400, "prompt", "is empty"),
                ({"prompt": "x", "suffix": "y"}, 400, "suffix", "suffix is not supported"),
                ({"prompt": "x", "tools": [{}]}, 400, "tools", "tools is not supported"),
                ({"prompt": "x", "max_tokens": -1}, 400, "max_tokens", "max_tokens is -1"),
                ({"prompt": "x", "temperature": "hot"}, 400, "temperature", "is a string"),
                ({"prompt": "x", "temperature": 1e9}, 400, "temperature", "is 1e\\+09"),
                ({"prompt": "x", "n": 65}, 400, "n", "n is 65"),
                ({"prompt": "x", "top_p": 1.5}, 400, "top_p", "top_p is 1.5"),
                ({"prompt": "x", "stop": ""}, 400, "stop", "stop must be"),
                ({"prompt": "x", "logit_bias": {"a": 1}}, 400, "logit_bias", "key \"a\""),
                ({"prompt": "x", "logit_bias": {"999999": 1}}, 400, "logit_bias", "999999"),
                ({"prompt": [999999]}, 400, "prompt", "999999"),
                ({"prompt": "x", "response_format": {"type": "json_object"}}, 400,
                 "response_format", "response_format is not supported"),
                ({"prompt": "x", "model": "gpt-4"}, 404, "model", "gpt-4.*does not exist"),
                ({"prompt": "x", "stream_options": {}}, 400, "stream_options", "\"stream\": true"),
                ({"prompt": "x", "outrider": {"rule": "guess"}}, 400, "outrider.rule",
                 "guess"),
                ({"prompt": "x", "outrider": {"strategy": "hope"}}, 400, "outrider.strategy",
                 "hope"),
                ({"prompt": ["x"] * 65}, 400, "prompt", "65 texts, more than the 64"),
                ({"prompt": "x", "length_penalty": 2}, 400, "length_penalty", "its default 1"),
                ({"prompt": "x", "model": "x" + 80 * "é"}, 404, "model", "does not exist"),
                ({"prompt": "x", "outrider": {"priority": "x" + 60 * "é"}}, 400,
                 "outrider.priority", "none of its words"),
                ({"prompt": "x", "best_of": 3}, 400, "best_of", "must be n")):
            with self.subTest(body=body):
                got, _, answer = post("/v1/completions", body)
                self.assertEqual(got, status, answer)
                self.assertEqual(answer["error"]["param"], param)
                self.assertRegex(answer["error"]["message"], words)
                self.assertIn("type", answer["error"])
        for body, words in (({}, "messages is missing"), ({"messages": []}, "at least one"),
                            ({"messages": [3]}, "not an object"),
                            ({"messages": [{"content": "x"}]}, "without a role"),
                            ({"messages": CHAT, "tools": [{"type": "function"}]}, "tools is not"),
                            ({"messages": CHAT, "top_logprobs": 2}, "needs \"logprobs\": true")):
            got, _, answer = post("/v1/chat/completions", body)
            self.assertEqual(got, 400)
            self.assertRegex(answer["error"]["message"], words)

    def test_a_prompt_longer_than_the_context_has_a_code_of_its_own(self):
        for stream in False, True:
            got, _, answer = post("/v1/completions", {"prompt": [5] * 5000, "stream": stream})
            self.assertEqual(got, 400)
            self.assertEqual(answer["error"]["code"], "context_length_exceeded")
            self.assertEqual(answer["error"]["param"], "prompt")
            self.assertIn("5000 tokens", answer["error"]["message"])

    def test_next_to_nothing_is_greedy(self):
        want = grpc_text(PROMPT, 20, "--temperature", "0")
        for sampling in ({"top_p": 0}, {"temperature": 1e-5}, {"temperature": 1, "top_p": 1e-30}):
            made = client.completions.create(model="target", prompt=PROMPT, max_tokens=20,
                                             **sampling)
            self.assertEqual(made.choices[0].text, want, sampling)

    def test_conversations_beyond_the_limits_of_a_template_are_wrong(self):
        got, _, answer = post("/v1/chat/completions",
                              {"messages": [{"role": "user", "content": ""}] * 270000})
        self.assertEqual(got, 400, answer)
        self.assertEqual(answer["error"]["param"], "messages", answer)

    def test_tokenize_is_bounded(self):
        got, _, answer = post("/tokenize", {"prompt": "word " * 900000})
        self.assertEqual(got, 400, answer)
        self.assertEqual(answer["error"]["param"], "prompt")

    def test_what_is_no_object(self):
        for body, words in ((b"", "the body is empty"), (b"{", "is not JSON"),
                            (b"[]", "is an array"), (b'{"prompt": "\xff"}', "is not JSON")):
            answer = httpx.post(world.url + "/v1/completions", content=body)
            self.assertEqual(answer.status_code, 400)
            self.assertIn(words, answer.json()["error"]["message"])
            self.assertIsNone(answer.json()["error"]["param"])

    def test_unknown_fields_are_ignored(self):
        got, _, _ = post("/v1/completions", {"prompt": "x", "max_tokens": 1, "metadata": {"a": "b"},
                                             "continuous_usage_stats": True, "tools": None,
                                             "response_format": {"type": "text"}, "suffix": None})
        self.assertEqual(got, 200)

    def test_not_json(self):
        for text in (b"", b"{", b"[]", b"\xff\xfe", b'{"prompt": "\xff"}', b'{"prompt": "\\u0000"}',
                     b'{"prompt": "x", "prompt": "y"}', b"[" * 100000):
            answer = httpx.post(world.url + "/v1/completions", content=text)
            self.assertEqual(answer.status_code, 400, text[:40])
            self.assertIn("message", answer.json()["error"])

    def test_routes(self):
        self.assertEqual(httpx.get(world.url + "/v1/nowhere").status_code, 404)
        wrong = httpx.get(world.url + "/v1/completions")
        self.assertEqual((wrong.status_code, wrong.headers["allow"]), (405, "POST"))
        for path in ("/health", "/ready", "/version", "/v1/models"):
            self.assertEqual(httpx.get(world.url + path).status_code, 200)
            self.assertEqual(httpx.head(world.url + path).status_code, 200)
        models = client.models.list().data
        self.assertEqual([m.id for m in models], ["target"])
        self.assertEqual(client.models.retrieve("target").id, "target")
        with self.assertRaises(openai.NotFoundError):
            client.models.retrieve("other")

    def test_request_id(self):
        body = {"prompt": "x", "max_tokens": 1}
        _, headers, _ = post("/v1/completions", body, {"X-Request-Id": "mine-1"})
        self.assertEqual(headers["x-request-id"], "mine-1")
        _, headers, answer = post("/v1/completions", body)
        self.assertEqual(headers["x-request-id"], answer["id"])
        status, headers, _ = post("/v1/completions", body, {"X-Request-Id": "a b\"" + "c" * 200})
        self.assertEqual((status, headers["x-request-id"]), (200, "a_b_" + "c" * 124))

    def test_request_id_is_on_every_answer(self):
        for status, method, path, body in (
                (200, "GET", "/health", b""), (200, "GET", "/v1/models", b""),
                (200, "GET", "/version", b""), (200, "GET", "/v1/jobs", b""),
                (404, "GET", "/nowhere", b""), (404, "GET", "/v1/models/other", b""),
                (405, "GET", "/v1/completions", b""), (400, "POST", "/v1/completions", b"{"),
                (413, "POST", "/v1/completions", b" " * (10 << 20)),
                (413, "GET", "/health", b"x" * 5000)):
            with self.subTest(path, status=status):
                own = httpx.request(method, world.url + path, content=body,
                                    headers={"X-Request-Id": "mine-2"})
                self.assertEqual((own.status_code, own.headers["x-request-id"]), (status, "mine-2"))
        answer = httpx.get(world.url + "/health")
        self.assertRegex(answer.headers["x-request-id"], "^req-[0-9a-f]{24}$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
