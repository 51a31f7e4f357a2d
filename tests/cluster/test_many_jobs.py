#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes cores=2 timeout=900
"""A job's answer does not depend on company: 64 jobs of every kind, few or many at a time, on one,
two and four ranks, with so few KV blocks that sequences are preempted again and again, give bit for
bit the texts and scores that each of them gives alone. Skipped (77) where grpcio is not installed.
Usage: test_many_jobs.py BUILD_FOLDER [SEED]"""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from load_client import Client, job, run_jobs, score_job
from cluster import Cluster, is_sanitized
from generations import Report, golden_prompts

SEED = 20240917
N_JOBS = 64
VOCABULARY = 4096
N_CLIENTS = 4  # connections
BLOCK_TOKENS = 16
SHARED_TOKENS = (16, 40, 80, 128, 200)

# Options whose text is a promise: greedy, coupled, and at a K that rounds alone decide.
KINDS = (
    {"temperature": 0},
    {"temperature": 0, "n_draft": 5},
    {"temperature": 0, "n_draft": 0},
    {"temperature": 0, "strategy": "heuristic", "n_draft": 8},
    {"temperature": 0, "strategy": "threshold", "threshold": 0.3, "show_drafts": True},
    {"temperature": 1, "rule": "coupled"},
    {"temperature": 0.8, "rule": "coupled", "top_k": 30, "show_drafts": True},
    {"temperature": 1, "rule": "coupled", "n_draft": 3, "top_p": 0.9},
    {"temperature": 1, "rule": "rejection", "n_draft": 4},
    {"temperature": 1.2, "rule": "rejection", "n_draft": 8, "min_p": 0.02},
    {"temperature": 0.9, "rule": "rejection", "n_draft": 1, "top_p": 0.8, "top_k": 50},
    {"temperature": 1, "rule": "block", "n_draft": 4},
    {"temperature": 1, "rule": "block", "n_draft": 7, "top_k": 40},
    {"temperature": 1, "rule": "rejection", "strategy": "heuristic", "n_draft": 6},
)

# Edits that change p, and what is told of it.
EDITS = (
    {"repetition": 1.3},
    {"presence": 0.8, "frequency": 0.5},
    {"biases": {300: 3.0, 263: -100.0}},
    {"bans": [[263], [44, 535], [2, 3, 4]]},
    {"min_tokens": 12, "stop_ids": [263, 300, 14]},
    {"echo": True, "logprobs": 2},
    {"echo": True},
    {"logprobs": 3, "repetition": 0.9},
)


