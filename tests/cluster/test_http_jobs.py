#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes timeout=300
"""Jobs of the HTTP door, which go on without their clients."""
import json
import sys
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
import pypi

BUILD = sys.argv[1]
pypi.enter(BUILD)

import httpx

from cluster import Cluster
from http_door import grpc_text, post

PROMPT = "Once upon a time there was a king who"
CHAT = [{"role": "system", "content": "Tell a tale."}, {"role": "user", "content": "Of a fox."}]

world = None


def setUpModule():
    global world
    world = Cluster(BUILD, n_ranks=2, http=True)
    world.__enter__()


def tearDownModule():
    world.__exit__(None, None, None)


class Jobs(unittest.TestCase):
    BODY = {"prompt": PROMPT, "max_tokens": 60, "temperature": 0}

    def events(self, job, after=None):
        headers = {"Last-Event-ID": str(after)} if after is not None else {}
        with httpx.stream("GET", f"{world.url}/v1/jobs/{job}/events", headers=headers,
                          timeout=60) as answer:
            text = "".join(answer.iter_text())
        events = []
        for block in text.split("\n\n")[:-1]:
            fields = dict(line.split(": ", 1) for line in block.splitlines())
            events.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
        return events

    def test_whole_life(self):
        status, _, job = post(world, "/v1/jobs", self.BODY, {"Idempotency-Key": "life"})
        self.assertEqual((status, job["existed"]), (200, False))
        events = self.events(job["id"])
        text = "".join(data["text"] for _, kind, data in events if kind == "tokens")
        self.assertEqual(text, grpc_text(world, PROMPT, 60, "--temperature", "0"))
        self.assertEqual([kind for _, kind, _ in events[-2:]], ["summary", "end"])
        for at in (1, len(events) // 2, len(events) - 1):
            self.assertEqual(self.events(job["id"], events[at - 1][0]), events[at:])
        whole = httpx.get(f"{world.url}/v1/jobs/{job['id']}").json()
        self.assertEqual((whole["state"], whole["end"]), ("ended", "length"))
        self.assertEqual(whole["choices"][0]["text"], text)
        again = post(world, "/v1/jobs", self.BODY, {"Idempotency-Key": "life"})[2]
        self.assertEqual((again["id"], again["existed"]), (job["id"], True))
        other = post(world, "/v1/jobs", {**self.BODY, "max_tokens": 3}, {"Idempotency-Key": "life"})
        self.assertEqual(other[0], 400)
        listed = httpx.get(world.url + "/v1/jobs?limit=1000").json()["data"]
        self.assertIn(job["id"], [one["id"] for one in listed])

    def test_events_that_are_none(self):
        job = post(world, "/v1/jobs", {**self.BODY, "max_tokens": 1})[2]["id"]
        for text in ("-1", "1x", "18446744073709551615", "9" * 30):
            for headers, query in (({"Last-Event-ID": text}, ""), ({}, "?after=" + text)):
                answer = httpx.get(f"{world.url}/v1/jobs/{job}/events{query}", headers=headers)
                self.assertEqual(answer.status_code, 400, text)
                self.assertIn("no id of an event", answer.json()["error"]["message"])
        answer = httpx.get(f"{world.url}/v1/jobs/nobody/events")
        self.assertEqual((answer.status_code, answer.headers["content-type"]),
                         (404, "application/json"))

    def test_fields_that_jobs_have_not(self):
        for body, field in (({**self.BODY, "logprobs": 2}, "logprobs"),
                            ({**self.BODY, "echo": True}, "echo"),
                            ({"messages": CHAT, "logprobs": True}, "logprobs")):
            status, _, answer = post(world, "/v1/jobs", body)
            self.assertEqual((status, answer["error"]["param"]), (400, field))
            self.assertIn(field + " is not kept with jobs", answer["error"]["message"])

    def test_cancel(self):
        _, _, job = post(world, "/v1/jobs", {"messages": CHAT, "max_tokens": 1000,
                                             "ignore_eos": True,
                                             "outrider": {"n_draft": 0}})
        httpx.request("DELETE", f"{world.url}/v1/jobs/{job['id']}")
        events = self.events(job["id"])
        self.assertEqual(events[-1][1], "error")
        whole = httpx.get(f"{world.url}/v1/jobs/{job['id']}").json()
        self.assertEqual(whole["end"], "cancelled")

    def test_wrong(self):
        self.assertEqual(httpx.get(world.url + "/v1/jobs/nope").status_code, 404)
        self.assertEqual(httpx.get(world.url + "/v1/jobs/nope/events").status_code, 404)
        self.assertEqual(httpx.get(world.url + "/v1/jobs?state=idle").status_code, 400)
        self.assertEqual(post(world, "/v1/jobs", {"prompt": ["a", "b"]})[0], 400)

    def test_a_page_of_jobs(self):
        ids = [post(world, "/v1/jobs", {"prompt": "x", "max_tokens": 1})[2]["id"] for _ in range(5)]
        seen, before = [], ""
        while True:
            page = httpx.get(f"{world.url}/v1/jobs?limit=2{before}").json()
            seen += [job["id"] for job in page["data"]]
            if not page["has_more"]:
                break
            before = f"&before={page['next_before']}"
        self.assertEqual(seen[:5], ids[::-1])
        self.assertEqual(len(seen), len(set(seen)))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
