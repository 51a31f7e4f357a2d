#!/usr/bin/env python3
# ctest: labels=full libs=client timeout=180
"""bench/serve_engines.py: a cluster of ours and a small HTTP server that streams tokens as OpenAI's
completions do, at a known pace, under the same load. bench/compare_engines.py: programs that print
what llama.cpp's do. Skipped (77) where grpcio is not installed.
Usage: test_bench_serve.py BUILD_FOLDER [PART_OF_A_NAME]"""
import csv
import http.server
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
sys.path[:0] = [os.path.join(SOURCE, "tests/support"), os.path.join(SOURCE, "bench")]
from cluster import TALES, run_all
from load_generator import HttpServer, LoadError, Request, run_slice

SCRIPT = os.path.join(SOURCE, "bench", "serve_engines.py")
COMPARE = os.path.join(SOURCE, "bench", "compare_engines.py")
TARGET = os.path.join(TALES, "target")
PROMPT_TOKENS, TOKENS = 24, 12


class Handler(http.server.BaseHTTPRequestHandler):
    """Streams `n` tokens in pieces whose ends are not those of events, with a pause before each."""
    protocol_version = "HTTP/1.1"
    pause_s = 0.01
    is_short = lacks_usage = is_refused = False
    piece = 7  # bytes of a chunk
    seen = []

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def send_event(self, data):
        text = f"data: {data}\n\n".encode()
        for at in range(0, len(text), self.piece):
            part = text[at:at + self.piece]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append(body)
        if self.is_refused:
            self.send_error(503, "busy")
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        n = body["max_tokens"] - (1 if self.is_short else 0)
        for i in range(n):
            time.sleep(self.pause_s)
            self.send_event(json.dumps({"choices": [{"text": f"t{i}"}]}))
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": n}
        if not self.lacks_usage:
            self.send_event(json.dumps({"choices": [], "usage": usage}))
        self.send_event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """A client that has had enough closes the connection."""


class Serving:
    """The server in this process, for the load generator alone."""

    def __init__(self, **how):
        self.handler = type("H", (Handler,), {**how, "seen": []})
        self.server = Server(("127.0.0.1", 0), self.handler)
        self.thread = threading.Thread(target=self.server.serve_forever)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def run(self, n_requests, n_clients):
        requests = [Request([300 + i, 301, 302], 5) for i in range(n_requests)]
        return run_slice(HttpServer("127.0.0.1", self.server.server_address[1]), requests,
                         n_clients)


def test_generator_counts_tokens_and_times(_cluster):
    for piece in (1, 7, 10000):
        with Serving(piece=piece, pause_s=0.02) as serving:
            done = serving.run(6, 3)
            prompts = [body["prompt"] for body in serving.handler.seen]
        assert sorted(prompts) == [[300 + i, 301, 302] for i in range(6)]
        assert all(body["ignore_eos"] and body["temperature"] == 0 for body in serving.handler.seen)
        assert [(a.n_prompt, a.n_tokens) for a in done.answers] == [(3, 5)] * 6
        for answer in done.answers:
            # The server waits before each of the 5; the generator may have been late for the first.
            assert answer.first_token_s() >= 0.02 and answer.last - answer.begin >= 0.1, answer
            assert answer.token_s() == (answer.last - answer.first) / 4, answer
        # Two requests of each client, one after the other, 5 pauses each.
        assert done.duration_s >= 2 * 5 * 0.02
        assert done.tokens_per_second() <= 3 / 0.02


def fails(part, **how):
    with Serving(**how) as serving:
        try:
            serving.run(2, 2)
        except LoadError as failure:
            assert part in str(failure), failure
            return
    raise AssertionError(f"a server that is {how} was taken for a good one")


def test_generator_refuses_servers_that_do_less(_cluster):
    fails("was answered as one of 3 with 4", is_short=True)
    fails("no usage", lacks_usage=True)
    fails("status 503", is_refused=True)


def serve(build, *words, other=None):
    other = other or f"slow::{sys.executable} {os.path.abspath(__file__)} --serve {{port}}"
    return subprocess.run(
        [sys.executable, SCRIPT, build, "--target", TARGET, "--other", other, "--prompt-tokens",
         str(PROMPT_TOKENS), "--tokens", str(TOKENS), "--requests", "2", *words],
        stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=150, check=False)


