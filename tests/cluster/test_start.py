#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=300
"""How ranks start: threads and CPUs that are chosen or asked for, packed weights found again, and
requests that come before a new pair is measured.

Usage: test_start.py BUILD_FOLDER
"""
import glob
import json
import os
import re
import shutil
import tempfile
import sys
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import TALES, free_ports, wait_until
from far_cluster import FarRanks
from fault_util import FaultTest, World, main, program, run

TARGET, DRAFT = os.path.join(TALES, "target"), os.path.join(TALES, "draft")
WORKER, COORDINATOR = program("outrider-worker"), program("outrider-coordinator")
CPUS = sorted(os.sched_getaffinity(0))
PROMPT = ("generate", "Once upon a time", "-n", "12", "--temperature", "0")


def ready(world, name="workers"):
    """The ready lines as dictionaries, by rank."""
    lines = re.findall(r" ready (.*)", world.logs()[f"{name}.log"])
    fields = [dict(re.findall(r"(\w+)=(\S+)", line)) for line in lines]
    return sorted(fields, key=lambda f: int(f.get("rank", 0)))


def threads(pid):
    """(name, CPUs) of every thread of a process; the first is a rank's engine thread."""
    found = []
    for task in sorted(os.listdir(f"/proc/{pid}/task"), key=int):
        with open(f"/proc/{pid}/task/{task}/status", encoding="utf-8") as file:
            text = file.read()
        name = re.search(r"^Name:\s+(.+)", text, re.M).group(1)
        found.append((name, re.search(r"^Cpus_allowed_list:\s+(\S+)", text, re.M).group(1)))
    return found


def text(world):
    done = world.outrider(*PROMPT)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


class Threads(FaultTest):
    def test_lone_rank_takes_the_cores_and_is_not_pinned(self):
        with World(draft=None) as world:
            line = ready(world)[0]
            self.assertLessEqual(int(line["threads"]), len(CPUS) - (len(CPUS) > 4))
            self.assertEqual(line["pin"], "off")
            for name, cpus in threads(world.workers.pid):
                self.assertEqual(cpus, threads(os.getpid())[0][1], name)
            self.check_logs(world)

    def test_list_is_kept_and_only_by_compute_threads(self):
        pins = ",".join(str(cpu) for cpu in CPUS[::-1][:2])
        n = len(CPUS[::-1][:2])
        with World(worker_flags=("--pin", pins),
                   coordinator_flags=("--pin", str(CPUS[-1]))) as world:
            self.assertEqual((ready(world)[0]["threads"], ready(world)[0]["pin"]), (str(n), pins))
            self.assertEqual(ready(world, "coordinator")[0]["pin"], str(CPUS[-1]))
            engine, *others = threads(world.workers.pid)
            self.assertEqual(engine[1], pins.split(",")[0])
            compute = [cpus for name, cpus in others if name.startswith("compute-")]
            self.assertEqual(compute, pins.split(",")[1:])
            open_mask = threads(os.getpid())[0][1]
            for name, cpus in others:
                if not name.startswith("compute-"):
                    self.assertEqual(cpus, open_mask, name)
            self.assertEqual(dict(threads(world.coordinator.pid))["engine 0"], str(CPUS[-1]))
            self.check_logs(world)

    def test_ranks_of_one_mpirun_take_different_cores(self):
        with World(n_ranks=2, draft=None) as world:
            lines = ready(world)
            if len(CPUS) < 2 or any(line["pin"] == "off" for line in lines):
                self.skipTest("not a core for each rank, or a quota")
            pids = world.rank_pids()
            if any(line["pin"].startswith("within:") for line in lines):
                # With cores left over each rank may run on the caches of its share.
                for rank, line in enumerate(lines):
                    within = line["pin"].removeprefix("within:")
                    for name, cpus in threads(pids[rank]):
                        if name.startswith("compute-"):
                            self.assertEqual(cpus, within, name)
                    self.assertEqual(threads(pids[rank])[0][1], within)
                self.check_logs(world)
                return
            taken = [threads(pids[rank])[0][1] for rank in (0, 1)]
            self.assertEqual([line["pin"].split(",")[0] for line in lines], taken)
            everyone = [cpu for line in lines for cpu in line["pin"].split(",")]
            self.assertEqual(len(everyone), len(set(everyone)))
            self.check_logs(world)

    def test_pinning_can_be_left_out(self):
        with World(n_ranks=2, draft=None, worker_flags=("--pin", "off", "--threads", "2")) as world:
            for line in ready(world):
                self.assertEqual((line["threads"], line["pin"]), ("2", "off"))
            self.check_logs(world)


