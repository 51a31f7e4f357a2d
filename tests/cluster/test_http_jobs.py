#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes timeout=300
"""The HTTP door beside OpenAI's API proper: jobs that go on without their clients, what clients see
while the group is away or the queue is full, and pages of other sites."""
import json
import sys
import threading
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
import pypi

BUILD = sys.argv[1]
pypi.enter(BUILD)

import httpx
import openai

from cluster import Cluster, wait_until

PROMPT = "Once upon a time there was a king who"
CHAT = [{"role": "system", "content": "Tell a tale."}, {"role": "user", "content": "Of a fox."}]

world = None


def setUpModule():
    global world
    world = Cluster(BUILD, n_ranks=2, http=True)
    world.__enter__()


def tearDownModule():
    world.__exit__(None, None, None)


def grpc_text(prompt, n_tokens, *more):
    """The text that the gRPC door gives."""
    done = world.outrider("generate", prompt, "-n", str(n_tokens), "--json", *more)
    return json.loads(done.stdout)["text"]


def post(path, body, headers={}):
    """Status, headers and parsed body of a plain request."""
    answer = httpx.post(world.url + path, json=body, headers=headers, timeout=60)
    return answer.status_code, answer.headers, answer.json()


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
        status, _, job = post("/v1/jobs", self.BODY, {"Idempotency-Key": "life"})
        self.assertEqual((status, job["existed"]), (200, False))
        events = self.events(job["id"])
        text = "".join(data["text"] for _, kind, data in events if kind == "tokens")
        self.assertEqual(text, grpc_text(PROMPT, 60, "--temperature", "0"))
        self.assertEqual([kind for _, kind, _ in events[-2:]], ["summary", "end"])
        for at in (1, len(events) // 2, len(events) - 1):
            self.assertEqual(self.events(job["id"], events[at - 1][0]), events[at:])
        whole = httpx.get(f"{world.url}/v1/jobs/{job['id']}").json()
        self.assertEqual((whole["state"], whole["end"]), ("ended", "length"))
        self.assertEqual(whole["choices"][0]["text"], text)
        again = post("/v1/jobs", self.BODY, {"Idempotency-Key": "life"})[2]
        self.assertEqual((again["id"], again["existed"]), (job["id"], True))
        other = post("/v1/jobs", {**self.BODY, "max_tokens": 3}, {"Idempotency-Key": "life"})
        self.assertEqual(other[0], 400)
        listed = httpx.get(world.url + "/v1/jobs?limit=1000").json()["data"]
        self.assertIn(job["id"], [one["id"] for one in listed])

    def test_events_that_are_none(self):
        job = post("/v1/jobs", {**self.BODY, "max_tokens": 1})[2]["id"]
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
            status, _, answer = post("/v1/jobs", body)
            self.assertEqual((status, answer["error"]["param"]), (400, field))
            self.assertIn(field + " is not kept with jobs", answer["error"]["message"])

    def test_cancel(self):
        _, _, job = post("/v1/jobs", {"messages": CHAT, "max_tokens": 1000, "ignore_eos": True,
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
        self.assertEqual(post("/v1/jobs", {"prompt": ["a", "b"]})[0], 400)

    def test_a_page_of_jobs(self):
        ids = [post("/v1/jobs", {"prompt": "x", "max_tokens": 1})[2]["id"] for _ in range(5)]
        seen, before = [], ""
        while True:
            page = httpx.get(f"{world.url}/v1/jobs?limit=2{before}").json()
            seen += [job["id"] for job in page["data"]]
            if not page["has_more"]:
                break
            before = f"&before={page['next_before']}"
        self.assertEqual(seen[:5], ids[::-1])
        self.assertEqual(len(seen), len(set(seen)))


class Group(unittest.TestCase):
    """What clients see while the target group is away, or has more to do than it may have."""

    def test_lost_and_found(self):
        with Cluster(BUILD, http=True) as own:
            mine = openai.OpenAI(base_url=own.url + "/v1", api_key="x", max_retries=0)
            stream = mine.completions.create(model="target", prompt=PROMPT, max_tokens=900,
                                             stream=True, extra_body={"ignore_eos": True})
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
        with Cluster(BUILD, http=True, coordinator_flags=flags) as own:
            body = {"prompt": PROMPT, "max_tokens": 300, "ignore_eos": True}
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
    """What pages of other origins may do."""

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
