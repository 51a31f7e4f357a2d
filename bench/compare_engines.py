#!/usr/bin/env python3
r"""Decoding, reading a prompt, or perplexity, beside another engine on the same weights, in turn.

    bench/compare_engines.py BUILD --target FOLDER [--draft FOLDER] [-K N] [--ranks 1]
                             [--threads 2] [--draft-threads 1]
                             [--weights bf16] [--kernels auto] [--tokens 64 | --prompt-tokens N]
                             [--pairs 20] --other NAME::PATTERN::COMMAND [--other ...]
    bench/compare_engines.py BUILD --target FILE.gguf --llama DIR [--text FILE] [--threads 2]
                             [--tokens 64] [--prompt-tokens 256] [--pairs 20]

The other engine is a command that decodes about as many tokens with as many threads and prints its
tokens per second, which the first group of PATTERN (a regular expression) must match. It is started
anew for every pair, while our cluster (workers, coordinator, client of BUILD; greedy, end of
sequence ignored) is idle. The time that it needs to load is not counted, and neither is our
prompt's. The first run of each warms up and is dropped. Printed: both rates and our rate over
theirs, as medians with quartiles of the pairs.

With --prompt-tokens our rate is N over the time from the admission of a request with a new prompt
of N random ids to its first token, and the other engine must print the rate of such a prompt:

    --prompt-tokens 256 --other 'llama.cpp::pp256 \|\s*([0-9.]+)::llama-bench -m M -p 256 -n 0 -t 2'

--llama names the folder of a built llama.cpp (benchmarks.md says how it is built), and FILE.gguf
goes to both sides as it is. Decoding, then prompts, and then the perplexity of a text are compared:
bin/llama-bench, bin/llama-tokenize and bin/llama-perplexity are the other side. The perplexity is
that of the second half of each whole window of 512 tokens of --text, as llama-perplexity has it;
both sides get the ids of llama-tokenize.
"""
import json
import math
import os
import random
import re
import shlex
import subprocess

import engines
from bench_util import (PROMPTS, SOURCE, build_parser, decode_rate, generate, generate_prompt,
                        quartiles_text)

IDS = 200  # a prompt's are below it, so that every vocabulary has them
WINDOW = 512


def parse():
    parser = build_parser(__doc__)
    engines.add_options(parser)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt-tokens", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--other", action="append", default=[], metavar="NAME::PATTERN::COMMAND")
    parser.add_argument("--llama", metavar="DIR")
    parser.add_argument("--text", default=os.path.join(SOURCE, "LICENSE"), metavar="FILE")
    args = parser.parse_args()
    if not args.other and not args.llama:
        parser.error("give --other or --llama")
    return args


# ---- the other engine ----

