#!/usr/bin/env python3
# ctest: labels=full libs=client timeout=300
"""A group whose ranks run on two hosts, under mpirun over ssh, and a coordinator on a third one.
The hosts are network namespaces (tests/support/hosts.py); their links are slow, lossy or cut.

Usage: test_hosts.py BUILD_FOLDER
"""
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import parallel_cases
from cluster import SOURCE, TALES, Cluster, bound, is_sanitized, wait_until
from hosts import DATA_NETWORK, Hosts, skip_unless_supported

BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
TARGET, DRAFT = os.path.join(TALES, "target"), os.path.join(TALES, "draft")
SCRIPTS = os.path.join(SOURCE, "deploy", "mpirun")
BIN = os.path.join(BUILD, "bin")
GREEDY = ("Once upon a time", "--temperature", "0")
SEEDED = ("Once upon a time", "--temperature", "0.8", "--seed", "11")
LONG = ("--ignore-eos",)
# Ranks of several hosts share two cores here.
ENVIRONMENT = {"MPIRUN_FLAGS": "--mca mpi_yield_when_idle 1"}
N_TOKENS, N_LOSSY = 24, 160
LOST = re.compile("lost rank|not there|not available")
CLEAR_SECONDS, HEAL_SECONDS, START_SECONDS = 5, 60, 60
# With a sanitizer all is several times as slow.
CLEAR_SECONDS *= 3 if is_sanitized(BUILD) else 1


def generate(run, what, *more, n=N_TOKENS):
    done = run("generate", *what, "-n", str(n), "--json", *more)
    if done.returncode:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def texts_of_one_host():
    """Texts that the same models write on one host without any of this: texts[n] = greedy,
    seeded."""
    with Cluster(BUILD, n_ranks=1) as cluster:
        return {n: [generate(cluster.outrider, (*what, *more), n=n)["text"]
                    for what in (GREEDY, SEEDED)]
                for n, more in ((N_TOKENS, ()), (N_LOSSY, LONG))}


class World:
    """Ranks on node1 and node2, the coordinator on node3."""

    def __init__(self):
        self.hosts = Hosts(BUILD, 3)

    def __enter__(self):
        self.hosts.__enter__()
        try:
            self.start()
        except BaseException:
            self.hosts.print_logs()
            self.hosts.close()
            raise
        return self

    def __exit__(self, *why):
        self.hosts.__exit__(*why)

    def start(self):
        self.hostfile = self.hosts.write_hostfile([1, 1])
        self.group = self.start_group("group")
        addresses = [f"{a}:{7071 + i}" for i, a in enumerate(self.hosts.data[:2])]
        self.coordinator = self.hosts.start(
            2, "coordinator", f"{BIN}/outrider-coordinator", "--target", ",".join(addresses),
            "--draft", DRAFT, "--http", "off", "--drain-timeout", "0")
        wait_until(self.is_serving, START_SECONDS, "the group of two hosts serves")
        target = ",".join(addresses)
        assert f"outrider-coordinator --target {target}" in self.group.log(), self.group.log()

    def start_group(self, name, *more, network=DATA_NETWORK, model=TARGET, hostfile=None):
        return self.hosts.start(
            0, name, f"{SCRIPTS}/group", "--build", BUILD, "--hosts", hostfile or self.hostfile,
            "--network", network, "--model", model, "--insecure", *more, environment=ENVIRONMENT)

    def outrider(self, *args):
        return self.hosts.run(2, f"{BIN}/outrider", *args)

    def is_serving(self):
        return self.outrider("health").returncode == 0

    def state(self):
        return json.loads(self.outrider("describe", "--json").stdout)

    def is_lost(self):
        """The coordinator says so; a machine that is busy may be late with its health alone."""
        done = self.outrider("describe", "--json")
        return done.stdout and LOST.search(json.loads(done.stdout)["state"])


