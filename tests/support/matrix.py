"""Shared by the checks of tests/cluster/test_matrix.py: ranks whose coordinator is started again
with other options, and texts of theirs that are compared with plain ones.

    world = World(report, PlainTexts(), cluster, "two ranks")
    world.use("--draft-staged", "on")
    world.texts("greedy", lambda total: total.staged > 0, n_draft=4)
"""
import os

from generations import DRAFT
from plain_texts import ARITHMETIC, KINDS, arithmetic_of

ALL = "OUTRIDER_TEST_LONG" in os.environ
N_SEEDS = 2 if ALL else 1       # of coupled texts
MOST_BATCHES = 40               # of planned texts
FAR_S, FARTHER_S = 0.004, 0.02  # of a link, each way
PLANNED = {"strategy": "planned", "n_draft": 16}
GREEDY_AND_COUPLED = ("greedy", "coupled at 1")
SUMS = ("drafted", "accepted", "rejections", "rounds", "rows", "found", "found_accepted",
        "siblings", "siblings_accepted", "appended", "appended_accepted", "staged", "preemptions",
        "completion_tokens", "bytes_sent", "bytes_received")


class Total:
    """Generations, and the sum of each counter as an attribute."""

    def __init__(self, done):
        self.done = done
        for key in SUMS:
            setattr(self, key, sum(one[key] for one in done))

    def __str__(self):
        tested = self.accepted + self.rejections
        parts = [f"alpha {self.accepted / tested if tested else 0:.3f}, "
                 f"{self.completion_tokens / self.rounds:.2f} tokens per round"]
        parts += [f"{getattr(self, key)} {key}" for key in SUMS[5:14] if getattr(self, key)]
        return ", ".join(parts)


class World:
    """The ranks of a cluster and what is checked with them."""

    def __init__(self, report, plain, cluster, name):
        self.report, self.plain, self.cluster, self.name = report, plain, cluster, name
        self.options = "the coordinator's defaults"
        report.check(arithmetic_of(cluster) == ARITHMETIC,
                     f"{name}: the arithmetic is that of the golden texts, {ARITHMETIC}")

    def use(self, *flags, draft=DRAFT):
        self.cluster.use(*flags, draft=draft)
        is_known = draft in (DRAFT, "none")
        self.options = " ".join([*flags, "" if draft == DRAFT else "no draft" if is_known else
                                 os.path.basename(draft)]).strip() or "the coordinator's defaults"

    def check(self, is_right, text):
        return self.report.check(is_right, f"{self.name}; {self.options}: {text}")

    def texts(self, name, holds=lambda total: True, in_flight=32, n_seeds=N_SEEDS, **way):
        """Compares a kind's texts with the plain ones; holds: what else must be true of their
        Total, which is returned."""
        kind, plain = KINDS[name], self.plain.of(name)
        orders = kind.orders(n_seeds, **way)
        total = Total(self.cluster.generate(orders, in_flight=in_flight))
        n_tokens = way.get("max_tokens", kind.fields["max_tokens"])
        n_other = sum(one["ids"] != ids[:n_tokens] for one, ids in zip(total.done, plain))
        words = " ".join(f"{key}={value}" for key, value in way.items())
        self.check(n_other == 0 < len(total.done) == len(orders) <= len(plain) and holds(total),
                   f"{name}, {words}, {in_flight} at once: {total}" +
                   (f"; {n_other} of {len(total.done)} texts differ" if n_other else ""))
        return total

    def plan_until(self, is_enough, holds=lambda total: True, **way):
        """How many guesses planned texts have, alone and in company. Times decide what the planner
        tries in which of them, so there are more until is_enough(guesses so far)."""
        n_made = 0
        for _ in range(MOST_BATCHES):
            for in_flight in (1, 8):
                n_made += sum(self.texts(name, holds, in_flight=in_flight, **PLANNED, **way).drafted
                              for name in GREEDY_AND_COUPLED)
            if is_enough(n_made):
                break
        return n_made