def output_of(command):
    """What a command prints; standard error comes first where the order is not known."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=1200, check=False)
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)}: status {done.returncode}\n{text[-2000:]}")
    return text


def number_of(pattern, command):
    text = output_of(command)
    found = re.search(pattern, text)
    if not found:
        raise SystemExit(f"{shlex.join(command)}: no {pattern} in\n{text[-2000:]}")
    return float(found.group(1))


def llama(args, program, *words):
    return [os.path.join(args.llama, "bin", f"llama-{program}"), "-m", args.target, *words]


# ---- our side ----

def answer_of(cluster, pair, args, n_prompt):
    if not n_prompt:
        return generate_prompt(cluster, PROMPTS[pair % len(PROMPTS)], args.k, 0, args.tokens, 1)
    ids = random.Random(pair).choices(range(1, IDS), k=n_prompt)
    return generate(cluster, "--prompt-ids", ",".join(map(str, ids)), "-n", "1", "-K", "0",
                    "--temperature", "0", "--rule", "greedy", "--ignore-eos")


def our_rate(answer, n_prompt):
    if not n_prompt:
        return decode_rate(answer)
    return n_prompt * 1e6 / answer["counters"]["prompt_us"]


# ---- speed ----

def compare_rates(cluster, args, n_prompt, others):
    """Prints both rates of decoding, or of reading prompts; others: (name, pattern, command)."""
    ours, theirs = [], {name: [] for name, _, _ in others}
    answer = None
    for pair in range(args.pairs + 1):
        for name, pattern, command in engines.in_turn([(None, None, None), *others], pair):
            if name:
                theirs[name].append(number_of(pattern, command))
            else:
                answer = answer_of(cluster, pair, args, n_prompt)
                ours.append(our_rate(answer, n_prompt))
    c = answer["counters"]
    what = f"prompts of {n_prompt}" if n_prompt else f"K {args.k}"
    print(f"{args.target}, {what}, {args.ranks} ranks x {args.threads} threads, "
          f"{answer['arithmetic']}, kernels {args.kernels}; last request: alpha "
          f"{answer['alpha'] or 0:.2f}, {c['drafted']} drafted, {c['accepted']} accepted")
    print(f"ours  tokens/s {quartiles_text(ours[1:])}")
    for name, rates in theirs.items():
        print(f"{name}  tokens/s {quartiles_text(rates[1:])}, ours over it "
              f"{engines.ratios_text(ours[1:], rates[1:])}", flush=True)


def compare_llama_rates(cluster, args, n_prompt):
    n_tokens = 0 if n_prompt else args.tokens
    test = f"pp{n_prompt}" if n_prompt else f"tg{n_tokens}"
    command = llama(args, "bench", "-p", str(n_prompt), "-n", str(n_tokens), "-t",
                    str(args.threads), "-r", "1")
    compare_rates(cluster, args, n_prompt,
                  [("llama.cpp", test + r" \|\s*([0-9.]+)", command)])


# ---- perplexity ----

def ids_of(args):
    text = output_of(llama(args, "tokenize", "-f", args.text, "--ids", "--log-disable"))
    return json.loads(text[text.rindex("["):])


def windows(ids, bos):
    """Whole windows as llama-perplexity has them: a BOS takes the place of each first token."""
    for at in range(0, len(ids) - WINDOW + 1, WINDOW):
        window = ids[at:at + WINDOW]
        yield [bos, *window[1:]] if bos is not None else window


def our_perplexity(cluster, ids, bos):
    logprobs = []
    for window in windows(ids, bos):
        done = cluster.outrider("score", "--ids", ",".join(map(str, window)), "--json",
                                timeout=1200)
        if done.returncode:
            raise SystemExit(f"score failed: {done.stderr}")
        tokens = json.loads(done.stdout)["tokens"][WINDOW // 2 + 1:]
        logprobs += [token["logprob"] for token in tokens]
    return math.exp(-sum(logprobs) / len(logprobs)), len(logprobs)


def compare_perplexity(cluster, args):
    ids = ids_of(args)
    without = output_of(llama(args, "tokenize", "-f", args.text, "--ids", "--no-bos",
                              "--log-disable"))
    bos = ids[0] if len(ids) > len(json.loads(without[without.rindex("["):])) else None
    if len(ids) < 2 * WINDOW:
        raise SystemExit(f"{args.text}: {len(ids)} tokens; llama-perplexity needs {2 * WINDOW}")
    ours, n = our_perplexity(cluster, ids, bos)
    theirs = number_of(r"Final estimate: PPL = ([0-9.]+)",
                       llama(args, "perplexity", "-f", args.text, "-c", str(WINDOW), "-b",
                             str(WINDOW), "-t", str(args.threads)))
    print(f"{args.text}: perplexity of {n} tokens: ours {ours:.4f}, llama.cpp {theirs:.4f}, "
          f"ours over it {ours / theirs:.4f}", flush=True)


def main():
    args = parse()
    others = []
    for other in args.other:
        name, pattern, command = other.split("::", 2)
        others.append((name, pattern, shlex.split(command)))
    with engines.cluster_of(args) as cluster:
        if others:
            compare_rates(cluster, args, args.prompt_tokens, others)
        if args.llama:
            compare_llama_rates(cluster, args, 0)
            compare_llama_rates(cluster, args, args.prompt_tokens or 256)
            compare_perplexity(cluster, args)


if __name__ == "__main__":
    main()
