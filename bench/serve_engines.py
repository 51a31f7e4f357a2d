#!/usr/bin/env python3
r"""Our server and another one under the same load, in turn, on the same weights.

    bench/serve_engines.py BUILD --target FOLDER [--draft FOLDER] [-K N] [--threads 2] ...
                           --other 'NAME::COMMAND' [--clients 1,8,32] [--requests 2]
                           [--prompt-tokens 64] [--tokens 64] [--pairs 5] [--csv FILE]

COMMAND starts a server with OpenAI's /v1/completions that listens at 127.0.0.1:{port}; {port},
{clients}, {context} (tokens of a request) and {context_all} (of all clients together) are filled
in. llama.cpp's server, plain and with its own draft:

    --other 'llama::llama-server -m T.gguf -t 2 --host 127.0.0.1 --port {port} -np {clients}
             -c {context_all} -fa on --no-webui'
    --other 'llama-spec::llama-server -m T.gguf -md D.gguf --spec-type draft-simple
             --spec-draft-n-max 4 -t 2 --host 127.0.0.1 --port {port} -np {clients}
             -c {context_all} -fa on'

For each number of clients all servers are started, then the arms take turns: a slice is --requests
requests for each client in a closed loop, and both sides get the same prompts of random token ids,
greedy, without an end of sequence. No prompt is sent twice to a server, so no cache of prefixes
helps. The first pair warms up and is dropped. While one server is measured the others wait.

Printed for each number of clients: tokens per second, time to the first token, time of a further
token, and our rate over theirs, as medians with quartiles of the pairs; and how much of a core the
load generator took: it shares the machine with the server, so it must stay small. --csv has every
slice. Needs grpcio (Debian: python3-grpcio).
"""
import contextlib
import csv
import random
import shlex
import sys
import urllib.error
import urllib.request

# First, because it starts the script anew with the Python that has grpcio.
from bench_util import build_parser, numbers, quartiles_text
from load_generator import Coordinator, HttpServer, LoadError, Request, run_slice

import engines
from cluster import ClusterError, Program, free_ports, wait_until

FIRST_ID = 300  # ids below it are often bytes and special tokens
START_S = 300
GENERATOR_MOST = 0.25  # of a core
COLUMNS = ["clients", "pair", "place", "engine", "requests", "tokens", "duration_seconds",
           "tokens_per_second", "time_to_first_token_seconds_p50",
           "time_to_first_token_seconds_p90", "time_per_output_token_seconds_p50",
           "time_per_output_token_seconds_p99", "generator_ratio"]


def parse():
    parser = build_parser(__doc__)
    engines.add_options(parser)
    parser.add_argument("--other", action="append", required=True, metavar="NAME::COMMAND")
    parser.add_argument("--other-model", default="", help="the name of its model in requests")
    parser.add_argument("--clients", type=lambda text: numbers(text, int), default=[1, 8])
    parser.add_argument("--requests", type=int, default=2, help="of each client in a slice")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--csv")
    return parser.parse_args()


# ---- the other server ----

