#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes timeout=600
"""Answers that a request predicts: the text stays what plain decoding writes, with a draft model
and without any other drafter, for each strategy, for several texts of a prompt and where texts lose
their places; an answer that was predicted takes few rounds, one that was predicted with changes is
found again after each, and a wrong prediction costs little. The doors of HTTP, of gRPC and of jobs
take it.

Usage: test_prediction.py BUILD_FOLDER
"""
import json
import os
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import TALES, Cluster

BUILD = sys.argv[1]
PROMPT = "Once upon a time there was a king who"
N_TOKENS = 150
TARGET = os.path.join(TALES, "target")
TEXTS = {"greedy": {"temperature": 0}, "coupled": {"temperature": 0.8, "seed": 5}}
WAYS = {"default": {}, "K = 4": {"n_draft": 4}, "one": {"n_draft": 1},
        "heuristic": {"strategy": "heuristic", "n_draft": 16},
        "threshold": {"threshold": 0.5}}
WRONG = "Nothing of this is said in the answer. " * 30

worlds = {}


def setUpModule():
    # As few KV blocks as few texts need, so that several are in each other's way.
    small = ["--threads", "1", "--kv-tokens", "640"]
    worlds["draft"] = Cluster(BUILD, http=True, worker_flags=small)
    worlds["alone"] = Cluster(BUILD, http=True, draft=None, coordinator_flags=[
        "--tokenizer", TARGET, "--lookup", "none"])
    for world in worlds.values():
        world.__enter__()


def tearDownModule():
    for world in worlds.values():
        world.__exit__(None, None, None)


def post(world, body, path="/v1/completions"):
    call = urllib.request.Request(world.url + path, json.dumps(body).encode())
    try:
        with urllib.request.urlopen(call, timeout=120) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refused:
        return json.load(refused)


def complete(world, prediction=None, outrider={}, **more):
    """The answer; prediction: a text or what the field is to be."""
    body = {"prompt": PROMPT, "max_tokens": N_TOKENS, "outrider": outrider, **more}
    if prediction is not None:
        is_text = isinstance(prediction, str)
        body["prediction"] = {"type": "content", "content": prediction} if is_text else prediction
    return post(world, body)


def text_of(answer):
    return answer["choices"][0]["text"]


def plain(text):
    return text_of(complete(worlds["alone"], outrider={"n_draft": 0}, **TEXTS[text]))


def with_changes(text):
    """A word replaced, some put in and some left out."""
    words = text.split(" ")
    words[15] = "XYZ"
    words[40:40] = ["and", "so", "on"]
    del words[70:74]
    return " ".join(words)


def counts(answer):
    details = answer["usage"]["completion_tokens_details"]
    return details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]


class Texts(unittest.TestCase):
    def test_no_prediction_changes_a_text(self):
        for text, fields in TEXTS.items():
            want = plain(text)
            for name, world in worlds.items():
                for way, outrider in WAYS.items():
                    for prediction in want, with_changes(want), WRONG:
                        with self.subTest(text=text, world=name, way=way):
                            got = complete(world, prediction, outrider, **fields)
                            self.assertEqual(text_of(got), want)

    def test_a_predicted_answer_takes_few_rounds(self):
        """At least five tokens a round with default options."""
        for text, fields in TEXTS.items():
            want = plain(text)
            for world in worlds.values():
                got = complete(world, want, **fields)
                rounds = got["outrider"][0]["rounds"]
                self.assertLessEqual(rounds, N_TOKENS / 5, got)
                accepted, rejected = counts(got)
                self.assertGreaterEqual(accepted, N_TOKENS - rounds - 20)
                self.assertLessEqual(rejected, 20)
                self.assertEqual(got["outrider"][0]["predicted_accepted"], accepted)

    def test_an_answer_is_found_again_after_changes(self):
        for text, fields in TEXTS.items():
            want = plain(text)
            got = complete(worlds["alone"], with_changes(want), {"n_draft": 8}, **fields)
            accepted, rejected = counts(got)
            self.assertGreater(accepted, N_TOKENS * 0.6)
            self.assertGreater(rejected, 0)
            self.assertLess(got["outrider"][0]["rounds"], N_TOKENS / 3)

    def test_a_wrong_prediction_is_given_up(self):
        for world in worlds.values():
            accepted, rejected = counts(complete(world, WRONG, temperature=0))
            self.assertLess(accepted, 10)
            self.assertLess(rejected, N_TOKENS / 2)

    def test_rules_that_draw(self):
        """Without a seed a text that was predicted is guessed from it as far as the draws agree;
        with a seed, whose coins may have made the prediction, it is not used."""
        for rule in "rejection", "block":
            first = complete(worlds["alone"], outrider={"rule": rule, "n_draft": 4}, seed=3)
            got = complete(worlds["alone"], text_of(first), {"rule": rule, "n_draft": 4}, seed=3)
            self.assertEqual(counts(got), (0, 0))
            self.assertEqual(text_of(got), text_of(first))
            free = complete(worlds["alone"], text_of(first), {"rule": rule}, temperature=0.5)
            self.assertGreater(sum(counts(free)), 0)

    def test_several_texts_and_those_that_lose_their_places(self):
        world = worlds["draft"]
        fields = {**TEXTS["coupled"], "ignore_eos": True, "max_tokens": 400, "n": 3}
        want = complete(world, outrider={"n_draft": 0}, **fields)
        texts = [one["text"] for one in want["choices"]]
        self.assertEqual(len(set(texts)), 3)
        got = [None] * 4

        def ask(i):
            got[i] = complete(world, texts[i % 3], **fields)

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(got))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one in got:
            self.assertEqual([choice["text"] for choice in one["choices"]], texts)
            self.assertGreater(counts(one)[0], 100)
        self.assertGreater(sum(part["preemptions"] for one in got for part in one["outrider"]), 0)


