#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes timeout=300
"""Requests that the HTTP door refuses, and how: requests that are wrong, that come while the group
is away or the queue is full, and those of other sites' pages."""
import json
import re
import sys
import threading
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
import pypi

BUILD = sys.argv[1]
pypi.enter(BUILD)

import httpx
import openai

from cluster import SOURCE, Cluster, wait_until
from http_door import grpc_text, post

PROMPT = "Once upon a time there was a king who"
# So that what is under way stays so for seconds.
SLOW_STEPS = ["--kernels", "plain"]
PLAIN = {"ignore_eos": True, "outrider": {"n_draft": 0}}
CHAT = [{"role": "system", "content": "Tell a tale."}, {"role": "user", "content": "Of a fox."}]

world = None
client = None


def setUpModule():
    global world, client
    world = Cluster(BUILD, n_ranks=2, http=True)
    world.__enter__()
    client = openai.OpenAI(base_url=world.url + "/v1", api_key="none", max_retries=0)


def tearDownModule():
    client.close()
    world.__exit__(None, None, None)


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
                ({"prompt": "x", "outrider": {"tree_rule": "guess"}}, 400, "outrider.tree_rule",
                 "guess.*auto, k-sequential and multi-path"),
                ({"prompt": "x", "temperature": 1,
                  "outrider": {"rule": "block", "n_draft": 3, "tree_rule": "multi-path"}},
                 400, None, "start it with --trees chains:KxL"),
                ({"prompt": "x", "outrider": {"strategy": "hope"}}, 400, "outrider.strategy",
                 "hope"),
                ({"prompt": ["x"] * 65}, 400, "prompt", "65 texts, more than the 64"),
                ({"prompt": "x", "length_penalty": 2}, 400, "length_penalty", "its default 1"),
                ({"prompt": "x", "model": "x" + 80 * "é"}, 404, "model", "does not exist"),
                ({"prompt": "x", "outrider": {"priority": "x" + 60 * "é"}}, 400,
                 "outrider.priority", "none of its words"),
                ({"prompt": "x", "stop": ["a"] * 17}, 400, "stop", "at most 16 .*--max-stops"),
                ({"prompt": "x", "best_of": 3}, 400, "best_of", "must be n")):
            with self.subTest(body=body):
                got, _, answer = post(world, "/v1/completions", body)
                self.assertEqual(got, status, answer)
                self.assertEqual(answer["error"]["param"], param)
                self.assertRegex(answer["error"]["message"], words)
                self.assertIn("type", answer["error"])
        for body, words in (({}, "messages is missing"), ({"messages": []}, "at least one"),
                            ({"messages": [3]}, "not an object"),
                            ({"messages": [{"content": "x"}]}, "without a role"),
                            ({"messages": CHAT, "tools": [{"type": "function"}]}, "tools is not"),
                            ({"messages": CHAT, "top_logprobs": 2}, "needs \"logprobs\": true")):
            got, _, answer = post(world, "/v1/chat/completions", body)
            self.assertEqual(got, 400)
            self.assertRegex(answer["error"]["message"], words)

    def test_the_examples_of_the_documentation_are_served(self):
        """Each indented block of docs/http.md that is a JSON object or members of one."""
        with open(f"{SOURCE}/docs/http.md", encoding="utf-8") as file:
            blocks = re.findall(r"(?:^    .*\n)+", file.read(), re.M)
        n_served = 0
        for block in blocks:
            try:
                body = json.loads(block if block.lstrip().startswith("{") else "{" + block + "}")
            except ValueError:
                continue
            path = "chat/completions" if "messages" in body else "completions"
            asked = {"max_tokens": 4, **body}
            if path == "completions":
                asked = {"prompt": PROMPT, **asked}
            with self.subTest(body=body):
                got, _, answer = post(world, "/v1/" + path, asked)
                self.assertEqual(got, 200, answer)
                self.assertTrue(answer["choices"])
                n_served += 1
        self.assertGreaterEqual(n_served, 1)

    def test_a_prompt_longer_than_the_context_has_a_code_of_its_own(self):
        for stream in False, True:
            got, _, answer = post(world, "/v1/completions",
                                  {"prompt": [5] * 5000, "stream": stream})
            self.assertEqual(got, 400)
            self.assertEqual(answer["error"]["code"], "context_length_exceeded")
            self.assertEqual(answer["error"]["param"], "prompt")
            self.assertIn("5000 tokens", answer["error"]["message"])

    def test_next_to_nothing_is_greedy(self):
        want = grpc_text(world, PROMPT, 20, "--temperature", "0")
        for sampling in ({"top_p": 0}, {"temperature": 1e-5}, {"temperature": 1, "top_p": 1e-30}):
            made = client.completions.create(model="target", prompt=PROMPT, max_tokens=20,
                                             **sampling)
            self.assertEqual(made.choices[0].text, want, sampling)

    def test_conversations_beyond_the_limits_of_a_template_are_wrong(self):
        got, _, answer = post(world, "/v1/chat/completions",
                              {"messages": [{"role": "user", "content": ""}] * 270000})
        self.assertEqual(got, 400, answer)
        self.assertEqual(answer["error"]["param"], "messages", answer)

    def test_tokenize_is_bounded(self):
        got, _, answer = post(world, "/tokenize", {"prompt": "word " * 900000})
        self.assertEqual(got, 400, answer)
        self.assertEqual(answer["error"]["param"], "prompt")

    def test_what_is_no_object(self):
        for body, words in ((b"", "the body is empty"), (b"{", "is not JSON"),
                            (b"[]", "is an array"), (b'{"prompt": "\xff"}', "is not JSON"),
                            (b"\xff\xfe", "is not JSON"), (b'{"prompt": "\\u0000"}', "is not JSON"),
                            (b'{"prompt": "x", "prompt": "y"}', "is not JSON"),
                            (b"[" * 100000, "is not JSON")):
            answer = httpx.post(world.url + "/v1/completions", content=body)
            self.assertEqual(answer.status_code, 400, body[:40])
            self.assertIn(words, answer.json()["error"]["message"])
            self.assertIsNone(answer.json()["error"]["param"])

    def test_unknown_fields_are_ignored(self):
        got, _, _ = post(world, "/v1/completions", {
            "prompt": "x", "max_tokens": 1, "metadata": {"a": "b"}, "continuous_usage_stats": True,
            "tools": None, "response_format": {"type": "text"}, "suffix": None})
        self.assertEqual(got, 200)

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
        _, headers, _ = post(world, "/v1/completions", body, {"X-Request-Id": "mine-1"})
        self.assertEqual(headers["x-request-id"], "mine-1")
        _, headers, answer = post(world, "/v1/completions", body)
        self.assertEqual(headers["x-request-id"], answer["id"])
        status, headers, _ = post(world, "/v1/completions", body,
                                  {"X-Request-Id": "a b\"" + "c" * 200})
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


