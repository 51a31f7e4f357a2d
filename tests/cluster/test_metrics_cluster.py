#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=300
"""/metrics of coordinator and workers, the log's lines about work, the dashboard and the rules, on
a real cluster. promtool reads the pages and the rules; a real Prometheus scrapes the cluster under
load and answers every expression of deploy/grafana and deploy/prometheus. Skipped (77) where
prometheus or grpcio is not installed.

    test_metrics_cluster.py BUILD [Class]"""
import glob
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from rpc_python import Caller, field
import skips
from cluster import SOURCE, Cluster, ClusterError, Program, free_ports, wait_until

BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "build/release"
RULES = os.path.join(SOURCE, "deploy", "prometheus")
DASHBOARD = os.path.join(SOURCE, "deploy", "grafana", "outrider.json")
PATIENCE_S = 60
N_RANKS = 2
LOADERS = 3
SECRET = "Xylophone"  # a word of prompts, which no log may hold
TRACE = "0af7651916cd43dd8448eb211c80319c"
VLLM_ALONE = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc",
              "prefix_cache_queries_total", "prefix_cache_hits_total", "num_preemptions_total",
              "prompt_tokens_total", "generation_tokens_total", "request_success_total",
              "time_to_first_token_seconds_bucket", "inter_token_latency_seconds_bucket",
              "e2e_request_latency_seconds_bucket", "request_queue_time_seconds_bucket",
              "request_prefill_time_seconds_bucket", "request_decode_time_seconds_bucket",
              "request_prompt_tokens_bucket", "request_generation_tokens_bucket",
              "spec_decode_num_drafts_total", "spec_decode_num_draft_tokens_total",
              "spec_decode_num_accepted_tokens_total",
              "spec_decode_num_accepted_tokens_per_pos_total", "cache_config_info")


def fetch(port, path="/metrics", **options):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", **options)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


def series(page):
    """{(name, labels): value} of a page, the labels as a frozenset of texts."""
    found = {}
    for line in page.splitlines():
        if line.startswith("#"):
            continue
        name, labels, value = re.fullmatch(r"([a-zA-Z_:]\w*(?::\w+)?)(?:\{(.*)\})? (\S+)",
                                           line).groups()
        key = name, frozenset(re.findall(r'\w+="(?:[^"\\]|\\.)*"', labels or ""))
        assert key not in found, line
        found[key] = float(value)
    return found


def total(page, name, *labels):
    """The sum of the series of this name that have these labels."""
    values = [value for (found, has), value in series(page).items()
              if found == name and has.issuperset(labels)]
    assert values, f"{name} {labels} is not there"
    return sum(values)


class World:
    """A cluster with /metrics everywhere."""

    def __init__(self, **options):
        first = free_ports(N_RANKS + 1)
        self.port = first + N_RANKS
        self.worker_ports = [first + rank for rank in range(options.get("n_ranks", 1))]
        coordinator = ["--metrics", f"127.0.0.1:{self.port}", *options.pop("flags", [])]
        self.cluster = Cluster(BUILD, coordinator_flags=coordinator,
                               worker_flags=["--metrics", f"127.0.0.1:{first}"], **options)

    def __enter__(self):
        self.cluster.__enter__()
        return self

    def __exit__(self, *failure):
        self.cluster.__exit__(*failure)

    def page(self):
        return fetch(self.port)

    def generate(self, prompt="Once upon a time", *more):
        done = self.cluster.outrider("generate", prompt, "--json", *more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def log_lines(self):
        """The coordinator's log, one object for each line."""
        return [json.loads(line) for line in self.cluster.coordinator.log().splitlines()]

    def events(self, name):
        return [line for line in self.log_lines() if line["event"] == name]


class Load:
    """Clients that ask again and again."""

    def __init__(self, world, n=LOADERS):
        self.world = world
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(n)]

    def run(self, number):
        while not self.is_over.is_set():
            self.world.generate(f"Once upon a time there were {number}", "-n", "120")

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *failure):
        self.is_over.set()
        for thread in self.threads:
            thread.join()


def promtool(*args, text=None):
    return subprocess.run(["promtool", *args], input=text, capture_output=True, text=True,
                          timeout=PATIENCE_S)


