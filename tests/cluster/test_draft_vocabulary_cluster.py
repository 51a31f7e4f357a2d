#!/usr/bin/env python3
# ctest: labels=full libs=worker beside=yes timeout=300 long=900
"""The lists of tokens that a draft guesses among come from `outrider count` and from served texts;
they must agree with the tokenizer and the texts. With such a draft `rejection` and `block` keep the
target's distribution: `tests/run long` makes all draws, other runs a tenth. test_matrix.py compares
the texts of such drafts with plain ones.
Usage: test_draft_vocabulary_cluster.py BUILD_FOLDER
"""
import collections
import glob
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import SOURCE
from generations import (DRAFT, GenerationCluster, Report, chi_square, exact_pairs, fit_cells,
                         golden_prompts, order)

TEXTS = sorted(glob.glob(os.path.join(SOURCE, "docs", "*.md")))
HEADER = "# outrider token counts, tokenizer "
N_SERVED = 300
# As in test_distribution.py: the second token comes from the same round or from the next one.
PROMPT = [338]
TOP_K = 20
N_DRAFT = 3
N_DRAWS = 8000 if "OUTRIDER_TEST_LONG" in os.environ else 800
N_HEAD = 200
BATCH = 10000
P_LEAST = 1e-4


def read_list(path):
    """The header and {id: count}, most frequent first."""
    with open(path, encoding="ascii") as file:
        header, *lines = file.read().splitlines()
    return header, {int(token): int(count) for token, count in map(str.split, lines)}


def check_count(report, cluster, path):
    """`outrider count` against `outrider tokenize` of the same texts."""
    wanted = collections.Counter()
    for text in TEXTS:
        # tokenize leaves out the newline at the end, count does not
        with open(text, encoding="utf-8") as file:
            shown = cluster.outrider("tokenize", "-m", DRAFT, "--no-bos", "--json", "-",
                                     stdin=file.read() + "\n")
        wanted.update(json.loads(shown.stdout)["ids"])
    done = cluster.outrider("count", "-m", DRAFT, "-o", path, *TEXTS)
    header, counts = read_list(path)
    ranked = sorted(wanted.items(), key=lambda item: (-item[1], item[0]))
    report.check(done.returncode == 0 and not done.stdout and header.startswith(HEADER) and
                 list(counts.items()) == ranked,
                 f"a count of {sum(wanted.values())} tokens, {len(wanted)} of them different")
    printed = cluster.outrider("count", "-m", DRAFT, *TEXTS)
    with open(path, encoding="ascii") as file:
        report.check(printed.stdout == file.read(), "the same on the standard output")


def use_head(cluster, head, *flags):
    cluster.coordinator_flags = [*(["--draft-vocab", head] if head else []), *flags]
    cluster.use_draft(DRAFT, f"head {os.path.basename(head)}" if head else "whole head")


def check_distribution(report, build, cluster, path):
    exact = exact_pairs(build, PROMPT, TOP_K)
    use_head(cluster, f"{path}:{N_HEAD}")
    for rule, first_seed in (("rejection", 1), ("block", 1000001)):
        done = []
        while len(done) < N_DRAWS:
            done += cluster.generate([order(PROMPT, repeat=min(BATCH, N_DRAWS - len(done)),
                                            seed=first_seed + len(done), max_tokens=N_DRAFT + 1,
                                            temperature=1, top_k=TOP_K, n_draft=N_DRAFT, rule=rule,
                                            ignore_eos=1)])
        first = [one["accepted_in_round"][0] for one in done]
        fit = chi_square(build, "fit", fit_cells([tuple(one["ids"][:2]) for one in done], exact))
        report.check(fit["p_value"] > P_LEAST and 0 < sum(first) < N_DRAFT * len(first),
                     f"{rule}, {cluster.draft_name}: chi-square {fit['chi_square']:.1f} over "
                     f"{fit['cells']} cells, p = {fit['p_value']:.3g}; total variation of "
                     f"{fit['detectable_tv']:.4f} would be found in 9 of 10 cases; "
                     f"{sum(first) / len(first):.3f} guesses stay in the first round")


