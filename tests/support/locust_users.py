"""Users of the HTTP door for locust (tests/cluster/test_locust.py): they complete and chat, read
streams to their end, and leave in the middle of one. The name of a request says what it is."""
import json

from locust import FastHttpUser, HttpUser, constant, task

PROMPT = "Once upon a time there was a king who"
MESSAGES = [{"role": "user", "content": "Tell a tale of a fox."}]
N_TOKENS = 24
LONG = 900  # more than is made before a client has left


def check_usage(answer, usage):
    """A request that ended early, or without all of its tokens, is a failure."""
    if usage is None or usage["completion_tokens"] != N_TOKENS:
        answer.failure(f"the usage is {usage}")


class Asking(FastHttpUser):
    """Whole answers, with the client that locust has for many users."""
    wait_time = constant(0.02)

    def ask(self, name, path, body):
        more = {"max_tokens": N_TOKENS, "ignore_eos": True}
        with self.client.post(path, json={**body, **more}, name=name,
                              catch_response=True) as answer:
            if answer.status_code == 200:
                check_usage(answer, answer.json()["usage"])

    @task
    def complete(self):
        self.ask("complete", "/v1/completions", {"prompt": PROMPT})

    @task
    def chat(self):
        self.ask("chat", "/v1/chat/completions", {"messages": MESSAGES})


class Streaming(HttpUser):
    """Server-sent events, with the client of requests."""
    wait_time = constant(0.02)

    def open(self, name, n_tokens):
        return self.client.post("/v1/chat/completions", name=name, stream=True,
                                catch_response=True, json={
                                    "messages": MESSAGES, "stream": True, "max_tokens": n_tokens,
                                    "stream_options": {"include_usage": True}, "ignore_eos": True})

    @task(3)
    def stream(self):
        with self.open("stream", N_TOKENS) as answer:
            if answer.status_code != 200:
                return
            lines = [line for line in answer.iter_lines() if line]
            if lines[-1] != b"data: [DONE]":
                answer.failure(f"the stream ends with {lines[-1]}")
                return
            chunks = [json.loads(line.removeprefix(b"data: ")) for line in lines[:-1]]
            check_usage(answer, chunks[-1]["usage"])
            reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
            if reasons[-1] != "length" or any(reasons[:-1]):
                answer.failure(f"the reasons are {reasons}")

    @task(1)
    def vanish(self):
        with self.open("vanish", LONG) as answer:
            if answer.status_code == 200:
                next(answer.iter_lines())
                answer.close()
