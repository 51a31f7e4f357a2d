#!/usr/bin/env python3
# ctest: labels=full libs=client timeout=240
"""A prompt that does not fit into one step is read in chunks, and the last chunk carries guesses: the
text is the plain one wherever the chunks' edges fall. Usage: test_prompt_chunks.py BUILD_FOLDER"""
import json
import sys

from cluster import Cluster

STEP_TOKENS = 32
LENGTHS = [15, 16, 17, 27, 28, 29, 30, 31, 32, 33, 34, 48, 60, 61, 63, 64, 65, 97]


def generate(cluster, length, n_draft):
    """Token ids and counters after a prompt of that many tokens."""
    prompt = ",".join(str(300 + i % 50) for i in range(length))
    done = cluster.outrider("generate", "--prompt-ids", prompt, "-n", "12", "-K", str(n_draft),
                            "--temperature", "0", "--ignore-eos", "--json")
    assert done.returncode == 0, f"prompt of {length}, K = {n_draft}: {done.stderr}"
    object_ = json.loads(done.stdout)
    return object_["token_ids"], object_["counters"]


def main(build):
    flags = ["--max-step-tokens", str(STEP_TOKENS), "--max-step-rows", "17"]
    with Cluster(build, worker_flags=flags) as cluster:
        for length in LENGTHS:
            plain, _ = generate(cluster, length, 0)
            assert len(plain) == 12, plain
            for n_draft in (4, 16):
                ids, counters = generate(cluster, length, n_draft)
                assert ids == plain, f"prompt of {length}, K = {n_draft}: {ids}, plainly {plain}"
                assert counters["drafted"] > 0, counters
    print(f"{len(LENGTHS)} lengths of prompt in steps of {STEP_TOKENS} tokens: the plain text")


if __name__ == "__main__":
    main(sys.argv[1])
