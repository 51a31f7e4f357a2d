#!/usr/bin/env python3
# ctest: labels=full libs=worker beside=yes timeout=600
"""Guesses of the target at look-ahead tokens (PaSS): texts are those of plain decoding, on one rank
and two, alone and in company, with guesses beside them and places lost; draws have the target's
distribution; every guess is what the target says after the text before it and the tokens whose
embeddings were put there; and folders and workers that do not fit get a sentence.

Usage: test_look_ahead_texts.py BUILD_FOLDER
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import bound, wait_until
from generations import (TARGET, GenerationCluster, Report, chi_square, exact_pairs, fit_cells,
                         golden_prompts, order)
from look_ahead import embeddings_of, write_look_ahead

N_TOKENS = 60
STAND_INS = [15, 263, 17, 278]  # tokens whose embeddings are put after texts
WAYS = [{"temperature": 0}, {"temperature": 1, "rule": "coupled", "seed": 5},
        {"temperature": 0.7, "rule": "coupled", "seed": 6, "top_k": 12}]
PROMPT, TOP_K, N_DRAWS, P_LEAST = [338], 20, 3000, 1e-6


def prompts():
    return [one["ids"] for one in golden_prompts()]


def orders(k, strategy="fixed", **fields):
    return [order(ids, n_draft=k, strategy=strategy, max_tokens=N_TOKENS, ignore_eos=1,
                  **{**way, **fields}) for way in WAYS for ids in prompts()]


def pass_cluster(build, head, *flags, lookup="none", worker_head=None, **options):
    """A coordinator that guesses by the folder, with workers that hold it, too."""
    return GenerationCluster(build, draft=None,
                             worker_flags=["--head", worker_head or head,
                                           *options.pop("worker_flags", ())],
                             coordinator_flags=["--head", head, "--tokenizer", TARGET,
                                                "--lookup", lookup, *flags], **options)


def compare(report, cluster, plain, what, orders_of, in_flight, is_planned=False):
    """How many guesses a planned text has depends on times."""
    done = cluster.generate(orders_of, in_flight=in_flight)
    n_other = sum(one["ids"] != ids for one, ids in zip(done, plain))
    drafted, accepted = (sum(one[key] for one in done) for key in ("drafted", "accepted"))
    report.check(n_other == 0 and (is_planned or 0 < accepted < drafted),
                 f"{what}, T = {cluster.n_ranks}: {drafted} guesses, {accepted} stay" +
                 (f"; {n_other} texts differ" if n_other else ""))
    return done


def check_texts(build, report, head, plain):
    """In company texts have their guesses, too, and lose their places where KV is short."""
    with pass_cluster(build, head) as cluster:
        alone = compare(report, cluster, plain, "K = 4", orders(4), 1)
        compare(report, cluster, plain, "K = 2 in company", orders(2), 8)
    with pass_cluster(build, head, n_ranks=2) as cluster:
        done = compare(report, cluster, plain, "K = 4 in company", orders(4), 8)
        same = [[one["drafted"], one["accepted"]] for one in done]
        report.check(same == [[one["drafted"], one["accepted"]] for one in alone],
                     "company and ranks change no guess")
    flags = ["--trees", "auto", "--calibrate", "0"]
    with pass_cluster(build, head, *flags, lookup="session,recycled,lookahead") as cluster:
        compare(report, cluster, plain, "planned beside finders", orders(8, "planned"), 4, True)
        compare(report, cluster, plain, "planned, alone", orders(8, "planned"), 1, True)
    with pass_cluster(build, head, worker_flags=["--kv-tokens", "320"]) as cluster:
        done = compare(report, cluster, plain, "with little KV", orders(4), 8)
        report.check(sum(one["preemptions"] for one in done) > 0, "and places are lost")
    with pass_cluster(build, head, worker_flags=["--max-step-tokens", "32", "--max-step-rows",
                                                 "32"]) as cluster:
        compare(report, cluster, plain, "in steps of 32 rows, in company", orders(4), 8)


def check_overflow(build, report, head, plain):
    """The squares of the embeddings have no number, and guesses by them are as good as none."""
    with pass_cluster(build, head) as cluster:
        done = cluster.generate(orders(4), in_flight=4)
    report.check([one["ids"] for one in done] == plain and any(one["drafted"] for one in done),
                 "embeddings as large as can be change no text")


def before_guesses(prompt, one):
    """(text before the round's first guess and without the token drawn last, guesses of the chain)
    of each round with guesses."""
    ids, at = one["ids"], 0
    for n, told in zip(one["committed"], one["shown"]):
        chain = [guess[0] for guess in sorted(told["guesses"], key=lambda g: g[1]) if guess[2] == 0]
        if chain:
            yield prompt + ids[:at - 1], chain
        at += n


def check_guesses(build, report, head):
    """A guess for place i is the target's best token after the text, without the token that was
    drawn last, and the first i + 1 tokens whose embeddings stand there."""
    with pass_cluster(build, head) as cluster:
        rounds = []
        for ids in prompts()[:3]:
            asked = order(ids, n_draft=4, strategy="fixed", max_tokens=24, ignore_eos=1,
                          temperature=0, show_drafts=1)
            rounds += before_guesses(ids, cluster.generate([asked])[0])
        wanted, asked = [], []
        for text, chain in rounds:
            for i, guess in enumerate(chain):
                wanted.append(guess)
                asked.append(order(text + STAND_INS[:i + 1], n_draft=0, strategy="fixed",
                                   max_tokens=1, ignore_eos=1, temperature=0))
        done = cluster.generate(asked, in_flight=8)
    n_right = sum(one["ids"] == [guess] for one, guess in zip(done, wanted))
    n_kinds = len(set(wanted))
    report.check(n_right == len(wanted) > 200 and n_kinds > 10,
                 f"{n_right} of {len(wanted)} guesses, of {n_kinds} tokens, are what the target "
                 "says there")


def check_draws(build, report, head):
    exact = exact_pairs(build, PROMPT, TOP_K)
    with pass_cluster(build, head) as cluster:
        for rule in ("rejection", "block"):
            done = cluster.generate([order(PROMPT, repeat=N_DRAWS, max_tokens=4, temperature=1,
                                           top_k=TOP_K, rule=rule, n_draft=2, strategy="fixed",
                                           ignore_eos=1, seed=1 + 10000 * len(rule))])
            accepted, drafted = (sum(one[key] for one in done) for key in ("accepted", "drafted"))
            pairs = [tuple(one["ids"][:2]) for one in done]
            fit = chi_square(build, "fit", fit_cells(pairs, exact))
            report.check(fit["p_value"] > P_LEAST and drafted - accepted > N_DRAWS // 10 and
                         accepted > N_DRAWS // 20 and len(done) == N_DRAWS,
                         f"{rule}: {accepted} of {drafted} guesses stay; chi-square "
                         f"{fit['chi_square']:.1f} over {fit['cells']} cells, p = "
                         f"{fit['p_value']:.3g}")


class Refused(GenerationCluster):
    """A coordinator that finds no group that fits, and says so."""

    def wait_serving(self, timeout=60):
        wait_until(lambda: self.says in self.coordinator.log(), timeout,
                   f"the log has: {self.says}")


def check_groups(build, report, head, other):
    says = {"": "the target's workers have none: start each of them with --head",
            other: "start both with the same --head"}
    for held, text in says.items():
        flags = ["--head", held] if held else []
        refused = Refused(build, draft=None, worker_flags=flags,
                          coordinator_flags=["--head", head, "--tokenizer", TARGET])
        refused.says = text
        with refused:
            report.check(True, text)


def check_folders(build, report, folder):
    nan, narrow = b"\xc0\x7f" * 256, b"\x00\x3f" * 128
    for name, rows, text in (("nan", [nan], "has an element that is no number, in row 0"),
                             ("narrow", [narrow], "they are of another model"),
                             ("many", [b"\x00\x3f" * 256] * 17, "n_lookahead")):
        head = write_look_ahead(os.path.join(folder, name), rows)
        worker = ["outrider-worker", "--model", TARGET, "--check"]
        coordinator = ["outrider-coordinator", "--target", "unix:/nowhere", "--tokenizer", TARGET]
        programs = (worker, coordinator, [*coordinator, "--check"])
        for program, *flags in programs if name != "narrow" else (worker,):
            done = subprocess.run([os.path.join(build, "bin", program), *flags, "--head", head],
                                  capture_output=True, encoding="utf-8", timeout=bound(60),
                                  check=False)
            report.check(done.returncode not in (0, None) and text in done.stderr,
                         f"{program} refuses {name}: {done.stderr.strip()[-160:]}")


def main(build):
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        head = write_look_ahead(os.path.join(folder, "head"), embeddings_of(TARGET, STAND_INS))
        other = write_look_ahead(os.path.join(folder, "other"), embeddings_of(TARGET, [1, 2]))
        check_folders(build, report, folder)
        check_groups(build, report, head, other)
        with GenerationCluster(build, draft=None) as cluster:
            plain = [one["ids"] for one in cluster.generate(orders(0), in_flight=2)]
        check_texts(build, report, head, plain)
        huge = write_look_ahead(os.path.join(folder, "huge"), [b"\x7f\x7f" * 256] * 2)
        check_overflow(build, report, huge, plain)
        check_guesses(build, report, head)
        check_draws(build, report, head)
    return report.status()


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1])))