class Pages(unittest.TestCase):
    def test_promtool_accepts_both_pages_under_load(self):
        with World(n_ranks=N_RANKS) as world, Load(world):
            wait_until(lambda: total(world.page(), "outrider_generation_tokens_total") > 0,
                       PATIENCE_S, "tokens are counted")
            for port in [world.port, *world.worker_ports]:
                done = promtool("check", "metrics", text=fetch(port))
                self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""), port)

    def test_counts_are_those_that_clients_are_told(self):
        with World(n_ranks=N_RANKS) as world:
            done = [world.generate(f"The {word} went home", "-n", "40", "--strategy", strategy)
                    for word in ("cat", "dog") for strategy in ("fixed", "planned")]
            wait_until(lambda: total(world.page(), "outrider_num_requests_running") == 0,
                       PATIENCE_S, "nothing runs")
            page = world.page()
            self.check_requests(page, done)
            self.check_guesses(page, done)
            self.check_workers(world, page)

    def check_requests(self, page, done):
        n_completion = sum(d["completion_tokens"] for d in done)
        self.assertEqual(total(page, "outrider_prompt_tokens_total"),
                         sum(d["prompt_tokens"] for d in done))
        self.assertEqual(total(page, "outrider_generation_tokens_total"), n_completion)
        self.assertEqual(total(page, "outrider_request_generation_tokens_sum"), n_completion)
        self.assertEqual(total(page, "outrider_time_to_first_token_seconds_count"), len(done))
        self.assertEqual(total(page, "outrider_e2e_request_latency_seconds_count"), len(done))
        self.assertEqual(total(page, "outrider_job_ends_total"), len(done))
        self.assertEqual(total(page, "outrider_request_success_total"), len(done))
        self.assertEqual(total(page, "outrider_num_requests_waiting"), 0)
        self.assertEqual(total(page, "outrider_target_up"), 1)
        parts = sum(total(page, f"outrider_request_{part}_time_seconds_sum")
                    for part in ("queue", "prefill", "decode"))
        self.assertAlmostEqual(parts, total(page, "outrider_e2e_request_latency_seconds_sum"), 5)

    def check_guesses(self, page, done):
        counters = [d["counters"] for d in done]
        for name, key in (("spec_decode_num_draft_tokens_total", "drafted"),
                          ("spec_decode_num_accepted_tokens_total", "accepted"),
                          ("draft_length_tokens_count", "rounds")):
            self.assertEqual(total(page, f"outrider_{name}"), sum(c[key] for c in counters), name)
        self.assertEqual(total(page, "outrider_spec_decode_num_accepted_tokens_per_pos_total"),
                         total(page, "outrider_spec_decode_num_accepted_tokens_total"))

    def check_workers(self, world, page):
        n_steps = total(page, "outrider_round_seconds_count")
        for rank, port in enumerate(world.worker_ports):
            own = fetch(port)
            labels = f'rank="{rank}"', f'ranks="{N_RANKS}"'
            # The calibration's steps are a worker's, too, but no rounds.
            self.assertGreaterEqual(total(own, "outrider_worker_step_seconds_count", *labels),
                                    n_steps)
            self.assertGreater(total(own, "outrider_worker_kv_blocks_written"), 0)
            for name in ("steps_refused", "lanes_refused", "bad_messages", "lost_replies"):
                self.assertEqual(total(own, f"outrider_worker_{name}_total"), 0, name)

    def test_vllm_names_come_by_option_with_the_same_values(self):
        with World(flags=["--metrics-vllm", "--served-name", 'tales "1"']) as world:
            world.generate("Once", "-n", "20")
            found = series(world.page())
            names = {name for name, _ in found if name.startswith("vllm:")}
            for name in VLLM_ALONE:
                self.assertIn("vllm:" + name, names)
            for (name, labels), value in found.items():
                self.assertTrue('model_name="tales \\"1\\""' in labels or
                                name.startswith("process_"), name)
                if name.startswith("vllm:"):
                    self.assertEqual(found["outrider_" + name[5:], labels], value, name)

    def test_the_http_door_has_the_same_page(self):
        with World(http=True, flags=["--metrics-vllm"]) as world:
            world.generate("Once", "-n", "20")
            wait_until(lambda: total(world.page(), "outrider_num_requests_running") == 0,
                       PATIENCE_S, "nothing runs")
            own, door = series(world.page()), series(fetch(int(world.cluster.http.split(":")[1])))
            self.assertEqual(own.keys(), door.keys())
            moving = {key for key in own if key[0].startswith("process_")}
            for key in own.keys() - moving:
                self.assertEqual(own[key], door[key], key)

    def test_there_is_a_page_while_there_is_no_group(self):
        with World() as world:
            world.generate("Once", "-n", "4")
            world.cluster.workers.stop()
            wait_until(lambda: total(world.page(), "outrider_target_up") == 0, PATIENCE_S,
                       "the loss is seen")
            self.assertEqual(total(world.page(), "outrider_target_connects_total"), 1)
            world.cluster.start_workers()
            wait_until(lambda: total(world.page(), "outrider_target_connects_total") == 2,
                       PATIENCE_S, "the group is back")

    def test_other_paths_and_methods_are_refused(self):
        with World() as world:
            for status, path, method in ((404, "/", "GET"), (404, "/metric", "GET"),
                                         (405, "/metrics", "POST"), (405, "/health", "POST")):
                with self.assertRaises(urllib.error.HTTPError) as failure:
                    fetch(world.port, path, method=method)
                self.assertEqual(failure.exception.code, status)
                self.assertIn("/metrics", failure.exception.read().decode())

    def test_probes_are_answered_while_the_door_is_full(self):
        with World(http=True, flags=["--http-connections", "4"]) as world:
            port = int(world.cluster.http.split(":")[1])
            taken = []
            for _ in range(4):  # each with a request under way, so that none is idle
                taken.append(socket.create_connection(("127.0.0.1", port)))
                taken[-1].sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                                  b"Content-Length: 100\r\n\r\n{")
                time.sleep(0.2)
            with socket.create_connection(("127.0.0.1", port)) as late:
                late.settimeout(1)
                late.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                with self.assertRaises(TimeoutError):
                    late.recv(4096)
            self.assertEqual(fetch(world.port, "/health"), "alive\n")
            self.assertEqual(fetch(world.port, "/ready"), "ready\n")
            self.assertEqual(fetch(world.worker_ports[0], "/health"), "alive\n")
            world.cluster.workers.stop()
            wait_until(lambda: self.status(world.port, "/ready") == 503, PATIENCE_S, "not ready")
            self.assertEqual(fetch(world.port, "/health"), "alive\n")
            for connection in taken:
                connection.close()

    @staticmethod
    def status(port, path):
        try:
            fetch(port, path)
            return 200
        except urllib.error.HTTPError as failure:
            return failure.code

    def test_an_address_that_cannot_be_used_is_named(self):
        for program, option in (("outrider-worker", "--model"), ("outrider-coordinator", "")):
            more = ["--model", "synthetic:tiny,seed=1", "--listen", "127.0.0.1:0"] if option else [
                "--target", "127.0.0.1:1", "--draft", "synthetic:tiny,seed=1", "--listen",
                "127.0.0.1:0"]
            done = subprocess.run([os.path.join(BUILD, "bin", program), *more, "--metrics",
                                   "nowhere.invalid:1"], capture_output=True, text=True,
                                  timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("nowhere.invalid", done.stderr)


class Logs(unittest.TestCase):
    def test_each_request_has_one_line_with_its_ids_and_nothing_of_its_text(self):
        with World(flags=["--log-format", "json", "--log-load", "1"]) as world:
            done = world.generate(f"{SECRET} player", "-n", "30", "--ignore-eos",
                                  "--request-id", "mine 1", "--client", "ann/a")
            self.call(world, (("x-request-id", 'from "the" header'),
                              ("traceparent", f"00-{TRACE}-b7ad6b7169203331-01")))
            self.call(world, (("traceparent", f"00-{TRACE.upper()}-b7ad6b7169203331-01"),))
            world.cluster.outrider("score", SECRET)
            lines = wait_until(lambda: len(world.events("job_end")) == 4 and
                               world.events("job_end"), PATIENCE_S, "four jobs are logged")
            self.check_own(lines[0], done)
            self.assertEqual(lines[1]["request_id"], "from__the__header")
            self.assertEqual(lines[1]["trace_id"], TRACE)
            self.assertNotIn("trace_id", lines[2])
            self.assertRegex(lines[2]["request_id"], "^gen-[0-9a-f]{16}$")
            self.assertEqual((lines[3]["kind"], lines[3]["end"]), ("score", "answered"))
            load = wait_until(lambda: world.events("load"), PATIENCE_S, "figures are logged")
            self.assertGreater(load[0]["tokens_per_s"], 0)
            self.assertNotIn(SECRET, world.cluster.coordinator.log())
            self.assertNotIn(done["text"], world.cluster.coordinator.log())

    def test_ids_come_over_http_too(self):
        with World(http=True, flags=["--log-format", "json"]) as world:
            body = json.dumps({"model": "target", "prompt": SECRET, "max_tokens": 5}).encode()
            headers = {"Content-Type": "application/json", "X-Request-Id": "over-http",
                       "traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
            fetch(int(world.cluster.http.split(":")[1]), "/v1/completions", method="POST",
                  data=body, headers=headers)
            line = wait_until(lambda: world.events("job_end"), PATIENCE_S, "the job is logged")[0]
            self.assertEqual((line["request_id"], line["trace_id"]), ("over-http", TRACE))
            self.assertNotIn(SECRET, world.cluster.coordinator.log())

    def call(self, world, metadata):
        """A request whose answer is not read, with headers."""
        caller = Caller(world.cluster.address)
        request = field(1, SECRET) + field(3, 5)
        list(caller.channel.unary_stream("/outrider.generation.v1.Generation/Generate")(
            request, timeout=PATIENCE_S, metadata=metadata))
        caller.close()

    def check_own(self, line, done):
        self.assertEqual(line["level"], "info")
        self.assertEqual((line["request_id"], line["client"]), ("mine 1", "ann/a"))
        self.assertEqual((line["kind"], line["end"]), ("generate", "length"))
        self.assertEqual(line["prompt_tokens"], done["prompt_tokens"])
        self.assertEqual(line["tokens"], done["completion_tokens"])
        self.assertEqual(line["rounds"], done["counters"]["rounds"])
        self.assertLess(0, line["first_token_ms"])
        self.assertLess(line["first_token_ms"], line["total_ms"])
        self.assertNotIn("reason", line)

    def test_submitted_jobs_have_their_id(self):
        with World(flags=["--log-format", "json"]) as world:
            done = world.cluster.outrider("jobs", "submit", "-", timeout=PATIENCE_S,
                                          stdin='{"prompt": "Once", "max_tokens": 5}\n')
            self.assertEqual(done.returncode, 0, done.stderr)
            line = wait_until(lambda: world.events("job_end"), PATIENCE_S, "the job is logged")[0]
            self.assertEqual(line["stored_id"], json.loads(done.stdout)["id"])
            self.assertEqual(total(world.page(), "outrider_stored_jobs"), 1)

    def test_options_that_were_removed_are_taken_and_noted(self):
        with World(flags=["--log-format", "json", "--half-batches", "on"],
                   environment={"OUTRIDER_COORDINATOR_DRAFT_AHEAD": "auto"}) as world:
            lines = wait_until(lambda: world.events("option_removed"), PATIENCE_S, "they are noted")
            self.assertEqual([(line["level"], line["option"]) for line in lines],
                             [("warn", "--draft-ahead"), ("warn", "--half-batches")])
            self.assertEqual(world.generate("Once", "-n", "5")["completion_tokens"], 5)

    def test_only_failures_are_logged_without_log_jobs(self):
        flags = ["--log-format", "json", "--log-jobs", "off", "--log-load", "0"]
        with World(flags=flags, environment={"OUTRIDER_WORKER_KERNELS": "plain"}) as world:
            world.generate("Once", "-n", "5")
            client = world.cluster.popen("generate", "Once", "-n", "900", "--ignore-eos", "-K", "0",
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_until(lambda: total(world.page(), "outrider_num_requests_running") == 1,
                       PATIENCE_S, "it runs")
            world.cluster.workers.stop()
            client.wait(PATIENCE_S)
            lines = wait_until(lambda: world.events("job_end"), PATIENCE_S, "its end is logged")
            self.assertEqual([(line["level"], line["end"]) for line in lines],
                             [("warn", "unavailable")])
            self.assertTrue(lines[0]["text"])
            self.assertEqual(world.events("load"), [])


class Prometheus:
    """A real one that scrapes a world with the rules of deploy/."""

    def __init__(self, world):
        self.folder = tempfile.mkdtemp(prefix="outrider-prometheus-")
        self.port = free_ports(1)
        for path in glob.glob(os.path.join(RULES, "*.yaml")):
            shutil.copy(path, self.folder)
        with open(os.path.join(RULES, "prometheus.yaml"), encoding="utf-8") as file:
            config = file.read()
        workers = ", ".join(f'"127.0.0.1:{port}"' for port in world.worker_ports)
        config = config.replace('"127.0.0.1:9470"', f'"127.0.0.1:{world.port}"')
        config = config.replace('"127.0.0.1:9471"', workers)
        config = re.sub(r"(scrape|evaluation)_interval: \d+s", r"\1_interval: 1s", config)
        path = os.path.join(self.folder, "prometheus.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(config)
        self.program = Program("prometheus", [
            "prometheus", f"--config.file={path}", f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}"],
            os.path.join(self.folder, "prometheus.log"), {})

    def __enter__(self):
        wait_until(self.is_ready, PATIENCE_S, "prometheus is ready")
        return self

    def __exit__(self, *failure):
        self.program.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def is_ready(self):
        if not self.program.is_alive():
            raise ClusterError(f"prometheus has ended: {self.program.log()}")
        try:
            return bool(fetch(self.port, "/-/ready"))
        except OSError:
            return False

    def ask(self, path, **query):
        text = fetch(self.port, f"/api/v1/{path}?{urllib.parse.urlencode(query)}")
        return json.loads(text)["data"]

    def values(self, expression):
        """The numbers that an expression has now, those that are no number left out."""
        result = self.ask("query", query=expression)
        pairs = ([result["result"]] if result["resultType"] == "scalar"
                 else [r["value"] for r in result["result"]])
        return [float(v) for _, v in pairs if math.isfinite(float(v))]


class Queries(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Every question is asked of the same cluster, while it has load."""
        cls.parts = []
        try:
            cls.world = cls.enter(World(n_ranks=N_RANKS))
            cls.enter(Load(cls.world))
            cls.prometheus = cls.enter(Prometheus(cls.world))
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def enter(cls, part):
        part.__enter__()
        cls.parts.append(part)
        return part

    @classmethod
    def tearDownClass(cls):
        while cls.parts:
            cls.parts.pop().__exit__(None, None, None)

    def check_all(self, expressions):
        """Each one gets an answer; rates need two scrapes, and some things happen rarely."""
        end, lacking = time.monotonic() + PATIENCE_S, list(expressions)
        while lacking and time.monotonic() < end:
            lacking = [e for e in lacking if not self.prometheus.values(e)]
            time.sleep(0.5 if lacking else 0)
        self.assertEqual(lacking, [])

    def test_every_query_of_the_dashboard_has_data(self):
        with open(DASHBOARD, encoding="utf-8") as file:
            panels = json.load(file)["panels"]
        expressions = [target["expr"] for panel in panels for target in panel.get("targets", [])]
        self.assertGreater(len(expressions), 50)
        self.check_all(e.replace("$__rate_interval", "20s").replace("$model", ".*")
                       for e in expressions)

    def test_every_rule_has_data_and_no_alert_is_without_a_limit(self):
        rules = [rule for group in self.prometheus.ask("rules")["groups"]
                 for rule in group["rules"]]
        sides = [re.fullmatch(r"(.*) (?:==|<|>) [\d.]+", rule["query"], re.S)
                 for rule in rules if rule["type"] == "alerting"]
        self.assertGreater(len(sides), 10)
        self.assertTrue(all(sides))
        self.check_all(side.group(1) for side in sides)
        self.check_all(rule["name"] for rule in rules if rule["type"] == "recording")

    def test_no_alert_that_matters_is_due_while_all_is_well(self):
        self.check_all(["up", "model:outrider_job_failures:ratio_rate5m"])
        due = [alert["labels"]["alertname"] for alert in self.prometheus.ask("alerts")["alerts"]
               if alert["state"] == "firing" or alert["labels"]["severity"] == "critical"]
        self.assertEqual(due, [])


class Rules(unittest.TestCase):
    def test_promtool_accepts_the_rules_and_the_example(self):
        for args in (("check", "rules", f"{RULES}/rules.yaml", f"{RULES}/alerts.yaml"),
                     ("check", "config", f"{RULES}/prometheus.yaml"),
                     ("test", "rules", f"{RULES}/alerts_test.yaml")):
            done = promtool(*args)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_alerts_test_names_every_alert(self):
        with open(f"{RULES}/alerts.yaml", encoding="utf-8") as file:
            alerts = re.findall(r"- alert: (\w+)", file.read())
        with open(f"{RULES}/alerts_test.yaml", encoding="utf-8") as file:
            tested = re.findall(r'alertname="(\w+)"', file.read())
        self.assertEqual(alerts, tested)


if __name__ == "__main__":
    skips.need("prometheus", "promtool", package="prometheus")
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