class Doors(unittest.TestCase):
    def test_forms_of_the_field(self):
        want = plain("greedy")
        half = len(want) // 2
        parts = [{"type": "text", "text": want[:half]}, {"type": "text", "text": want[half:]}]
        got = complete(worlds["alone"], {"type": "content", "content": parts}, temperature=0)
        self.assertGreater(counts(got)[0], N_TOKENS / 2)
        for none in None, {"type": "content", "content": ""}, {"type": "content", "content": []}:
            body = {"prompt": PROMPT, "max_tokens": 5, "prediction": none}
            self.assertEqual(counts(post(worlds["alone"], body)), (0, 0))
        for wrong, param in (("x", "prediction"), ({"content": "x"}, "prediction.type"),
                             ({"type": "text", "content": "x"}, "prediction.type"),
                             ({"type": "content"}, "prediction.content"),
                             ({"type": "content", "content": 3}, "prediction.content"),
                             ({"type": "content", "content": [{"type": "image"}]},
                              "prediction.content[0]"),
                             ({"type": "content", "content": "x " * 2200000}, "prediction")):
            body = {"prompt": PROMPT, "max_tokens": 5, "prediction": wrong}
            self.assertEqual(post(worlds["alone"], body)["error"]["param"], param)

    def test_conversations(self):
        body = {"messages": [{"role": "user", "content": "Of a fox."}], "max_tokens": 60,
                "temperature": 0}
        first = post(worlds["alone"], body, "/v1/chat/completions")
        text = first["choices"][0]["message"]["content"]
        self.assertEqual(counts(first), (0, 0))
        got = post(worlds["alone"], {**body, "prediction": {"type": "content", "content": text}},
                   "/v1/chat/completions")
        self.assertEqual(got["choices"][0]["message"]["content"], text)
        self.assertGreater(counts(got)[0], 30)

    def test_jobs_over_http(self):
        want = plain("greedy")
        world = worlds["alone"]
        body = {"prompt": PROMPT, "max_tokens": N_TOKENS, "temperature": 0}
        job = post(world, {**body, "prediction": {"type": "content", "content": want}}, "/v1/jobs")
        for _ in range(600):
            with urllib.request.urlopen(f"{world.url}/v1/jobs/{job['id']}", timeout=60) as answer:
                done = json.load(answer)
            if done["state"] == "ended":
                break
            time.sleep(0.1)
        self.assertEqual(done["choices"][0]["text"], want)
        with urllib.request.urlopen(world.url + "/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        made = [line for line in lines if 'drafter="prediction"' in line and "accepted" in line]
        self.assertGreater(float(made[0].split()[-1]), 0, made)

    def test_the_client(self):
        want = plain("greedy")
        world = worlds["draft"]
        path = os.path.join(world.folder, "prediction")
        with open(path, "w", encoding="utf-8") as file:
            file.write(want)
        call = ["generate", PROMPT, "-n", str(N_TOKENS), "--temperature", "0", "--json"]
        for flags in ["--prediction", want], ["--prediction-file", path]:
            got = json.loads(world.outrider(*call, *flags).stdout)
            self.assertEqual(got["text"], want)
            self.assertGreater(got["counters"]["predicted_accepted"], N_TOKENS / 2)
            self.assertLess(got["counters"]["rounds"], N_TOKENS / 5)
        lines = os.path.join(world.folder, "lines")
        with open(lines, "w", encoding="utf-8") as file:
            for prediction in want, 5:
                file.write(json.dumps({"prompt": PROMPT, "max_tokens": N_TOKENS, "temperature": 0,
                                       "prediction": prediction}) + "\n")
        done = world.outrider("jobs", "submit", lines, "--quiet")
        self.assertIn(json.dumps(want)[1:20], done.stdout)
        self.assertRegex(done.stdout + done.stderr, "prediction.*a string")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
