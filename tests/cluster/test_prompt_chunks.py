#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=240
"""A prompt that does not fit into one step is read in chunks, and the last chunk carries guesses:
the text is the plain one wherever the chunks end. A text is scored in chunks, too, and between
generations. Usage: test_prompt_chunks.py BUILD_FOLDER"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import Cluster

STEP_TOKENS, STEP_ROWS = 32, 17
LENGTHS = [1, 2, 15, 16, 17, 18, 19, 27, 28, 29, 30, 31, 32, 33, 34, 48, 60, 61, 63, 64, 65, 97]


def ids_of(length):
    return ",".join(str(300 + i % 50) for i in range(length))


def generate(cluster, length, n_draft):
    """Token ids and counters after a prompt of that many tokens."""
    prompt = ids_of(length)
    done = cluster.outrider("generate", "--prompt-ids", prompt, "-n", "12", "-K", str(n_draft),
                            "--temperature", "0", "--ignore-eos", "--json")
    assert done.returncode == 0, f"prompt of {length}, K = {n_draft}: {done.stderr}"
    object_ = json.loads(done.stdout)
    return object_["token_ids"], object_["counters"]


def score(cluster, length):
    """(id, log-probability) of each token of a text of that length."""
    done = cluster.outrider("score", "--ids", ids_of(length), "--json")
    assert done.returncode == 0, f"text of {length}: {done.stderr}"
    return [(token["id"], token["logprob"]) for token in json.loads(done.stdout)["tokens"]]


def main(build):
    flags = ["--max-step-tokens", str(STEP_TOKENS), "--max-step-rows", str(STEP_ROWS)]
    with Cluster(build, worker_flags=flags) as cluster:
        whole = score(cluster, LENGTHS[-1])
        assert len(whole) == LENGTHS[-1] and whole[0][1] is None, whole[:2]
        for length in LENGTHS:
            scores = score(cluster, length)
            assert scores == whole[:length], f"text of {length}: {scores}"
            plain, _ = generate(cluster, length, 0)
            assert len(plain) == 12, plain
            for n_draft in (4, 16):
                ids, counters = generate(cluster, length, n_draft)
                assert ids == plain, f"prompt of {length}, K = {n_draft}: {ids}, plainly {plain}"
                assert counters["drafted"] > 0, counters
    print(f"{len(LENGTHS)} lengths in steps of {STEP_TOKENS} tokens: the plain text, equal scores")


if __name__ == "__main__":
    main(sys.argv[1])
