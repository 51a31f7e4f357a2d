#!/usr/bin/env python3
# ctest: labels=full libs=worker beside=yes timeout=900
"""Models with sliding windows: their texts, far longer than the window, are those of one rank that
decodes plainly, with guesses in chains and trees, in company, with beginnings shared and places
lost. Where all layers have a window a text holds only the blocks that it still sees. So are the
texts of models with factors and without rotation in some layers.

Usage: test_windows.py BUILD_FOLDER
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from generations import DRAFT, TARGET, GenerationCluster, Report, golden_prompts, order
from family_models import write_mixed, write_scaled, write_unrotated, write_windowed

N_TOKENS = 200
IN_COMPANY = 10
TREES = ["--trees", "3,2,1", "--calibrate", "0"]
LOOKED_UP = ["--draft-staged", "on", "--trees", "dynamic:3,2", "--lookup",
             "session,store,recycled,lookahead", "--lookup-append", "on"]


def prompts():
    """Five that are shorter than all windows but the narrowest, and five that are longer."""
    golden = golden_prompts()
    return ([one["ids"] for one in golden] +
            [one["ids"] + one["greedy_ids"][:96] for one in golden])


def orders(k, strategy="fixed"):
    ways = [{"temperature": 0}, {"temperature": 1, "rule": "coupled", "seed": 5}]
    return [order(ids, n_draft=k, strategy=strategy, max_tokens=N_TOKENS, ignore_eos=1, **way)
            for way in ways for ids in prompts()]


class World:
    """A pair of models and its plain texts."""

    def __init__(self, build, report, name, target, draft):
        self.build, self.report, self.name = build, report, name
        self.target, self.draft = target, draft
        with GenerationCluster(build, target=target, draft=None) as cluster:
            self.plain = [one["ids"] for one in cluster.generate(orders(0), in_flight=2)]
        report.check(all(len(ids) == N_TOKENS for ids in self.plain),
                     f"{name}: {len(self.plain)} plain texts go on behind the window")

    def cluster(self, kv_tokens, n_ranks=1, flags=()):
        kv = str(kv_tokens)
        return GenerationCluster(self.build, target=self.target, draft=self.draft, n_ranks=n_ranks,
                                 worker_flags=["--kv-tokens", kv],
                                 coordinator_flags=["--draft-kv-tokens", kv, *flags])

    def compare(self, cluster, what, k, strategy="fixed", in_company=IN_COMPANY):
        """Returns how often a text lost its place. Texts find the KV of those that began alike
        before them in the cluster. Some are enough where each is alone."""
        some = slice(None, None, 1 if in_company > 1 else 5)
        done = cluster.generate(orders(k, strategy)[some], in_flight=in_company)
        n_other = sum(one["ids"] != ids for one, ids in zip(done, self.plain[some]))
        accepted = sum(one["accepted"] for one in done)
        preemptions = sum(one["preemptions"] for one in done)
        self.report.check(n_other == 0 and accepted > 0,
                          f"{self.name}, {what}, T = {cluster.n_ranks}, K = {k}, {strategy}: "
                          f"{accepted} guesses stay, {preemptions} preemptions" +
                          (f"; {n_other} texts differ" if n_other else ""))
        return preemptions


def all_layers(build, report, folder):
    """A draft with windows too; theirs are of other lengths."""
    world = World(build, report, "all layers",
                  write_windowed(os.path.join(folder, "t40"), TARGET, 40),
                  write_windowed(os.path.join(folder, "d24"), DRAFT, 24))
    # Ten whole texts of up to 308 tokens have 200 blocks. Through the window a text sees 3 or 4.
    with world.cluster(1024, n_ranks=2) as cluster:
        lost = world.compare(cluster, "64 blocks", 3)
        report.check(lost == 0, "no text loses its place, because blocks are given back")
    with world.cluster(1024, flags=TREES) as cluster:
        for k, strategy in ((4, "fixed"), (16, "fixed"), (8, "planned")):
            world.compare(cluster, "64 blocks, trees", k, strategy)
    with world.cluster(1024, n_ranks=2, flags=LOOKED_UP) as cluster:
        world.compare(cluster, "staged and looked up", 5)
        world.compare(cluster, "staged and looked up", 12, "planned")
        world.compare(cluster, "one text at a time", 4, in_company=1)
    with world.cluster(320, flags=TREES) as cluster:
        lost = world.compare(cluster, "20 blocks, trees", 4)
        lost += world.compare(cluster, "20 blocks, trees", 16)
        report.check(lost > 0, f"{lost} times a text lost its place and was read again")


def narrow(build, report, folder):
    """Rounds of more guesses than the window has positions."""
    world = World(build, report, "a window of 8",
                  write_windowed(os.path.join(folder, "t8"), TARGET, 8),
                  write_windowed(os.path.join(folder, "d8"), DRAFT, 8))
    with world.cluster(640, flags=TREES) as cluster:
        world.compare(cluster, "40 blocks, trees", 16)
        world.compare(cluster, "40 blocks, trees", 3)


def mixed(build, report, folder):
    """Some layers see everything, so blocks stay."""
    world = World(build, report, "every other layer",
                  write_mixed(os.path.join(folder, "mixed"), TARGET, 24),
                  write_windowed(os.path.join(folder, "d40"), DRAFT, 40))
    with world.cluster(4096, n_ranks=2, flags=TREES) as cluster:
        world.compare(cluster, "trees", 5)
    with world.cluster(640) as cluster:
        lost = world.compare(cluster, "40 blocks", 3)
        report.check(lost > 0, f"{lost} times a text lost its place and was read again")


def families(build, report, folder):
    """Factors of a Granite, with a draft of another family."""
    world = World(build, report, "factors", write_scaled(os.path.join(folder, "scaled"), TARGET),
                  write_unrotated(os.path.join(folder, "unrotated"), DRAFT))
    with world.cluster(4096, n_ranks=2, flags=TREES) as cluster:
        world.compare(cluster, "trees", 5)


def main():
    report = Report()
    with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
        for part in (all_layers, narrow, mixed, families):
            part(sys.argv[1], report, folder)
    return report.status()


if __name__ == "__main__":
    sys.exit(main())
