"""Helpers that tests of the HTTP door share: plain requests, and the texts that gRPC gives."""
import json

import httpx


def grpc_text(world, prompt, n_tokens, *more):
    """The text that the gRPC door gives."""
    done = world.outrider("generate", prompt, "-n", str(n_tokens), "--json", *more)
    return json.loads(done.stdout)["text"]


def post(world, path, body, headers={}):
    """Status, headers and parsed body of a plain request."""
    answer = httpx.post(world.url + path, json=body, headers=headers, timeout=60)
    return answer.status_code, answer.headers, answer.json()