def check_served(report, cluster, path):
    """Counts the tokens served by a coordinator that was started twice. The seeds are fixed and
    `coupled` text is the same everywhere, so the list is too; the head that follows is chosen from
    it."""
    wanted = collections.Counter()
    for life in range(2):
        use_head(cluster, None, "--count-tokens", path)
        prompts = [prompt["ids"] for prompt in golden_prompts()]
        done = cluster.generate([order(ids, n_draft=k, max_tokens=N_SERVED, seed=5 + life,
                                       temperature=0.8, rule="coupled")
                                 for k in (0, 4) for ids in prompts])
        for ids, one in zip(prompts * 2, done):
            wanted.update(ids)
            wanted.update(one["ids"])
        status = cluster.coordinator.stop()
        _, counts = read_list(path)
        report.check(status == 0 and counts == dict(wanted),
                     f"{sum(counts.values())} served tokens are counted after {life + 1} lives")
    report.check(len(counts) > N_HEAD, f"{len(counts)} different tokens were served")


def refusal(cluster, *flags, draft=DRAFT):
    """Exit status and complaint of a coordinator with these flags."""
    run = subprocess.run([os.path.join(cluster.bin, "outrider-coordinator"), "--target",
                          cluster.worker_addresses[0], "--draft", draft, "--tokenizer", DRAFT,
                          "--listen", f"unix:{cluster.folder}/refused", *flags],
                         capture_output=True, encoding="utf-8", timeout=60, check=False)
    return run.returncode, run.stdout + run.stderr


def check_refusals(report, cluster, path):
    with open(path, encoding="ascii") as file:
        header, first, *rest = file.read().splitlines()
    wrong = os.path.join(cluster.folder, "wrong")
    foreign = HEADER + "0123456789abcdef"
    cases = [
        ("a foreign tokenizer", [foreign, first], "", "another tokenizer"),
        ("an id out of range", [header, "4096 5"], "", "token id 4096 is outside"),
        ("an id that stands there twice", [header, first, first], "", "counted in a line before"),
        ("no token", [header], "", "has no token"),
        ("N too large", [header, first, *rest], ":4096", "give at most these"),
        ("no list", ["once upon a time"], "", "no list of token counts"),
    ]
    for name, lines, tail, part in cases:
        with open(wrong, "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")
        status, text = refusal(cluster, "--draft-vocab", wrong + tail)
        report.check(status == 78 and part in text, f"{name} is refused")
    open(wrong, "w", encoding="ascii").close()
    status, text = refusal(cluster, "--draft-vocab", wrong)
    report.check(status == 78 and "no list of token counts" in text, "an empty file is refused")
    status, text = refusal(cluster, "--draft-vocab", path, draft="none")
    report.check(status == 78 and "there is no draft" in text, "a head without a draft is refused")
    status, text = refusal(cluster, "--draft-head", path, draft="none")
    report.check(status == 78 and "there is no draft" in text and "option_renamed" in text,
                 "the option's former name means the same, with a warning")
    status, text = refusal(cluster, "--count-tokens", "/nowhere/list")
    report.check(status == 1 and "cannot write /nowhere/list" in text,
                 "a list that cannot be written is refused")
    done = cluster.outrider("count", "-m", DRAFT)
    report.check(done.returncode == 2 and "no text" in done.stderr, "a count of nothing is refused")


def main():
    build = sys.argv[1]
    report = Report()
    with GenerationCluster(build) as cluster:
        counted, served = (os.path.join(cluster.folder, name) for name in ("counted", "served"))
        check_count(report, cluster, counted)
        check_refusals(report, cluster, counted)
        check_served(report, cluster, served)
        check_distribution(report, build, cluster, served)
    return report.status()


if __name__ == "__main__":
    sys.exit(main())