class Text(unittest.TestCase):
    """One after the other on the same hosts, because a start takes seconds."""

    def test_a_group_on_two_hosts(self):
        texts = texts_of_one_host()
        greedy = texts[N_TOKENS][0]
        with World() as world:
            for delay_s in (0, 0.0001, 0.001, 0.01):
                with self.subTest(delay_ms=delay_s * 1000):
                    self.check_texts(world, texts[N_TOKENS], delay_s, 0)
            with self.subTest("one frame in a thousand is lost"):
                lost = [self.check_texts(world, texts[N_LOSSY], 0.001, 0.001, *LONG, n=N_LOSSY)]
                while not lost[-1] and len(lost) < 4: # two texts lose six frames on average
                    lost.append(self.check_texts(world, texts[N_LOSSY], 0.001, 0.001, *LONG,
                                                 n=N_LOSSY))
                self.assertGreater(lost[-1], 0, "no frame was lost, so this has shown nothing")
            world.hosts.delay(0)
            world.hosts.loss(0)
            with self.subTest("a cut link between two ranks in a step"):
                self.check_cut_between_ranks(world, greedy)
            with self.subTest("a cut link between the coordinator and an idle rank"):
                self.check_cut_from_coordinator(world, greedy)
            with self.subTest("an idle group ends at once on all hosts"):
                self.check_end(world)
            with self.subTest("a group that is told to end finishes its text"):
                self.check_drain(world, texts[N_LOSSY][0])

    def check_texts(self, world, texts, delay_s, loss, *more, n=N_TOKENS):
        """Returns how many frames were lost."""
        world.hosts.delay(delay_s)
        world.hosts.loss(loss)
        passed, lost = world.hosts.count()
        done = generate(world.outrider, GREEDY, *more, n=n)
        self.assertEqual(done["text"], texts[0])
        seeded = generate(world.outrider, SEEDED, "-K", "3", *more, n=n)
        self.assertEqual(seeded["text"], texts[1])
        passed_now, lost_now = world.hosts.count()
        self.assertGreater(passed_now - passed, N_TOKENS, "the ranks did not use these links")
        estimates = world.state()["planner"]
        print(f"delay {delay_s * 1000:g} ms, loss {loss:g}: {done['tokens_per_second']:.1f} "
              f"tokens/s, the planner's step {estimates['step_us'] / 1000:.2f} ms, "
              f"{lost_now - lost} of {passed_now - passed} frames lost", flush=True)
        if delay_s >= 0.001: # a step has at least one sum over the ranks for each half layer
            self.assertGreater(estimates["step_us"], 1e6 * delay_s)
        return lost_now - lost

    def check_cut_between_ranks(self, world, greedy):
        busy = world.hosts.popen(2, f"{BIN}/outrider", "generate", "Once upon a time",
                                 "--ignore-eos", "-K", "0", stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, encoding="utf-8")
        world.hosts.delay(0.005) # so that it does not end too soon
        self.assertTrue(busy.stdout.read(16))
        world.hosts.cut(0, 1)
        start = time.monotonic()
        _, said = busy.communicate(timeout=bound(30))
        self.assertEqual(busy.returncode, 1)
        self.assertIn("the target group lost rank", said)
        self.assert_clear(world, start)
        # The next group sees that it cannot start.
        wait_until(lambda: "cannot reach node2 at 10.78.0.2" in world.group.log(), 30,
                   "the preflight names the two hosts")
        self.heal(world, greedy)

    def check_cut_from_coordinator(self, world, greedy):
        world.hosts.cut(1, 2)
        start = time.monotonic()
        wait_until(world.is_lost, 30, "the coordinator notices")
        self.assert_clear(world, start)
        self.heal(world, greedy)

    def assert_clear(self, world, start):
        self.assertFalse(world.is_serving())
        took = time.monotonic() - start
        print(f"not serving {took:.1f} s after the cut", flush=True)
        self.assertLessEqual(took, bound(CLEAR_SECONDS))
        self.assertRegex(world.state()["state"], LOST)

    def heal(self, world, greedy):
        world.hosts.heal()
        world.hosts.delay(0)
        start = time.monotonic()
        wait_until(world.is_serving, HEAL_SECONDS, "the group serves again")
        print(f"serving {time.monotonic() - start:.1f} s after the link is whole", flush=True)
        # The ranks that the coordinator has found again may be about to end.
        wait_until(lambda: world.outrider("generate", *GREEDY, "-n", "1").returncode == 0,
                   HEAL_SECONDS, "the group answers again")
        self.assertEqual(generate(world.outrider, GREEDY)["text"], greedy)

    def check_end(self, world):
        world.group.process.send_signal(signal.SIGTERM)
        self.assertEqual(world.group.wait(10), 143)
        on_node2 = world.hosts.run(1, "ss", "-Htln", "sport", "=", "7072")
        self.assertEqual(on_node2.stdout, "", "a rank still listens")
        self.assertNotIn("lost", world.group.log().rpartition("Forwarding")[2])

    def check_drain(self, world, text):
        """SIGTERM for the script, which mpirun passes on to the ranks of both hosts as SIGUSR1."""
        world.group = world.start_group("drained", "--drain-timeout", "60")
        wait_until(world.is_serving, START_SECONDS, "another group serves")
        world.hosts.delay(0.001) # so that the text takes seconds
        busy = world.hosts.popen(2, f"{BIN}/outrider", "generate", *GREEDY, *LONG, "-n",
                                 str(N_LOSSY), "-K", "0", "--quiet", stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, encoding="utf-8")
        begun = busy.stdout.read(16)
        world.group.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not world.is_serving(), 3, "nothing new is taken")
        self.assertIsNone(busy.poll(), "the text was too short to show anything")
        with busy.stdout, busy.stderr: # not communicate(), which forgets what is buffered
            rest, said = busy.stdout.read(), busy.stderr.read()
        self.assertEqual((busy.wait(bound(30)), begun + rest), (0, text), said)
        self.assertEqual(world.group.wait(10), 143)
        self.assertNotIn("lost", world.group.log().rpartition("Forwarding")[2])