class FarWorld(FarRanks, World):
    """All measurements of a new pair take a second or more, on every machine."""
    delay_s = 0.05


class VeryFarWorld(FarRanks, World):
    """A round takes longer than the pause without requests after which a pair is measured."""
    delay_s = 0.15


class Measured(FaultTest):
    """A new pair is measured while the group serves."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="outrider-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def start(self, kind=FarWorld, **options):
        """A group that is just about to come."""
        self.worker_port = free_ports(1)
        world = kind(http=True, worker_flags=["--drain-timeout", "60", "--metrics",
                                              f"127.0.0.1:{self.worker_port}"],
                     coordinator_flags=("--pack-cache", self.folder), **options)
        self.world = world
        self.addCleanup(world.leave)
        world.start_workers()
        world.start_coordinator()
        return world

    def ask(self, world, n=12):
        """The text of a request, or None while nobody serves."""
        body = {"prompt": PROMPT[1], "max_tokens": n, "temperature": 0}
        request = urllib.request.Request(f"{world.url}/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["choices"][0]["text"]
        except OSError:
            time.sleep(0.01)
            return None

    def first_text(self, world):
        return wait_until(lambda: self.ask(world), 60, "the first request is served")

    @staticmethod
    def metric(url, name):
        with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
            page = answer.read().decode()
        return int(float(re.search(rf"^outrider_{name}(?:{{.*}})? (\S+)$", page, re.M)[1]))

    def gauge(self, world):
        return self.metric(world.url, "group_measured")

    def measured_steps(self, world):
        """Steps of the rank that no round has asked for."""
        n_rounds = self.metric(world.url, "round_seconds_count")
        steps = self.metric(f"http://127.0.0.1:{self.worker_port}", "worker_step_seconds_count")
        return steps - n_rounds

    def kept(self):
        return glob.glob(f"{self.folder}/times-*.json")

    @staticmethod
    def sizes(path):
        with open(path, encoding="utf-8") as file:
            times = json.load(file)
        return {name: [point[0] for point in times[name]] for name in ("draft", "step")}

    def test_requests_come_before_measurements_and_what_is_measured_is_kept(self):
        world = self.start()
        first = self.first_text(world)
        # It takes a second at least, of moments without requests.
        self.assertNotIn(" measured ", world.logs()["coordinator.log"])
        self.assertEqual(self.kept(), [])
        texts = []
        while not world.is_measured():
            if len(texts) < 4:
                texts.append(self.ask(world))
            time.sleep(0.15)
        self.assertEqual(self.gauge(world), 1)
        self.assertEqual(texts + [self.ask(world)], [first] * (len(texts) + 1))
        sizes = self.sizes(*self.kept())
        for name in ("draft", "step"):
            self.assertTrue({1, 2} <= set(sizes[name]), sizes)  # a busy machine takes no more
        self.check_logs(world)
        world.stop()

        again = self.start()
        again.wait_serving()
        self.assertTrue(again.is_measured())
        self.assertEqual(self.gauge(again), 1)
        self.assertEqual(self.first_text(again), first)
        self.assertNotIn(" measured ", again.logs()["coordinator.log"])
        self.assertEqual(len(self.kept()), 1)

    def test_requests_that_follow_each_other_meet_no_measurement(self):
        world = self.start(VeryFarWorld, draft=None)
        self.first_text(world)
        # One client; a busy machine may keep it from its next request for long, but not always.
        before = self.measured_steps(world)
        for _ in range(4):
            self.assertIsNotNone(self.ask(world, 1))
        self.assertLess(self.measured_steps(world) - before, 4)
        # Two clients, each of which asks while a round of the other one is running.
        clients = [threading.Thread(target=lambda: [self.ask(world, 1) for _ in range(4)])
                   for _ in range(2)]
        before = self.measured_steps(world)
        for client in clients:
            client.start()
            time.sleep(VeryFarWorld.delay_s)
        for client in clients:
            client.join()
        self.assertLessEqual(self.measured_steps(world) - before, 2)
        self.assertEqual(self.gauge(world), 0)
        self.check_logs(world)

    def test_coordinator_that_ends_while_it_measures_keeps_nothing_and_says_nothing(self):
        world = self.start()
        self.first_text(world)
        time.sleep(0.3)  # most likely within a measurement
        log = world.logs()["coordinator.log"]
        if " measured " in log:
            self.skipTest("all was measured within a moment")
        self.assertEqual(world.coordinator.stop(), 0)
        ended = world.logs()["coordinator.log"][len(log):]
        self.assertNotRegex(ended, r" (warn|error) ")
        self.assertEqual(self.kept(), [])

    def test_group_that_is_let_go_while_it_is_measured_is_measured_anew(self):
        world = self.start()
        first = self.first_text(world)
        self.assertEqual(world.workers.stop(60), 0)
        log = world.logs()["coordinator.log"]
        self.assertIn(" target_leaving ", log)
        self.assertNotIn(" target_lost ", log)
        world.start_workers()
        wait_until(lambda: world.is_serving() and world.is_measured(), 60,
                   "the new group is measured")
        self.assertEqual(self.ask(world), first)
        self.assertEqual(len(self.kept()), 1)


class PackedWeights(FaultTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="outrider-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def test_same_text_from_packed_files_one_for_each_rank(self):
        texts = []
        flags = ("--pack-cache", os.path.join(self.folder, "packed"))
        for state, more in (("off", ()), ("written", flags), ("hit", flags)):
            with World(n_ranks=2, worker_flags=more,
                       coordinator_flags=("--pack-cache", self.folder)) as world:
                self.assertEqual([line["pack_cache"] for line in ready(world)], [state] * 2)
                texts.append(text(world))
                self.check_logs(world)
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(texts[0], texts[2])
        self.assertEqual(len(os.listdir(os.path.join(self.folder, "packed"))), 2)

    def test_models_stored_in_integers_are_kept_too(self):
        model = os.path.join(self.folder, "int4")
        status, output = run(program("outrider"), "export", "--quiet", "--weights", "int4", TARGET,
                             model, timeout=60)
        self.assertEqual(status, 0, output)
        texts = []
        for state in ("written", "hit"):
            with World(n_ranks=2, target=model, worker_flags=("--pack-cache", "auto")) as world:
                self.assertEqual([line["pack_cache"] for line in ready(world)], [state] * 2)
                self.assertEqual(ready(world)[0]["arithmetic"], "cpu-int4")
                texts.append(text(world))
                self.check_logs(world)
        self.assertEqual(texts[0], texts[1])

    def test_broken_file_is_told_and_replaced(self):
        flags = ("--pack-cache", self.folder)
        with World(draft=None, worker_flags=flags) as world:
            first = text(world)
        path = os.path.join(self.folder, os.listdir(self.folder)[0])
        with open(path, "r+b") as file:
            file.truncate(5000)
        with World(draft=None, worker_flags=flags) as world:
            self.assertEqual(ready(world)[0]["pack_cache"], "written")
            self.assertIn("has 5000 bytes and says", world.logs()["workers.log"])
            self.assertEqual(text(world), first)
        with World(draft=None, worker_flags=flags) as world:
            self.assertEqual(ready(world)[0]["pack_cache"], "hit")
            self.assertEqual(text(world), first)


class Refusals(FaultTest):
    def test_options(self):
        for prog, base in ((WORKER, ("--model", DRAFT, "--listen", "unix:/tmp/outrider-nobody")),
                           (COORDINATOR, ("--target", "unix:/tmp/outrider-nobody",
                                          "--draft", DRAFT))):
            for arguments, word in {("--pin", "x"): "'x'", ("--pin", ""): "--pin",
                                    ("--pin", "0,,1"): "'0,,1'", ("--pack-cache", ""): "folder",
                                    ("--threads", "some"): "'some'"}.items():
                with self.subTest((prog, arguments)):
                    self.check_usage(*run(prog, *base, *arguments), word)
            for arguments, words in {("--pin", "1023"): "CPU 1023",
                                     ("--pin", f"{CPUS[0]},{CPUS[0]}"): "twice",
                                     ("--pin", str(CPUS[0]),
                                      "--threads", "2"): "2 threads"}.items():
                with self.subTest((prog, arguments)):
                    self.check_refusal(*run(prog, *base, *arguments), words)
        self.check_refusal(*run(WORKER, "--model", DRAFT, "--listen", "unix:/tmp/outrider-nobody",
                                "--device", "cuda", "--pack-cache", "x"), "--pack-cache x")


if __name__ == "__main__":
    main(at_once=4)
