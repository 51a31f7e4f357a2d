#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=300
"""deploy/haproxy: two models that are served by two commands answer at one address, each by its
name.

Usage: test_haproxy.py BUILD_FOLDER"""
import json
import os
import shutil
import subprocess
import sys
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import skips
from cluster import SOURCE, TALES, bound, free_ports, wait_until
from served import Served

BUILD = os.path.abspath(sys.argv.pop(1))
FOLDER = os.path.join(SOURCE, "deploy", "haproxy")
PROMPT = "Once upon a time"
HAPROXY = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")


class Route(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.first = cls.enterClassContext(Served(BUILD, os.path.join(TALES, "target")))
        cls.second = cls.enterClassContext(Served(BUILD, os.path.join(TALES, "draft")))
        for served in (cls.first, cls.second):
            served.wait()
        port = free_ports(1)
        cls.url = f"http://127.0.0.1:{port}"
        cls.haproxy = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", HAPROXY, "-db", "-f",
             os.path.join(FOLDER, "haproxy.cfg")],
            cwd=FOLDER, env={**os.environ, "OUTRIDER_ROUTE": f"127.0.0.1:{port}",
                             "OUTRIDER_FIRST": f"127.0.0.1:{cls.first.port}",
                             "OUTRIDER_SECOND": f"127.0.0.1:{cls.second.port}"})
        cls.addClassCleanup(cls.end)
        wait_until(lambda: cls.ask("/ready")[0] == 200, 30, "both models are ready")

    @classmethod
    def end(cls):
        cls.haproxy.terminate()
        cls.haproxy.wait(bound(10))

    @classmethod
    def ask(cls, path, body=None):
        """Status and body of the answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(cls.url + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=bound(60)) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def text(self, **more):
        status, answer = self.ask("/v1/completions", {"prompt": PROMPT, "max_tokens": 24,
                                                      "temperature": 0, **more})
        self.assertEqual(status, 200, answer)
        answer = json.loads(answer)
        return answer["model"], answer["choices"][0]["text"]

    def test_each_model_answers_by_its_name(self):
        for _ in range(3):
            self.assertEqual(self.text(model="target"), ("target", self.first.text(PROMPT)))
            self.assertEqual(self.text(model="draft"), ("draft", self.second.text(PROMPT)))
        self.assertNotEqual(self.first.text(PROMPT), self.second.text(PROMPT))

    def test_the_name_is_found_after_a_long_prompt(self):
        long = "a fox and a wolf " * 60 + " " * 300000
        body = {"prompt": PROMPT, "note": long, "max_tokens": 4, "temperature": 0,
                "metadata": {"model": "target"}, "model": "draft"}
        status, answer = self.ask("/v1/completions", body)
        self.assertEqual(status, 200, answer)
        self.assertEqual(json.loads(answer)["model"], "draft")

    def test_a_body_that_is_longer_than_the_buffer_is_answered(self):
        rest = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0, "note": " " * 2000000}
        for body, name in (({"model": "draft", **rest}, "draft"), (rest, "target")):
            status, answer = self.ask("/v1/completions", body)
            self.assertEqual(status, 200, answer[:300])
            self.assertEqual(json.loads(answer)["model"], name)

    def test_streams_come_whole(self):
        status, stream = self.ask("/v1/completions", {
            "prompt": PROMPT, "max_tokens": 24, "temperature": 0, "model": "draft", "stream": True})
        self.assertEqual(status, 200)
        lines = [line.removeprefix("data: ") for line in stream.split("\n\n") if line]
        self.assertEqual(lines[-1], "[DONE]")
        text = "".join(choice["text"] for line in lines[:-1]
                       for choice in json.loads(line)["choices"])
        self.assertEqual(text, self.second.text(PROMPT))

    def test_no_model_is_the_first_one_and_another_one_is_refused(self):
        self.assertEqual(self.text()[0], "target")
        status, answer = self.ask("/v1/completions", {"prompt": PROMPT, "model": "third"})
        self.assertEqual(status, 404)
        self.assertIn("third", answer)

    def test_all_models_are_listed(self):
        listed = json.loads(self.ask("/v1/models")[1])
        self.assertEqual([model["id"] for model in listed["data"]], ["target", "draft"])


if __name__ == "__main__":
    if not HAPROXY:
        skips.lacks("haproxy is not there", "haproxy")
    unittest.main()