def make_prompts(rng):
    """Stories, random ids, long prompts, and beginnings that several share."""
    stories = [prompt["ids"] for prompt in golden_prompts()]
    common = [rng.randrange(1, VOCABULARY) for _ in range(max(SHARED_TOKENS))]
    prompts = []
    for i in range(N_JOBS):
        rest = [rng.randrange(1, VOCABULARY) for _ in range(rng.randrange(1, 60))]
        if i % 4 == 0:
            prompts.append(common[:SHARED_TOKENS[i // 4 % len(SHARED_TOKENS)]] + rest)
        elif i % 4 == 1:
            prompts.append([rest[0]] + stories[i // 4 % len(stories)])
        elif i % 16 == 2:
            prompts.append([rng.randrange(1, VOCABULARY) for _ in range(300)])
        else:
            prompts.append(rest)
    return prompts


def make_jobs(seed):
    """[(method, message)] and the prompt of each."""
    rng = random.Random(seed)
    prompts = make_prompts(rng)
    jobs = []
    for i, ids in enumerate(prompts):
        if i % 9 == 8:
            jobs.append(("Score", score_job(ids, top_n=i % 5)))
            continue
        options = dict(KINDS[i % len(KINDS)])
        if options["temperature"] > 0:
            options["seed"] = 1000 + i
        if i % 7 == 3:
            options["stop"] = ["the", "zzzz"]
        if i % 5 in (1, 2):
            options.update(EDITS[i % len(EDITS)])
        if i % 11 == 5:
            options["n"] = 2 + i % 2
        longest = rng.randrange(options.get("min_tokens", 1), 110)
        message = job(ids, max_tokens=longest, ignore_eos=i % 3 > 0, **options)
        jobs.append(("Generate", message))
    return jobs, prompts


def shares(prompt, earlier):
    """True if a block of the prompt's KV could be there already."""
    begin = prompt[:BLOCK_TOKENS]
    return len(begin) == BLOCK_TOKENS and any(one[:BLOCK_TOKENS] == begin for one in earlier)


def alone(build, jobs, prompts, report):
    """The words of every job on a cluster of default sizes where nothing is known of its text."""
    words, earlier, n_reused, n_accepted = [], [], 0, 0
    with Cluster(build, coordinator_flags=["--calibrate", "0"]) as cluster:
        client = Client(cluster.address)
        for (method, message), prompt in zip(jobs, prompts):
            if shares(prompt, earlier):
                client.close()
                cluster.coordinator.stop()
                cluster.start_coordinator()
                cluster.wait_serving()
                client, earlier = Client(cluster.address), []
            earlier.append(prompt)
            answer = client.ask(message, method=method)
            words.append(answer.words())
            n_reused += answer.texts[0].counters["target_reused"] if 0 in answer.texts else 0
            n_accepted += answer.total("accepted")
        client.close()
    n_tokens = sum(len(ids) for _, texts, _ in words for ids, *_ in texts.values())
    ends = {end for _, texts, _ in words for _, _, end, *_ in texts.values()}
    matches = sum(bool(match) for _, texts, _ in words for _, _, _, match, _ in texts.values())
    statuses = {status for status, _, _ in words}
    report.check(statuses == {"OK"} and n_reused == 0, f"{len(jobs)} jobs alone end with "
                 f"{statuses}, {n_tokens} tokens, {n_reused} reused")
    n_logprobs = sum(len(one) for _, texts, _ in words for *_, one in texts.values())
    n_scores = sum(len(scores) for _, _, scores in words)
    report.check(n_logprobs > 0 and n_scores > 0,
                 f"{n_logprobs} log-probabilities of tokens, {n_scores} of texts and prompts")
    report.check(n_accepted > 0 and ends == {"stop", "length"} and matches > 0,
                 f"{n_accepted} guesses accepted, {matches} stop strings matched")
    return words


class Case:
    """A cluster and how many jobs it has at a time."""

    def __init__(self, n_ranks, concurrency, worker=(), coordinator=(), preempts=False):
        self.n_ranks, self.concurrency, self.preempts = n_ranks, concurrency, preempts
        self.worker = [str(flag) for flag in worker]
        self.coordinator = [str(flag) for flag in coordinator]

    def name(self):
        return f"T = {self.n_ranks}, {' '.join(self.worker + self.coordinator)}"


SMALL = ("--kv-tokens", 448)
SMALL_DRAFT = ("--draft-kv-tokens", 448)
CASES = (
    Case(1, (1, 7, 64)),
    Case(1, (64, 7), SMALL, SMALL_DRAFT, preempts=True),
    Case(1, (32,), SMALL + ("--max-step-rows", 17, "--max-step-tokens", 48),
         SMALL_DRAFT + ("--calibrate", 0), preempts=True),
    Case(2, (32,), SMALL, preempts=True),
    Case(2, (7,)),
    Case(4, (64,), SMALL, SMALL_DRAFT, preempts=True),
)


# In builds that check every access: preemption, steps that are too small for all, two ranks. The
# other combinations would take too long there.
SANITIZED_CASES = (
    Case(1, (64,), SMALL + ("--max-step-rows", 17, "--max-step-tokens", 48),
         SMALL_DRAFT, preempts=True),
    Case(2, (32,)),
)


def first_difference(words, other):
    for name, one, two in zip(("status", "texts", "scores"), words, other):
        if one != two:
            return f"{name}: alone {one}, here {two}"
    return ""


def compare(report, name, jobs, words, answers):
    wrong = [i for i, answer in enumerate(answers) if answer.words() != words[i]]
    report.check(not wrong, f"{name}: {len(jobs) - len(wrong)} of {len(jobs)} as alone")
    for i in wrong[:3]:
        report.note(f"job {i}, {answers[i].details!r}: "
                    f"{first_difference(words[i], answers[i].words())[:800]}")


def check_idle(report, name, load):
    report.check(load.is_idle() and load.target_kv[0] == 0 and load.draft_kv[0] == 0,
                 f"{name}: afterwards all blocks are free or cached, {load.target_kv} and "
                 f"{load.draft_kv}")


def run_case(build, case, jobs, words, report):
    flags, n_failed = ["--strategy", "planned", *case.coordinator], report.n_failed
    with Cluster(build, n_ranks=case.n_ranks, worker_flags=case.worker,
                 coordinator_flags=flags) as cluster:
        clients = [Client(cluster.address) for _ in range(N_CLIENTS)]
        for concurrency in case.concurrency:
            name = f"{case.name()}, {concurrency} at a time"
            before = clients[0].load()
            answers = run_jobs(clients, jobs, concurrency)
            compare(report, name, jobs, words, answers)
            load = clients[0].load()
            check_idle(report, name, load)
            n_preempted = load.preemptions - before.preemptions
            report.check(n_preempted > 0 or not case.preempts or concurrency < 32,
                         f"{name}: {n_preempted} preemptions")
            report.check(load.reused > before.reused,
                         f"{name}: {load.reused - before.reused} tokens reused")
            n_rounds = sum(answer.total("rounds") for answer in answers if len(answer.texts) == 1)
            n_steps = load.steps - before.steps
            report.check((n_rounds > n_steps) == (concurrency > 1),
                         f"{name}: {n_rounds} rounds of jobs with one text in {n_steps} steps")
        for client in clients:
            client.close()
        if report.n_failed > n_failed:
            cluster.print_logs()


def main(build, seed=SEED):
    report = Report()
    jobs, prompts = make_jobs(int(seed))
    words = alone(build, jobs, prompts, report)
    for case in SANITIZED_CASES if is_sanitized(build) else CASES:
        run_case(build, case, jobs, words, report)
    return report.status()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