class Other:
    """A server of somebody else; a context manager."""

    def __init__(self, name, command, n_clients, args, folder):
        context = args.prompt_tokens + args.tokens + 8
        self.name, self.port = name, free_ports(1)
        filled = command.format(port=self.port, clients=n_clients, context=context,
                                context_all=context * n_clients)
        self.program = Program(name, shlex.split(filled), f"{folder}/{name}.log", {})

    def __enter__(self):
        try:
            wait_until(self.is_ready, START_S, f"{self.name} serves")
        except BaseException:
            self.program.stop()
            raise
        return self

    def __exit__(self, *_):
        self.program.stop()

    def is_ready(self):
        if not self.program.is_alive():
            raise ClusterError(f"{self.name} ended with status {self.program.wait(1)}: "
                               f"{self.program.log()[-500:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as reply:
                return reply.status == 200
        except (urllib.error.URLError, OSError):
            return False


# ---- slices ----

def requests_of(args, rng, n_clients, vocabulary):
    """New random prompts, which all arms of a pair get."""
    ids = range(min(FIRST_ID, vocabulary // 2), vocabulary)
    return [Request(rng.choices(ids, k=args.prompt_tokens), args.tokens)
            for _ in range(n_clients * args.requests)]


def quantile(values, at):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(at * len(ordered)))]


def row_of(done, name, n_clients, pair, place):
    firsts = [answer.first_token_s() for answer in done.answers]
    each = [answer.token_s() for answer in done.answers]
    tokens = sum(answer.n_tokens for answer in done.answers)
    values = [n_clients, pair, place, name, len(done.answers), tokens, done.duration_s,
              done.tokens_per_second(), quantile(firsts, 0.5), quantile(firsts, 0.9),
              quantile(each, 0.5), quantile(each, 0.99), done.generator_ratio]
    return dict(zip(COLUMNS, values, strict=True))


def measure(args, arms, n_clients, vocabulary, rng, on_row):
    """The rows of all pairs but the first; arms are (name, server)."""
    rows = []
    for pair in range(args.pairs + 1):
        requests = requests_of(args, rng, n_clients, vocabulary)
        for place, (name, server) in enumerate(engines.in_turn(arms, pair)):
            try:
                done = run_slice(server, requests, n_clients)
            except LoadError as failure:
                raise LoadError(f"{name}: {failure}") from None
            if pair:
                rows.append(row_of(done, name, n_clients, pair - 1, place))
                on_row(rows[-1])
    return rows


# ---- the table ----

def column(rows, name, what):
    return [row[what] for row in rows if row["engine"] == name]


def milliseconds(values):
    return quartiles_text([1e3 * value for value in values], 1)


def print_table(rows, names, n_clients, n_pairs):
    print(f"{n_clients} clients, {n_pairs} pairs")
    ours = column(rows, names[0], "tokens_per_second")
    for name in names:
        rates = column(rows, name, "tokens_per_second")
        first = milliseconds(column(rows, name, "time_to_first_token_seconds_p50"))
        each = milliseconds(column(rows, name, "time_per_output_token_seconds_p50"))
        line = (f"  {name:12} tokens/s {quartiles_text(rates)}, first token ms {first}, "
                f"a token ms {each}")
        if name != names[0]:
            line += f", ours over it {engines.ratios_text(ours, rates)}"
        print(line)
    share = max(row["generator_ratio"] for row in rows)
    print(f"  generator    at most {share:.3f} of a core", flush=True)
    if share > GENERATOR_MOST:
        print(f"  The load generator took more than {GENERATOR_MOST} of a core in a slice: rates "
              "of this size say more about it than about the servers.", file=sys.stderr)


def run(args, others, on_row):
    rng = random.Random(args.seed)
    names = ["ours", *(name for name, _ in others)]
    for n_clients in args.clients:
        with contextlib.ExitStack() as stack:
            cluster = stack.enter_context(engines.cluster_of(args, transport="tcp"))
            ours = Coordinator(cluster.address, args.k)
            arms = [("ours", ours)]
            for name, command in others:
                other = stack.enter_context(Other(name, command, n_clients, args, cluster.folder))
                arms.append((name, HttpServer("127.0.0.1", other.port, args.other_model)))
            rows = measure(args, arms, n_clients, ours.vocabulary(), rng, on_row)
        print_table(rows, names, n_clients, args.pairs)


def main():
    args = parse()
    others = [tuple(other.split("::", 1)) for other in args.other]
    if any(len(other) != 2 for other in others):
        raise SystemExit("--other: expected NAME::COMMAND")
    file = open(args.csv, "w", encoding="utf-8", newline="") if args.csv else None
    writer = csv.DictWriter(file, COLUMNS) if file else None
    if writer:
        writer.writeheader()

    def on_row(row):
        if writer:
            writer.writerow(row)
            file.flush()

    try:
        run(args, others, on_row)
    except (LoadError, ClusterError) as failure:
        raise SystemExit(f"bench/serve_engines.py: {failure}") from None
    finally:
        if file:
            file.close()


if __name__ == "__main__":
    main()