class Group(unittest.TestCase):
    """Answers that clients get while the target group is away, or has more to do than it may
    have."""

    def test_lost_and_found(self):
        with Cluster(BUILD, http=True, worker_flags=SLOW_STEPS) as own:
            mine = openai.OpenAI(base_url=own.url + "/v1", api_key="x", max_retries=0)
            stream = mine.completions.create(model="target", prompt=PROMPT, max_tokens=900,
                                             stream=True, extra_body=PLAIN)
            next(iter(stream))
            own.kill_rank(0)
            with self.assertRaises(openai.APIError):
                list(stream)
            wait_until(lambda: httpx.get(own.url + "/ready").status_code == 503, 10, "not ready")
            self.assertEqual(httpx.get(own.url + "/health").status_code, 200)
            with self.assertRaises(openai.InternalServerError) as raised:
                mine.completions.create(model="target", prompt=PROMPT)
            self.assertEqual(raised.exception.status_code, 503)
            self.assertEqual(raised.exception.response.headers["retry-after"], "1")
            own.restart_workers()
            wait_until(lambda: httpx.get(own.url + "/ready").status_code == 200, 10, "ready")
            self.assertTrue(mine.completions.create(model="target", prompt=PROMPT).choices[0].text)
            mine.close()

    def test_full_queue(self):
        """Twelve at once where one runs and one may wait."""
        flags = ["--queue", "1", "--sequences", "1"]
        with Cluster(BUILD, http=True, worker_flags=SLOW_STEPS, coordinator_flags=flags) as own:
            body = {"prompt": PROMPT, "max_tokens": 600, **PLAIN}
            answers = []

            def ask():
                answers.append(httpx.post(own.url + "/v1/completions", json=body, timeout=60))

            threads = [threading.Thread(target=ask) for _ in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            refused = [answer for answer in answers if answer.status_code == 429]
            self.assertTrue(refused)
            self.assertEqual(len([a for a in answers if a.status_code == 200]) + len(refused), 12)
            self.assertEqual(refused[0].headers["retry-after"], "1")
            self.assertEqual(refused[0].json()["error"]["type"], "rate_limit_error")


class Sites(unittest.TestCase):
    """Rights of pages of other origins."""

    def test_cross_origin(self):
        with Cluster(BUILD, http=True, coordinator_flags=["--cors", "https://a.example"]) as own:
            asked = httpx.options(own.url + "/v1/completions")
            self.assertEqual(asked.status_code, 204)
            self.assertEqual(asked.headers["access-control-allow-origin"], "https://a.example")
            self.assertIn("Authorization", asked.headers["access-control-allow-headers"])
            for fields in ("authorization, content-type, x-stainless-os,x-stainless-lang", "x_A-1"):
                asked = httpx.options(own.url + "/v1/completions",
                                      headers={"Access-Control-Request-Headers": fields})
                self.assertEqual(asked.headers["access-control-allow-headers"], fields)
            for fields in ("a: b", "x" * 1024, "<b>", ""):
                asked = httpx.options(own.url + "/v1/completions",
                                      headers={"Access-Control-Request-Headers": fields})
                self.assertIn("Idempotency-Key", asked.headers["access-control-allow-headers"])
            plain = httpx.get(own.url + "/v1/models")
            self.assertEqual(plain.headers["access-control-allow-origin"], "https://a.example")
        self.assertNotIn("access-control-allow-origin", httpx.get(world.url + "/health").headers)

    def test_pages_of_others(self):
        """A browser posts for any page that somebody opens, and for one whose name its owner lets
        mean this machine."""
        own = world.url.removeprefix("http://")
        port = own.rpartition(":")[2]
        for headers, status in (
                ({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403),
                ({"Host": f"evil.example:{port}"}, 403), ({"Host": "evil.example"}, 403),
                ({"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"}, 403),
                ({"Host": f"localhost.evil.example:{port}"}, 403),
                ({"Origin": world.url}, 200), ({"Host": f"localhost:{port}"}, 200),
                ({"Host": f"[::1]:{port}", "Origin": f"http://[::1]:{port}"}, 200),
                ({"Origin": "https://front.example", "X-Forwarded-Host": "front.example"}, 200)):
            with self.subTest(headers=headers):
                for method, path in (("POST", "/v1/completions"), ("GET", "/v1/jobs")):
                    answer = httpx.request(method, world.url + path, headers=headers, content=(
                        b'{"prompt": "x", "max_tokens": 1}' if method == "POST" else None))
                    self.assertEqual(answer.status_code, status, answer.text)
                    if status == 403:
                        self.assertEqual(answer.json()["error"]["type"], "permission_error")
                self.assertEqual(httpx.get(world.url + "/health", headers=headers).status_code, 200)
        with Cluster(BUILD, http=True, coordinator_flags=["--cors", "https://a.example"]) as other:
            for origin, status in (("https://a.example", 200), ("https://b.example", 403)):
                answer = httpx.get(other.url + "/v1/models", headers={"Origin": origin})
                self.assertEqual(answer.status_code, status)
        with Cluster(BUILD, http=True, coordinator_flags=["--insecure"]) as other:
            answer = httpx.get(other.url + "/v1/models", headers={"Host": "front.example"})
            self.assertEqual(answer.status_code, 200)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