def test_both_sides_take_turns(cluster):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.csv")
        done = serve(cluster.build, "--clients", "1,3", "--pairs", "3", "--csv", path)
        assert done.returncode == 0, done.stderr
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    wanted = [(clients, pair, ["ours", "slow"][(pair + place) % 2])
              for clients in (1, 3) for pair in range(3) for place in (0, 1)]
    assert [(int(r["clients"]), int(r["pair"]), r["engine"]) for r in rows] == wanted, rows
    for row in rows:
        n = int(row["clients"]) * 2
        assert (int(row["requests"]), int(row["tokens"])) == (n, n * TOKENS), row
        for name in ("time_to_first_token", "time_per_output_token"):
            # Tokens of a client that had no core for a while come at once.
            assert 0 <= float(row[f"{name}_seconds_p50"]) < float(row["duration_seconds"]), row
        assert 0 < float(row["generator_ratio"]) < 1, row
    for word in ("1 clients, 3 pairs", "3 clients, 3 pairs", "ours over it", "generator"):
        assert word in done.stdout, done.stdout


def test_failures_are_one_sentence(cluster):
    done = serve(cluster.build, other="gone::false {port}")
    assert done.returncode == 1 and "gone ended with status 1" in done.stderr, done.stderr
    done = serve(cluster.build, other="no command")
    assert done.returncode == 1 and "NAME::COMMAND" in done.stderr, done.stderr


# ---- programs beside llama.cpp's ----

WINDOW, BOS = 512, 1
LLAMA = """#!/usr/bin/env python3
import os, random, sys
words = sys.argv[1:]
def after(name): return words[words.index(name) + 1]
assert os.path.exists(after("-m"))
program = os.path.basename(sys.argv[0])
if program == "llama-bench":
    test = "tg" + after("-n") if after("-p") == "0" else "pp" + after("-p")
    print("| model | test | t/s |\\n| m | " + test + " | 8.00 |")
elif program == "llama-tokenize":
    ids = random.Random(3).choices(range(10, 200), k=1100)
    print("[" + ", ".join(map(str, ids if "--no-bos" in words else [1] + ids)) + "]")
else:
    print("Final estimate: PPL = 100.0 +/- 1")
"""


def make_llama(folder):
    os.mkdir(os.path.join(folder, "bin"))
    for name in ("bench", "tokenize", "perplexity"):
        path = os.path.join(folder, "bin", f"llama-{name}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(LLAMA)
        os.chmod(path, 0o755)


def perplexity_of_windows(cluster):
    """Of the second halves of two windows that begin with BOS."""
    ids = [BOS, *random.Random(3).choices(range(10, 200), k=1100)]
    logprobs = []
    for at in (0, WINDOW):
        window = ",".join(map(str, [BOS, *ids[at + 1:at + WINDOW]]))
        done = cluster.outrider("score", "--ids", window, "--json")
        assert done.returncode == 0, done.stderr
        logprobs += [token["logprob"] for token in json.loads(done.stdout)["tokens"][257:]]
    assert len(logprobs) == 510
    return math.exp(-sum(logprobs) / len(logprobs))


def test_llama_is_compared_by_speed_and_perplexity(cluster):
    with tempfile.TemporaryDirectory() as folder:
        make_llama(folder)
        done = subprocess.run(
            [sys.executable, COMPARE, cluster.build, "--target", TARGET, "--llama", folder,
             "--text", __file__, "--tokens", "8", "--prompt-tokens", "40", "--pairs", "1"],
            stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=150,
            check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("llama.cpp  tokens/s 8.00") == 2, done.stdout
    found = re.search(r"perplexity of 510 tokens: ours ([0-9.]+), llama.cpp 100.0000, ours over it "
                      r"([0-9.]+)", done.stdout)
    assert found, done.stdout
    ours = float(found.group(1))
    assert abs(ours / perplexity_of_windows(cluster) - 1) < 1e-4, done.stdout
    assert abs(float(found.group(2)) - ours / 100) < 1e-3, done.stdout


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        Server(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
    sys.exit(run_all(os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "",
                     globals()))
