#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=120
"""Two ranks with --head give a caller features that the head's fc has projected, at a third of the
bytes of the features themselves; without it, or with another head, there is a sentence, and a head
that has nothing to project for a model ends a worker. Usage: test_worker_head.py BUILD_FOLDER"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import TALES, Cluster, bound, wait_until

SOURCE = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
GOLDEN = os.path.join(SOURCE, "tests", "golden")
MODEL = f"synthetic:{GOLDEN}/models/llama_untied/config.json,seed=1"
WIDTH, ROWS, BOUNDARIES = 64, 5, 3


def head(name):
    return os.path.join(GOLDEN, "heads", name)


def measure(cluster):
    """The bytes of features in a round of each arm of bench_features."""
    done = subprocess.run([os.path.join(cluster.build, "bench", "bench_features"), "--target",
                           ",".join(cluster.worker_addresses), "--turns", "1", "--rounds", "2"],
                          capture_output=True, text=True, timeout=bound(60), check=False)
    assert done.returncode == 0, done.stderr
    arms = {}
    for line in done.stdout.splitlines()[2:]:
        name, numbers = line[:20].strip(), line[20:].split()
        if numbers and numbers[0].isdigit():
            arms[name] = int(numbers[0])
    return arms, done.stdout


class Workers(Cluster):
    """Ranks that nobody but the benchmark calls."""

    def start(self, timeout=60):
        self.start_workers()
        wait_until(lambda: self.workers.log().count(" ready rank=") == self.n_ranks, timeout,
                   "all ranks serve")


def run_ranks(build, *flags):
    return Workers(build, 2, target=MODEL, draft=None, worker_flags=flags)


def check_ranks(build):
    with run_ranks(build, "--head", head("eagle3_whole")) as cluster:
        assert cluster.workers.log().count(f"head={head('eagle3_whole')}") == 2
        arms, text = measure(cluster)
        assert arms == {"no features": 0, "features": ROWS * BOUNDARIES * WIDTH * 2,
                        "projected by --head": ROWS * WIDTH * 2}, text
    with run_ranks(build) as cluster:
        arms, text = measure(cluster)
        assert "projected by --head" not in arms and len(arms) == 2, text
        assert "the workers have no head: start them with --head" in text, text


def check_refusals(build):
    for model, name, says in (
            (MODEL, "eagle1", "has no matrix that features alone go through (fc)"),
            (MODEL, "eagle3_layers", "reads features of width 96, but"),
            (os.path.join(TALES, "target"), "eagle3_flat", "it is a head of another model"),
            (MODEL, "nowhere", "there is no folder")):
        for check in (["--check"], ["--listen", "127.0.0.1:0"]):
            done = subprocess.run([os.path.join(build, "bin", "outrider-worker"), "--model", model,
                                   "--head", head(name), *check], capture_output=True, text=True,
                                  timeout=bound(60), check=False)
            assert done.returncode not in (0, None) and says in done.stderr, (name, done.stderr)


def main(build):
    check_ranks(build)
    check_refusals(build)
    print("two ranks with a head, two without, and four heads that are refused")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
