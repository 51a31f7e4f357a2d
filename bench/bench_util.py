"""Functions that the benchmarks in Python share: where the sources are, command lines, requests,
quartiles.

Importing it puts tests/support on the path, so that `from cluster import Cluster` works afterwards.
"""
import argparse
import json
import os
import statistics
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(SOURCE, "tests/support"))

PROMPTS = [
    "Once upon a time there was a king who had three daughters,",
    "The old woman looked at the boy and said:",
    "In the middle of the forest stood a little house",
    "There was once a poor miller who",
    "'Where are you going?' asked the wolf.",
]


# ---- command lines ----

def parser(doc):
    """A parser whose --help is the docstring of the script."""
    return argparse.ArgumentParser(description=doc,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)


def build_parser(doc):
    """Returns the parser of parser(), with the build folder as the first argument."""
    made = parser(doc)
    made.add_argument("build")
    return made


def default_build():
    return os.environ.get("OUTRIDER_BUILD") or os.path.join(SOURCE, "build", "release")


def numbers(text, kind):
    """The numbers of a list such as 1,2,4."""
    return [kind(word) for word in text.split(",")]


# ---- requests ----

def generate(cluster, *words, timeout=300):
    """The answer of `outrider generate WORDS --json`."""
    done = cluster.outrider("generate", *words, "--json", timeout=timeout)
    if done.returncode:
        raise SystemExit(f"generate failed: {done.stderr}")
    return json.loads(done.stdout)


def generate_prompt(cluster, prompt, k, temperature, tokens, seed):
    """An answer of `tokens` tokens; k = -1 leaves the number of guesses to the coordinator."""
    return generate(cluster, prompt, "-n", str(tokens), *(("-K", str(k)) if k >= 0 else ()),
                    "--temperature", str(temperature),
                    "--rule", "rejection" if temperature else "greedy", "--seed", str(seed),
                    "--ignore-eos")


def decode_rate(answer):
    """Tokens per second of the rounds after the first, so without the prompt; the server's time."""
    c = answer["counters"]
    return (len(answer["token_ids"]) - c["first_round_tokens"]) * 1e6 / c["rounds_us"]


# ---- quartiles ----

def quartiles(values):
    """(low, median, high), linearly interpolated as in client/bench/report.c."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, median, high


def quartiles_text(values, decimals=2):
    low, median, high = quartiles(values)
    return f"{median:.{decimals}f} ({low:.{decimals}f} to {high:.{decimals}f})"
