#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes timeout=600
"""OpenAI's own client against the HTTP door: completions and conversations, whole and streamed,
with everything that programs rely on; test_openai_async.py has asyncio. The texts are those of
gRPC."""
import json
import re
import socket
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
from http_door import grpc_text, post

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


def running():
    """Sequences that have a place, or wait for one."""
    load = json.loads(world.outrider("describe", "--json").stdout)["load"]
    return load["running"] + load["waiting"], load["target_kv"]["in_use"]


class Completions(unittest.TestCase):
    def test_greedy_is_the_text_of_grpc(self):
        want = grpc_text(world, PROMPT, 60, "--temperature", "0")
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
            want = grpc_text(world, PROMPT, 60, "--temperature", "0.9", "--seed", str(seed))
            for stream in (False, True):
                for k in (0, 4):
                    made = client.completions.create(
                        model="target", prompt=PROMPT, max_tokens=60, temperature=0.9, seed=seed,
                        stream=stream, extra_body={"outrider": {"n_draft": k}})
                    text = "".join(c.choices[0].text for c in made) if stream \
                        else made.choices[0].text
                    self.assertEqual(text, want)

    def test_seeds_have_64_bits_and_are_signed_in_answers(self):
        for seed, signed in ((2**64 - 1, -1), (2**63, -2**63), (2**63 - 1, 2**63 - 1)):
            want = grpc_text(world, PROMPT, 20, "--temperature", "1", "--seed", str(seed))
            for sent in seed, signed:
                made = client.completions.create(model="target", prompt=PROMPT, max_tokens=20,
                                                 temperature=1, seed=sent,
                                                 extra_body={"outrider": {}})
                self.assertEqual(made.choices[0].text, want)
                self.assertEqual(made.model_extra["outrider"][0]["seed"], signed)
        for sent in 2**64, -2**63 - 1, 10**400, 0.5:
            with self.assertRaisesRegex(openai.BadRequestError, "seed is .*must be an integer"):
                client.completions.create(model="target", prompt=PROMPT, seed=sent)

    def test_stream(self):
        want = grpc_text(world, PROMPT, 40, "--temperature", "0")
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
        self.assertEqual("".join(texts), grpc_text(world, prompt, 200, "--temperature", "1.5",
                                                   "--seed", "3"))

    def test_lists_of_prompts(self):
        prompts = ["Once upon", "There was a", "The king said"]
        made = client.completions.create(model="target", prompt=prompts, max_tokens=5,
                                         temperature=0, n=2)
        self.assertEqual([c.index for c in made.choices], list(range(6)))
        for i, prompt in enumerate(prompts):
            want = grpc_text(world, prompt, 5, "--temperature", "0")
            self.assertEqual([c.text for c in made.choices[2 * i:2 * i + 2]], [want] * 2)
        ids = [self.ids(p) for p in prompts]
        same = client.completions.create(model="target", prompt=ids, max_tokens=5, temperature=0)
        self.assertEqual([c.text for c in same.choices], [c.text for c in made.choices[::2]])
        one = client.completions.create(model="target", prompt=ids[0], max_tokens=5, temperature=0)
        self.assertEqual(one.choices[0].text, same.choices[0].text)

    @staticmethod
    def ids(text):
        return post(world, "/tokenize", {"prompt": text})[2]["tokens"]

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
        want = grpc_text(world, PROMPT, 200, "--temperature", "0")
        stop = want[40:46]
        made = client.completions.create(model="target", prompt=PROMPT, max_tokens=200,
                                         temperature=0, stop=[stop, "@@", "##", "%%", "&&", "**"])
        self.assertEqual(made.choices[0].finish_reason, "stop")
        self.assertEqual(made.choices[0].text, want[:want.index(stop)])
        with self.assertRaisesRegex(openai.BadRequestError, "stop has 7 texts, at most 6"):
            client.completions.create(model="target", prompt=PROMPT, stop=list("abcdefg"))

    def test_logprobs_of_a_stopped_text(self):
        """They are of the tokens in the text and of the id that ended it, not a stop string's."""
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
            whole = made.text + (tokens[at] if "extra_body" in extra else "")
            self.assertEqual("".join(made.logprobs.tokens), whole)
            self.assertEqual(len({len(made.logprobs.tokens), len(made.logprobs.token_logprobs),
                                  len(made.logprobs.top_logprobs),
                                  len(made.logprobs.text_offset)}), 1)
            for token, offset in zip(made.logprobs.tokens, made.logprobs.text_offset):
                self.assertTrue(whole[offset:].startswith(token))
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
        """Sends a request as lm-evaluation-harness does: ids, one token more, echo, logprobs."""
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
                            json=body, timeout=60)
        self.assertEqual(answer.status_code, 200, answer.text)
        line = wait_until(lambda: [one for one in world.logs()["coordinator.log"].splitlines()
                                   if "request=scored" in one or "request_id=scored" in one], 10,
                          "it is logged")
        self.assertIn('client="alice"', line[0])
        late = httpx.post(world.url + "/v1/completions", timeout=60,
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
                                grpc_text(world, PROMPT, 60, "--temperature", "0"))

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
    """An answer that is kept until it has been read is charged to --queue-bytes."""
    ASK = {"prompt": list(range(300, 1300)), "max_tokens": 0, "echo": True, "logprobs": 64, "n": 8}

    def test_what_nobody_reads_is_kept(self):
        body = json.dumps(self.ASK).encode()
        with Cluster(BUILD, http=True) as own, socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            host, port = own.http.split(":")
            reader.connect((host, int(port)))
            reader.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Length: %d\r\n\r\n" % len(body) + body)
            self.assertEqual(reader.recv(12), b"HTTP/1.1 200") # it is whole, and its job is over
            self.assertGreater(self.kept(own), 4 << 20)
            reader.close()
            wait_until(lambda: self.kept(own) == 0, 20, "all that was charged is given back")

    def test_what_does_not_fit_is_refused(self):
        ask = self.ASK
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
        ids = post(world, "/tokenize", {"messages": CHAT})[2]["tokens"]
        self.assertEqual(post(world, "/detokenize", {"tokens": ids})[2]["prompt"], prompt)
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

    def test_an_answer_sent_back_as_it_came_is_read_without_its_empty_keys(self):
        answer = self.create(max_tokens=8).choices[0].message
        last = {"role": "user", "content": "And then?"}
        plain = [*CHAT, {"role": "assistant", "content": answer.content}, last]
        want = post(world, "/tokenize", {"messages": plain})[2]["tokens"]
        dumped = [*CHAT, {**answer.model_dump(), "tool_calls": []}, last]
        self.assertIn("refusal", dumped[2])
        self.assertEqual(post(world, "/tokenize", {"messages": dumped})[2]["tokens"], want)
        self.assertEqual(self.create(messages=dumped, max_tokens=8).usage.prompt_tokens, len(want))
        silent = [CHAT[0], {"role": "user", "content": None}]
        without = [CHAT[0], {"role": "user"}]
        self.assertEqual(post(world, "/tokenize", {"messages": silent})[2],
                         post(world, "/tokenize", {"messages": without})[2])
        for path in "/tokenize", "/v1/chat/completions":
            got, _, refused = post(world, path, {"messages": [*CHAT, {"role": "user",
                                                                      "content": 5}]})
            self.assertEqual((got, refused["error"]["param"]), (400, "messages[2].content"))

    def test_template_refuses(self):
        with self.assertRaisesRegex(openai.BadRequestError, "not robot"):
            self.create(messages=[{"role": "robot", "content": "beep"}])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