class One(unittest.TestCase):
    def test_everything_in_one_mpirun_over_two_hosts(self):
        with Hosts(BUILD, 2) as hosts:
            one = hosts.start(
                0, "one", f"{SCRIPTS}/one", "--build", BUILD, "--hosts",
                hosts.write_hostfile([2, 1]), "--network", "data0", "--target", TARGET, "--draft",
                DRAFT, "--worker", "--insecure", "--http", "off", "--drain-timeout", "0",
                environment=ENVIRONMENT)

            def run(*args):
                return hosts.run(0, f"{BIN}/outrider", *args)

            wait_until(lambda: run("health").returncode == 0, START_SECONDS, "it serves")
            self.assertEqual(json.loads(run("describe", "--json").stdout)["n_ranks"], 2)
            self.assertEqual(generate(run, GREEDY)["text"], texts_of_one_host()[N_TOKENS][0])
            one.process.send_signal(signal.SIGTERM)
            one.wait(15)


class Preflight(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World()
        cls.hosts = cls.world.hosts.__enter__()
        cls.hostfile = cls.world.hostfile = cls.hosts.write_hostfile([1, 1])
        cls.n = 0

    @classmethod
    def tearDownClass(cls):
        cls.hosts.close()

    def refused(self, **options):
        """Returns the log of a group that cannot start."""
        Preflight.n += 1
        group = self.world.start_group(f"group{self.n}", "--restarts", "0", **options)
        self.assertEqual(group.wait(30), 1, group.log())
        return group.log()

    def test_a_host_that_ssh_cannot_reach(self):
        path = os.path.join(self.hosts.folder, "unknown")
        with open(path, "w", encoding="ascii") as file:
            file.write("node1 slots=1\nnode9 slots=1\n")
        self.assertIn("group: node9 cannot be reached by ssh (ssh: Could not resolve hostname "
                      "node9", self.refused(hostfile=path))

    def test_a_host_without_the_program(self):
        self.without(BIN, f"group: node2 has no outrider-worker and outrider in {BIN}; put the "
                     "build under the same path on every host")

    def test_a_host_without_the_model(self):
        self.without(TARGET, f"group: node2 has no model at {TARGET}/config.json; put it under")

    def without(self, folder, sentence):
        self.assertEqual(self.hosts.run(1, "mount", "-t", "tmpfs", "none", folder).returncode, 0)
        try:
            self.assertIn(sentence, self.refused())
        finally:
            self.hosts.run(1, "umount", folder)

    def test_a_network_that_a_host_has_not(self):
        said = self.refused(network="10.99.0.0/24")
        self.assertIn("group: node1: --network 10.99.0.0/24: this host has no address in it; it "
                      "has lo 127.0.0.1, ctl0 10.77.0.1, data0 10.78.0.1", said)

    def test_two_hosts_that_cannot_reach_each_other(self):
        self.hosts.cut(0, 1)
        try:
            said = self.refused()
        finally:
            self.hosts.heal()
        for pair in ("node1 cannot reach node2 at 10.78.0.2 (no answer in time)",
                     "node2 cannot reach node1 at 10.78.0.1 (no answer in time)"):
            self.assertIn(f"group: {pair}; let TCP through among all hosts there, or choose "
                          "another network with --network", said)

    def test_a_worker_without_an_address_in_the_network(self):
        done = self.hosts.run(0, f"{BIN}/outrider-worker", "--model", TARGET, "--listen",
                              "0.0.0.0:7071", "--insecure", "--network", "eth7")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--network eth7: this host has no address in it; it has lo 127.0.0.1",
                      done.stderr)

    def test_the_link_is_measured(self):
        self.hosts.delay(0.002)
        server = self.hosts.popen(1, f"{BIN}/outrider", "link", "--serve", ":0", "--network",
                                  DATA_NETWORK, stdout=subprocess.PIPE, encoding="utf-8")
        try:
            address = server.stdout.readline().split()[1]
            done = self.hosts.run(0, f"{BIN}/outrider", "link", "--json", address)
        finally:
            server.kill()
            server.communicate()
            self.hosts.delay(0)
        link = json.loads(done.stdout)["links"][0]
        self.assertEqual(link["address"], address)
        self.assertTrue(address.startswith("10.78.0.2:"))
        self.assertTrue(4000 <= link["round_trip_us"] < 40000, link)
        self.assertGreater(link["bytes_per_second"], 1e6)


if __name__ == "__main__":
    skip_unless_supported()
    parallel_cases.main(verbosity=2)
