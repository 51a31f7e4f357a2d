"""Many generations from a real cluster, for tests of what is generated; they are made by
tests/programs/prog_generate.c.

    with GenerationCluster(build, n_ranks=2) as cluster:
        done = cluster.generate([order(ids=[5, 6], max_tokens=8, temperature=0, n_draft=3)])
        done[0]["ids"], done[0]["accepted"]
"""
import collections
import concurrent.futures
import json
import os
import subprocess
import time

from cluster import SOURCE, TALES, Cluster, ClusterError, bound

TARGET = os.path.join(TALES, "target")
DRAFT = os.path.join(TALES, "draft")


class Edits:
    """Changes of p: penalties, one bias for some ids, banned sequences."""

    def __init__(self, repetition=1.0, presence=0.0, frequency=0.0, bias=0.0, biased=(), bans=()):
        self.penalties = {"repetition": repetition, "presence": presence, "frequency": frequency}
        self.bias, self.biased, self.bans = bias, list(biased), list(bans)

    def fields(self):
        """(key, value) for prog_generate."""
        fields = list(self.penalties.items())
        if self.biased:
            fields += [("bias_ids", ",".join(map(str, self.biased))), ("bias", self.bias)]
        return fields + [("ban", ",".join(map(str, ban))) for ban in self.bans]

    def arguments(self):
        """For prog_joint."""
        return [*map(repr, self.penalties.values()), repr(self.bias),
                ",".join(map(str, self.biased)), *(",".join(map(str, ban)) for ban in self.bans)]


def order(ids, repeat=1, edits=None, **fields):
    """One line for prog_generate; fields are its keys."""
    words = ["ids=" + ",".join(map(str, ids))]
    words += [f"{key}={value}" for key, value in fields.items()]
    words += [f"{key}={value}" for key, value in edits.fields()] if edits else []
    return " ".join(words + [f"repeat={repeat}"])


def golden_prompts():
    """The prompts with reference outputs: dicts of text, ids, greedy_ids, greedy_margins, ..."""
    path = os.path.join(SOURCE, "tests", "golden", "tales", "reference_target.json")
    with open(path, encoding="utf-8") as file:
        return json.load(file)["prompts"]


class GenerationCluster(Cluster):
    """A cluster that needs no client: it is asked through prog_generate."""

    def __init__(self, build, **options):
        super().__init__(build, **options)
        self.draft_name = "tales draft"
        self.program = os.path.join(build, "tests", "prog_generate")

    def is_serving(self, address=None):
        answer = subprocess.run([self.program, address or self.address, "describe"],
                                capture_output=True, timeout=bound(30), check=False)
        return answer.returncode == 0

    def use_draft(self, draft, name):
        """Starts a new coordinator with another draft; the workers stay."""
        self.coordinator.stop()
        self.draft, self.draft_name = draft, name
        self.start_coordinator()
        self.wait_serving()

    def use(self, *flags, draft=DRAFT):
        """Starts a new coordinator with these options and this draft; the workers stay."""
        self.coordinator_flags = list(flags)
        if draft == "none":
            self.coordinator_flags += ["--tokenizer", self.target]
        self.use_draft(draft, draft)

    def generate(self, orders, timeout=600, in_flight=32):
        """The generations of all orders, in order, made in company of as many others."""
        try:
            run = subprocess.run([self.program, self.address, str(in_flight)],
                                 input="\n".join(orders) + "\n", capture_output=True,
                                 encoding="utf-8", timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            raise ClusterError(f"{len(orders)} orders: no end after {timeout:g} s") from None
        if run.returncode != 0:
            raise ClusterError(f"prog_generate: {run.stderr.strip()}")
        return [json.loads(line) for line in run.stdout.splitlines()]


def side_by_side(*calls):
    """The results of the calls, which run at the same time. Each needs a cluster of its own: a
    cluster of one rank leaves half of two cores idle."""
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def exact_pairs(build, prompt, top_k, least=0.0, edits=None, target=TARGET):
    """{(a, b): probability} of the target's next two tokens at temperature 1; b = -1 sums up all
    those whose pair has less than `least`. top_k = 0: no truncation. edits: Edits, with at least
    one biased id."""
    run = subprocess.run([os.path.join(build, "tests", "prog_joint"), target, str(top_k),
                          repr(least), ",".join(map(str, prompt)),
                          *(edits.arguments() if edits else [])],
                         capture_output=True, encoding="utf-8", timeout=bound(300), check=True)
    rows = (line.split() for line in run.stdout.splitlines())
    return {(int(a), int(b)): float(p) for a, b, p in rows}


def chi_square(build, mode, cells):
    """prog_chi_square over (count, probability or count) pairs: a dict of its results."""
    text = "".join(f"{count} {other!r}\n" for count, other in cells)
    run = subprocess.run([os.path.join(build, "tests", "prog_chi_square"), mode], input=text,
                         capture_output=True, encoding="utf-8", timeout=bound(60), check=True)
    return json.loads(run.stdout)


def fit_cells(pairs, exact):
    """Counts of pairs beside the probabilities of exact_pairs; the last cell holds the pairs that
    cannot be."""
    counts = collections.Counter()
    for a, b in pairs:
        cell = (a, b) if (a, b) in exact else (a, -1)
        counts[cell if cell in exact else None] += 1
    return [(counts[cell], p) for cell, p in exact.items()] + [(counts[None], 0.0)]


class Report:
    """Counts the checks that held and prints each."""

    def __init__(self):
        self.n_failed = 0
        self.start = time.monotonic()

    def note(self, text):
        print(f"{time.monotonic() - self.start:6.1f} s  {text}", flush=True)

    def check(self, is_right, text):
        self.note(("ok      " if is_right else "FAILED  ") + text)
        if not is_right:
            self.n_failed += 1
        return is_right

    def status(self):
        print(f"{self.n_failed} failed")
        return 1 if self.n_failed else 0


def check_word_is_refused(build, report, option):
    """The option takes auto, on and off."""
    done = subprocess.run([os.path.join(build, "bin", "outrider-coordinator"), "--target",
                           "unix:/nowhere", "--draft", "none", option, "maybe"],
                          capture_output=True, encoding="utf-8", timeout=bound(60), check=False)
    wanted = f"{option} maybe: expected auto, on or off"
    report.check(done.returncode == 2 and wanted in done.stderr,
                 f"{option}: another word than auto, on and off is refused")
