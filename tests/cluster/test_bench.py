#!/usr/bin/env python3
# ctest: labels=full libs=client timeout=180
"""`outrider bench` against real clusters: what its rows say, how it drives load, how it ends.
Usage: test_bench.py BUILD_FOLDER [NAME_PART]"""
import csv
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import Cluster, SOURCE, bound, descendants, is_alive, run_all, wait_until
from far_cluster import FarRanks
from terminal import Terminal

PROMPTS = [
    "Once upon a time there was a king who had three daughters,",
    "In the middle of the forest stood a little house",
]
GREEDY = ["--temperature", "0", "--ignore-eos"]
HISTOGRAM = 1.03  # resolution of its latencies
SLOW_MODEL = "synthetic:qwen2.5-0.5b,seed=1,layers=8,vocab=512"


class Bench:
    """A folder for files, and bench on a cluster."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.folder = tempfile.mkdtemp(prefix="outrider-bench-")
        self.csv = os.path.join(self.folder, "rows.csv")
        self.json = os.path.join(self.folder, "rows.json")
        self.prompts = self.file("prompts.txt", "\n".join(PROMPTS) + "\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def file(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def args(self, *args):
        return ["bench", "--csv", self.csv, "--json", self.json, *args]

    def run(self, *args, status=0, environment=None):
        done = self.cluster.outrider(*self.args(*args), environment=environment)
        assert done.returncode == status, f"status {done.returncode}: {done.stderr}"
        if status == 0:
            assert done.stderr == "", f"not silent: {done.stderr}"
        return done

    def popen(self, *args, **options):
        return self.cluster.popen(*self.args(*args), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  encoding="utf-8", **options)

    def rows(self):
        """The rows of the CSV, numbers as numbers; the JSON must say the same."""
        def value(text):
            try:
                return float(text)
            except ValueError:
                return text
        with open(self.csv, encoding="utf-8", newline="") as file:
            rows = [{k: value(v) for k, v in row.items()} for row in csv.DictReader(file)]
        with open(self.json, encoding="utf-8") as file:
            answer = json.load(file)
        assert len(answer["rows"]) == len(rows)
        for mine, other in zip(rows, answer["rows"]):
            for name, number in other.items():
                if isinstance(number, (int, float)):
                    assert math.isclose(mine[name], number, rel_tol=1e-6), (name, mine, other)
                elif number is None:
                    assert mine[name] == "", (name, mine)
        return rows

    def requests(self):
        with open(self.json, encoding="utf-8") as file:
            return json.load(file)["requests"]

    def quartiles(self):
        with open(self.json, encoding="utf-8") as file:
            return json.load(file)["quartiles"]

    def has_rows(self, n):
        """True if the CSV has n rows yet."""
        try:
            with open(self.csv, encoding="utf-8") as file:
                return len(file.readlines()) > n
        except OSError:
            return False


def generated(cluster, prompt, *args):
    done = cluster.outrider("generate", prompt, "--json", *args)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# ---- rows ----

def test_rows_are_the_counters_of_generate(cluster):
    how = ["-n", "40", "-K", "3", *GREEDY]
    alone = [generated(cluster, prompt, *how) for prompt in PROMPTS]
    def total(name):
        return sum(a["counters"][name] for a in alone)
    with Bench(cluster) as bench:
        done = bench.run("--prompts", bench.prompts, "--requests", "2", *how)
        [row] = bench.rows()
    assert (row["requests"], row["failures"], row["repetition"]) == (2, 0, 0)
    assert (row["T"], row["K"], row["concurrency"], row["rate"]) == (1, 3, 1, "")
    assert row["prompt_tokens"] == sum(a["prompt_tokens"] for a in alone)
    assert row["generation_tokens"] == 80
    assert row["rounds"] == total("rounds"), (row, alone)
    for mine, theirs in (("draft_tokens", "drafted"), ("accepted_tokens", "accepted"),
                         ("rejections", "rejections")):
        assert row[f"spec_decode_num_{mine}"] == total(theirs), (mine, row)
    drafts = sum(a["counters"]["drafted_per_position"][0] for a in alone)
    assert row["spec_decode_num_drafts"] == drafts, (row, drafts)
    assert math.isclose(row["alpha"], total("accepted") / (total("accepted") + total("rejections")),
                        rel_tol=1e-6)
    assert math.isclose(row["draft_efficiency"], total("accepted") / total("drafted"), rel_tol=1e-6)
    assert math.isclose(row["tokens_per_round"], 80 / total("rounds"), rel_tol=1e-6)
    assert math.isclose(row["tokens_per_second"], 80 / row["duration_seconds"], rel_tol=1e-6)
    parts = sum(row[f"{part}_us"] for part in ("draft", "wire", "verify", "collective", "accept"))
    assert 0.3 * row["round_us"] < parts <= 1.01 * row["round_us"], row
    for name in ("time_to_first_token", "inter_token_latency", "inter_message_latency",
                 "e2e_request_latency"):
        p50, p90, p99 = (row[f"{name}_seconds_p{p}"] for p in (50, 90, 99))
        assert 0 < p50 <= p90 <= p99 <= HISTOGRAM * row["duration_seconds"], (name, row)
    assert row["time_to_first_token_seconds_p50"] <= row["e2e_request_latency_seconds_p50"], row
    assert row["target_model"] == "target" and row["draft_model"] == "draft"
    assert row["arithmetic"].startswith("cpu-")
    for word in ("tokens/s", "alpha", "tok/rd", "round us", "collective", "2 requests"):
        assert word in done.stdout, done.stdout


def test_places_and_requests_add_up(cluster):
    """Columns of places and records of requests agree with the rows."""
    with Bench(cluster) as bench:
        bench.run("--prompts", bench.prompts, "--requests", "3", "-r", "2", "-n", "40",
                  "--sweep", "K=0,3", "--warmup", "1", *GREEDY)
        rows, requests = bench.rows(), bench.requests()
    for row in rows:
        mine = [r for r in requests if (r["arm"], r["repetition"]) ==
                (row["arm"], row["repetition"])]
        texts = [text for r in mine for text in r["texts"]]
        assert [r["request"] for r in mine] == [3 * row["repetition"] + i for i in range(3)], mine
        places = range(int(row["K"]))
        assert sum(row[f"drafted_pos_{i}"] for i in places) == row["spec_decode_num_draft_tokens"]
        accepted = sum(row[f"accepted_pos_{i}"] for i in places)
        assert accepted == row["spec_decode_num_accepted_tokens"], row
        assert row[f"drafted_pos_{int(row['K'])}"] == "", row
        assert row["siblings"] == row["found"] == 0, row
        assert accepted == sum(sum(text["accepted_per_message"]) for text in texts)
        assert row["rounds"] == sum(len(text["tokens_per_message"]) for text in texts)
        assert row["generation_tokens"] == sum(text["completion_tokens"] for text in texts) == 120
        assert row["prompt_tokens"] == sum(r["prompt_tokens"] for r in mine)
        for r in mine:
            [text] = r["texts"]
            assert r["error"] is None and text["finish_reason"] == "length", r
            assert len(text["itls"]) == len(text["tokens_per_message"]) - 1
            assert 0 < text["ttft"] + sum(text["itls"]) <= r["latency"] + 1e-6, r
            assert 0 <= r["start"] and r["start"] + r["latency"] <= row["duration_seconds"] + 1e-3
        longest = max(r["latency"] for r in mine)
        assert row["e2e_request_latency_seconds_p99"] <= HISTOGRAM * longest + 1e-6, (row, mine)
    assert len(requests) == 12


def test_closed_loop_keeps_three_busy(cluster):
    with Bench(cluster) as bench:
        bench.run("-c", "3", "--requests", "9", "--prompt-tokens", "12", "--seed", "5", "-n", "300",
                  "--ignore-eos", "-K", "0")
        [row] = bench.rows()
        assert (row["requests"], row["failures"], row["concurrency"]) == (9, 0, 3)
        assert row["prompt_tokens"] == 9 * 12 and row["generation_tokens"] == 9 * 300
        # All three are in one step, but for the rounds in which one ends and the next one begins:
        # texts take so many rounds that a client which has to wait for a core does not matter.
        assert 1.5 < row["batch_size"] <= 3 and row["rows_per_step"] >= row["batch_size"], row
        assert 0 < row["request_queue_time_seconds_p90"] < row["duration_seconds"], row
        longest = HISTOGRAM * row["duration_seconds"]
        assert row["e2e_request_latency_seconds_p90"] < longest, row


def test_open_loop_arrives_by_itself(cluster):
    with Bench(cluster) as bench:
        how = ["--rate", "40", "--requests", "20", "--prompt-tokens", "8", "--seed", "7", "-n", "2"]
        bench.run(*how)
        [row] = bench.rows()
    assert (row["requests"], row["failures"], row["rate"], row["concurrency"]) == (20, 0, 40, "")
    # 20 arrivals at 40 a second take 0.5 s, give or take four standard deviations of 0.11 s; then
    # the last request is served.
    assert 0.05 < row["duration_seconds"] < bound(5), row


def test_sweep_alternates_and_compares(cluster):
    with Bench(cluster) as bench:
        done = bench.run("--prompts", bench.prompts, "-n", "16", *GREEDY, "-r", "3", "--sweep",
                         "rule=greedy,coupled,K=0..2")
        rows, quartiles = bench.rows(), bench.quartiles()
    order = [(rule, k) for rule in ("greedy", "coupled") for k in (0, 1, 2)]
    wanted = order + order[::-1] + order
    assert [(row["options"][5:], row["K"]) for row in rows] == wanted, rows
    assert [row["place"] for row in rows] == [0, 1, 2, 3, 4, 5] * 3
    for row in rows:
        [plain] = [r for r in rows if r["repetition"] == row["repetition"] and r["K"] == 0 and
                   r["options"] == row["options"]]
        for name, rate in (("speedup", "decode_tokens_per_second"),
                           ("throughput_ratio", "tokens_per_second")):
            assert math.isclose(row[name], row[rate] / plain[rate], rel_tol=1e-6)
    assert len(quartiles) == 6
    for arm in quartiles:
        values = [row["speedup"] for row in rows if row["arm"] == arm["arm"]]
        inner = statistics.quantiles(values, n=4, method="inclusive")
        assert all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(arm["speedup"], inner)), arm
    assert "rule=coupled K=2" in done.stdout and "quartiles" in done.stdout


def test_sweep_of_load_and_planner(cluster):
    with Bench(cluster) as bench:
        done = bench.run("-n", "12", "--prompt-tokens", "40", "--shared-prefix", "32", "--seed",
                         "5", "-r", "2", "--requests", "8", "--sweep", "C=1,2,...,4,K=plan,0,2",
                         "--ignore-eos")
        rows = bench.rows()
    order = [(c, k) for c in (1, 2, 3, 4) for k in ("plan", 0, 2)]
    assert [(row["concurrency"], row["K"]) for row in rows] == order + order[::-1]
    for row in rows:
        assert row["speedup"] and row["batch_size"] <= row["concurrency"], row
        assert row["mean_k"] <= (16 if row["K"] == "plan" else row["K"]), row
        # The first request of a slice computes all; others may find two blocks of 16.
        most = 32 * (row["requests"] - 1)
        assert 0 <= row["prompt_tokens_reused"] <= most and row["preemptions"] == 0, row
        assert row["prompt_tokens_reused"] >= 32 * (8 - row["concurrency"]), row
    for word in ("K=plan", "batch", "rows/step", "mean K", "reused", "preempt.", "queue p50"):
        assert word in done.stdout, done.stdout


def test_no_arm_finds_another_one_s_prompts(cluster):
    with Bench(cluster) as bench:
        bench.run("-n", "2", "--prompt-tokens", "64", "--requests", "3", "--warmup", "2", "-r", "2",
                  "--sweep", "K=0,2")
        assert [row["prompt_tokens_reused"] for row in bench.rows()] == [0] * 4
        bench.run("-n", "2", "--prompt-tokens", "64", "--requests", "3", "--shared-prefix", "48",
                  "-c", "1")
        [row] = bench.rows()
        assert row["prompt_tokens_reused"] == 2 * 48, row


def test_several_texts_of_a_request(cluster):
    with Bench(cluster) as bench:
        bench.run("-n", "9", "--choices", "4", "--requests", "2", "--seed", "3", "--ignore-eos",
                  "-K", "0")
        [row] = bench.rows()
        assert (row["requests"], row["generation_tokens"], row["rounds"]) == (2, 72, 72), row


def test_prompts_as_json_lines(cluster):
    with Bench(cluster) as bench:
        lines = [{"prompt": PROMPTS[0], "n": 5, "topic": "kings"}, {"prompt": "A \"house\"\n"}]
        path = bench.file("prompts.jsonl", "\n\n".join(json.dumps(line) for line in lines))
        bench.run("--prompts", path, "-n", "9", "--requests", "3", *GREEDY)
        [row] = bench.rows()
        assert row["generation_tokens"] == 5 + 9 + 5
        cluster_says = generated(cluster, "A \"house\"\n", "-n", "1")["prompt_tokens"]
        first = generated(cluster, PROMPTS[0], "-n", "1")["prompt_tokens"]
        assert row["prompt_tokens"] == 2 * first + cluster_says


def test_failures_are_counted_and_named(cluster):
    with Bench(cluster) as bench:
        path = bench.file("prompts.txt", PROMPTS[0] + "\n" + "tale " * 3000 + "\n")
        done = bench.run("--prompts", path, "-n", "4", "--requests", "4", "--warmup", "0",
                         "--temperature", "0", status=1)
        [row] = bench.rows()
        records = bench.requests()
    assert (row["requests"], row["failures"], row["generation_tokens"]) == (2, 2, 8)
    assert "context of 1024" in row["error"], row["error"]
    assert [r["error"] for r in records] == [None, row["error"]] * 2, records
    assert records[1]["prompt_tokens"] is None and records[1]["texts"][0]["ttft"] is None
    assert done.stderr.count("\n") == 1 and "2 of 4 requests failed: " in done.stderr, done.stderr
    assert "4 requests in 1 repetitions, 2 failed" in done.stdout, done.stdout


def test_progress_on_a_terminal_only(cluster):
    with Bench(cluster) as bench, Terminal() as terminal:
        done = subprocess.run(
            cluster.command(*bench.args("-n", "4", "-r", "2", "--sweep", "K=0,1")),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=terminal.side, timeout=30,
            env=cluster.client_environment())
        shown = terminal.shown()
    assert done.returncode == 0, shown
    assert "[0/4] " in shown and "[3/4] running K=0" in shown and "left" in shown, shown
    assert shown.endswith("\r\033[K"), repr(shown[-40:])


# ---- command lines ----

def test_wrong_command_lines(cluster):
    def refused(part, *args, status=2):
        done = cluster.outrider("bench", *args)
        assert done.returncode == status, f"{args}: status {done.returncode}: {done.stderr}"
        assert part in done.stderr and done.stdout == "", f"{args}: {done.stderr}"
        assert done.stderr.startswith("outrider: ") and done.stderr.count("\n") == 1, done.stderr

    with Bench(cluster) as bench:
        bad = bench.file("bad.jsonl", '{"prompt": "x"}\n{"n": 3}\n')
        refused("line 2", "--prompts", bad, status=1)
        refused("has no prompt", "--prompts", bench.file("empty", "\n \n"), status=1)
    refused("/nowhere", "--prompts", "/nowhere", status=1)
    refused("/nowhere/x.csv", "--csv", "/nowhere/x.csv", status=1)
    refused("not both", "--prompts", "x", "--prompt-tokens", "3")
    refused("--concurrency", "-c", "0")
    refused("--rate", "--rate", "-1")
    refused("open loop", "--rate", "1", "-c", "2")
    refused("open loop", "--sweep", "R=1,2,C=1")
    refused("--repetitions", "-r", "0")
    refused("--draft-tokens", "-K", "17")
    refused("--rule", "--rule", "best")
    refused("--draft-tokens", "--sweep", "K=0..17")
    refused("does not reach 63", "--sweep", "C=1,2,4,...,63")
    refused("longer than a prompt", "--shared-prefix", "33")
    refused("--shared-prefix is for random", "--prompts", "x", "--shared-prefix", "3")
    refused("expected NAME=VALUES", "--sweep", "1,2")
    refused("named twice", "--sweep", "K=1", "--sweep", "K=2")
    refused("no value of K", "--sweep", "K=1,,2")
    refused("no option", "--sweep", "colour=red")
    refused("no option", "--sweep", "ignore-eos=1")
    refused("--start", "--sweep", "T=1,2")
    refused("--sweep T", "--start", "run -T {T}")
    refused("too much", "now")
    refused("start outrider serve", "-a", "127.0.0.1:9", status=1)
    refused("running at", "--start", "sleep 60", status=1)
    refused("ended with status 3", "--start", "exit 3", "-a", "127.0.0.1:9", status=1)
    refused("does not serve after 1 s", "--start", "sleep 60", "--start-timeout", "1", "-a",
            "127.0.0.1:9", status=1)


# ---- ends ----

def test_interrupt_prints_what_there_is(cluster):
    with Bench(cluster) as bench:
        process = bench.popen("-n", "64", "--ignore-eos", "-r", "9000", "--sweep", "K=0,2")
        try:
            wait_until(lambda: bench.has_rows(3), 20, "there are rows")
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=bound(5))
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 130 and errors == "outrider: interrupted\n", errors
        assert "K=0" in out and "K=2" in out and len(bench.rows()) >= 3, out


def test_coordinator_that_dies_ends_it(cluster):
    with Cluster(cluster.build, target=SLOW_MODEL, draft=None,
                 coordinator_flags=["--queue", "1"]) as other, Bench(other) as bench:
        # Beside those that are served one may wait, and the engine takes all that wait between two
        # steps: of so many that come at once some find the queue full.
        full = bench.run("-n", "8", "-c", "12", "--warmup", "0", "--prompt-tokens", "4", status=1)
        [row] = bench.rows()
        assert row["requests"] + row["failures"] == 12 and row["failures"] >= 1, row
        assert "too many requests are waiting" in full.stderr, full.stderr
        process = bench.popen("-n", "2000", "--warmup", "0", "--requests", "50")
        try:
            wait_until(lambda: json.loads(other.outrider("describe", "--json").stdout)["load"]
                       ["running"] == 1, 20, "the first request runs")
            assert process.poll() is None
            os.kill(other.coordinator.pid, signal.SIGKILL)
            out, errors = process.communicate(timeout=bound(10))
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 1 and "is not available" in errors, errors
        assert "1 of 1 requests failed" in errors, (out, errors)


def started(bench, n_ranks, *args):
    """Options for a cluster that bench starts itself."""
    run = os.path.join(SOURCE, "deploy", "local", "run")
    return ["-a", f"unix:{bench.folder}/c", "--start",
            f"exec {run} --serve -T {n_ranks} --listen {{address}} --port 0"
            f" 2>>{bench.folder}/serve.log", *args]


def test_clusters_are_started_for_each_number_of_ranks(cluster):
    with Bench(cluster) as bench:
        bench.run(*started(bench, "{T}", "--sweep", "T=1,2,K=0,3", "-r", "2", "-n", "12",
                           "--prompts", bench.prompts, *GREEDY),
                  environment={"OUTRIDER_BUILD": cluster.build, "TMPDIR": bench.folder})
        rows = bench.rows()
        assert [(row["T"], row["K"]) for row in rows] == [
            (1, 0), (1, 3), (2, 0), (2, 3), (2, 3), (2, 0), (1, 3), (1, 0)]
        assert all(row["requests"] == 1 and row["speedup"] for row in rows)
        assert len({row["rounds"] for row in rows if row["K"] == 3}) <= 2, "one text per prompt"
        assert not [name for name in os.listdir(bench.folder) if name.startswith("outrider.")]


class Far(FarRanks, Cluster):
    """A step takes so long that a pair is not measured for seconds."""
    delay_s = 0.15


def test_cluster_that_serves_is_used_although_it_is_not_measured_in_time(cluster):
    ended = threading.Event()

    def keep_busy(far, address):
        """A long text, as soon as there is who serves it: nothing is measured meanwhile."""
        while not ended.wait(0.1):
            far.outrider("generate", "Once", "-a", address, "-n", "960", "-K", "0", *GREEDY,
                         timeout=300)

    with Bench(cluster) as bench, Far(cluster.build) as far:
        far.coordinator.stop()
        program = os.path.join(cluster.build, "bin", "outrider-coordinator")
        address, log = f"unix:{bench.folder}/c", os.path.join(bench.folder, "log")
        client = threading.Thread(target=keep_busy, args=(far, address))
        client.start()
        try:
            bench.run("-a", address, "--start",
                      f"exec {program} --target {','.join(far.worker_addresses)}"
                      f" --draft {far.draft} --listen {address} >{log} 2>&1",
                      "--start-timeout", "15", "-r", "1", "-n", "4", "--prompts", bench.prompts,
                      "--warmup", "0", *GREEDY)
        finally:
            ended.set()
            client.join()
        with open(log, encoding="utf-8") as file:
            assert " measured " not in file.read()
        [row] = bench.rows()
        assert (row["requests"], row["failures"]) == (1, 0), row


def ends_all(cluster, bench, signal_number):
    """The exit status after the signal; the whole cluster must be gone."""
    environment = {"OUTRIDER_BUILD": cluster.build, "TMPDIR": bench.folder}
    os.environ.update(environment)
    process = bench.popen(*started(bench, 2, "-r", "9000", "-n", "64", "--ignore-eos"))
    try:
        wait_until(lambda: bench.has_rows(1), 30, "there is a row")
        family = descendants(process.pid)
        assert len(family) >= 5, family  # run, mpirun, two ranks, coordinator
        process.send_signal(signal_number)
        process.communicate(timeout=bound(10))
        wait_until(lambda: not any(is_alive(pid) for pid in family), 5, "all are gone")
    finally:
        process.kill()
        process.wait()
        for name in environment:
            del os.environ[name]
    return process.returncode


def test_terminated_it_leaves_nobody(cluster):
    with Bench(cluster) as bench:
        assert ends_all(cluster, bench, signal.SIGTERM) == 130


def test_killed_it_leaves_nobody(cluster):
    with Bench(cluster) as bench:
        assert ends_all(cluster, bench, signal.SIGKILL) == -signal.SIGKILL


if __name__ == "__main__":
    build = os.path.abspath(sys.argv[1])
    sys.exit(run_all(build, sys.argv[2] if len(sys.argv) > 2 else "", globals()))
