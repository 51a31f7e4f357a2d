#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=900
"""Files, options, addresses, prompts and groups that make no sense: each is refused with one
sentence that says what is wrong and why, and nothing crashes or hangs."""
import json
import os
import re
import shutil
import tempfile
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import broken_models
from cluster import TALES, free_ports, wait_until
from fault_util import PATIENCE, PROMPT, FaultTest, World, main, program, run, start

TARGET, DRAFT = os.path.join(TALES, "target"), os.path.join(TALES, "draft")
WORKER, COORDINATOR, CLIENT = (program(name) for name in (
    "outrider-worker", "outrider-coordinator", "outrider"))
NOBODY = "unix:/tmp/outrider-nobody-listens-here"


class FolderTest(FaultTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="outrider-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.listen = f"unix:{self.folder}/socket"

    def broken(self, name, breaker):
        folder = broken_models.copy(os.path.join(self.folder, name.replace(" ", "-")))
        breaker(folder)
        return folder


class Files(FolderTest):
    def test_worker_refuses_broken_models(self):
        for name, (breaker, words) in broken_models.CASES.items():
            with self.subTest(name):
                model = self.broken(name, breaker)
                output = run(WORKER, "--model", model, "--listen", self.listen, timeout=5)
                self.check_refusal(*output, *words)

    def test_coordinator_refuses_broken_drafts(self):
        for name, (breaker, words) in broken_models.CASES.items():
            with self.subTest(name):
                model = self.broken(name, breaker)
                output = run(COORDINATOR, "--draft", model, "--target", NOBODY, "--listen",
                             self.listen, timeout=5)
                self.check_refusal(*output, *words)

    def test_unknown_keys_are_refused_only_on_request(self):
        model = self.broken("keys", broken_models.config(use_mystery=True))
        draft = ("--draft", model, "--target", NOBODY)
        for program_name, options in ((WORKER, ("--model", model)), (COORDINATOR, draft)):
            with self.subTest(program_name):
                output = run(program_name, *options, "--listen", self.listen, "--strict-config")
                self.check_refusal(*output, "use_mystery")
        with World(n_ranks=2, target=model, draft=model) as world:
            for name in ("workers", "coordinator"):
                log = world.logs()[f"{name}.log"]
                self.assertEqual(len(re.findall(r"model_remark.*use_mystery", log)), 1, log)

    def test_names_of_no_model(self):
        for name, word in {
                "/nowhere/model": "/nowhere/model", "": ".json", "synthetic:": '""',
                "synthetic:nothing,seed=1": "nothing", "synthetic:tiny,seed=x": "seed=x",
                "synthetic:tiny,seed=1,layers=-1": "layers=-1", __file__: __file__}.items():
            with self.subTest(name):
                output = run(WORKER, "--model", name, "--listen", self.listen)
                self.check_refusal(*output, word)
                output = run(COORDINATOR, "--draft", name, "--target", NOBODY, "--listen",
                             self.listen)
                self.check_refusal(*output, word)


class Vocabulary(FolderTest):
    def test_draft_of_another_vocabulary_is_refused(self):
        draft = self.broken("other", broken_models.other_token)
        self.check_refusal(*run(COORDINATOR, "--draft", draft, "--tokenizer", TARGET, "--target",
                                NOBODY, "--listen", self.listen), "vocabulary", draft)
        world = self.world = World(draft=draft)
        self.addCleanup(world.leave)
        world.start_workers()
        world.start_coordinator()
        self.assertEqual(world.coordinator.wait(10 * PATIENCE), 1)
        self.check_refusal(1, world.coordinator.log(), "vocabulary", world.worker_addresses[0],
                           is_late=True)
        self.assertTrue(world.workers.is_alive())

    def test_padded_embeddings_change_nothing(self):
        draft = self.broken("draft", broken_models.pad_embedding)
        target = broken_models.copy(os.path.join(self.folder, "target"), TARGET)
        broken_models.pad_embedding(target)
        texts = []
        for options in ({}, {"draft": draft}, {"target": target},
                        {"draft": draft, "target": target}):
            with self.subTest(options), World(**options) as world:
                self.world = world
                texts.append((world.greedy(), world.greedy("-K", "0"),
                              world.accepted()))
                self.check_logs(world)
        self.assertGreater(texts[0][2], 0)
        self.assertEqual(texts[0][0], texts[0][1])
        for other in texts[1:]:
            self.assertEqual(other, texts[0])


class Options(FolderTest):
    def test_worker(self):
        for arguments, word in {
                (): "--model", ("--model",): "--model", ("--nonsense",): "--nonsense",
                ("-x",): "x", ("word",): "word", ("--threads", "0"): "0",
                ("--threads", "two"): "two", ("--slots", "-1"): "-1",
                ("--kv-tokens", "99999999999999999999"): "99999999999999999999",
                ("--max-step-tokens", "1"): "1", ("--step-timeout", "0"): "0",
                ("--kernels", "fast"): "fast", ("--log-level", "loud"): "loud"}.items():
            with self.subTest(arguments):
                self.check_usage(*run(WORKER, *arguments), word)
        other = "avx2" if os.uname().machine == "aarch64" else "neon"
        self.check_refusal(*run(WORKER, "--model", DRAFT, "--kernels", other, "--listen",
                                self.listen), f"kernels '{other}' need a build for")

    def test_coordinator(self):
        for arguments, word in {
                (): "--target", ("--target", NOBODY): "--draft", ("--draft",): "--draft",
                ("--nonsense",): "--nonsense", ("word",): "word", ("-K", "17"): "17",
                ("--target", NOBODY, "--lookup", "texts"): "session",
                ("-K", "-1"): "-1", ("-K", "x"): "x", ("--queue", "0"): "0",
                ("--threads", ""): "--threads", ("--step-timeout", "1h"): "1h",
                ("--draft-support", "0"): "0", ("--log-level", ""): "--log-level"}.items():
            with self.subTest(arguments):
                self.check_usage(*run(COORDINATOR, *arguments), word)
        for target, word in {
                "": "names no address", ",": "names no address",
                ",".join(f"{NOBODY}{i}" for i in range(257)): "more than 256 addresses",
                f"{NOBODY},{NOBODY}": "twice", "a" * 300: "255 bytes", "dns:": "dns:NAME:PORT",
                "dns:name": "dns:NAME:PORT", "dns::1": "dns:NAME:PORT", "dns:name:0": "1 to 65535",
                "lws:x": "lws:PORT", "lws:7071": "LWS_LEADER_ADDRESS"}.items():
            with self.subTest(target[:60]):
                self.check_usage(*run(COORDINATOR, "--target", target, "--draft", DRAFT,
                                      "--listen", self.listen), word)
        self.check_usage(*run(COORDINATOR, "--target", "mpi", "--target", NOBODY, "--draft", DRAFT,
                              "--listen", self.listen), "--target mpi is given alone")
        self.check_usage(*run(COORDINATOR, "--target", NOBODY, "--groups", "17", "--draft", DRAFT,
                              "--listen", self.listen), "17")
        self.check_refusal(*run(COORDINATOR, "--target", "mpi", "--draft", DRAFT, "--listen",
                                self.listen), "mpirun")
        self.check_usage(*run(COORDINATOR, "--target", NOBODY, "--draft", "none", "--listen",
                              self.listen), "--tokenizer")

    def test_client(self):
        for arguments, word in {
                (): "no command", ("nonsense",): "nonsense", ("--nonsense",): "--nonsense",
                ("generate", "--nonsense", "a"): "--nonsense", ("generate", "-K", "17", "a"): "17",
                ("generate", "-K", "-1", "a"): "-1", ("generate", "-n", "0", "a"): "0",
                ("generate", "--temperature", "hot", "a"): "hot",
                ("generate", "--temperature", "nan", "a"): "nan",
                ("generate", "--temperature", "-1", "a"): "-1",
                ("generate", "--top-p", "2", "a"): "2", ("generate", "--rule", "luck", "a"): "luck",
                ("generate", "--prompt-ids", "1,x"): "x", ("generate", "--prompt-ids", "-5"): "-5",
                ("generate", "--seed", "1.5", "a"): "1.5",
                ("generate", "--stop", "", "a"): "--stop",
                ("generate", "a", "b"): "b", ("generate", "--timeout", "0", "a"): "0",
                ("generate", "--timeout"): "--timeout", ("health", "-a", "nowhere"): "nowhere",
                ("score", "--nonsense"): "--nonsense", ("tokenize",): "",
                ("detokenize", "--nonsense"): "--nonsense"}.items():
            with self.subTest(arguments):
                self.check_usage(*run(CLIENT, *arguments, stdin=b""), word)
        done = run(CLIENT, "generate", "-a", "127.0.0.1:1", "a")
        self.check_failure(*done, "127.0.0.1:1")


class Addresses(FolderTest):
    BAD = ("127.0.0.1:99999", "127.0.0.1:x", "127.0.0.1:-1", "127.0.0.1:",
           "256.0.0.1:7071", "192.0.2.1:7071", "unix:", "unix:/nowhere/at/all/socket",
           "unix:/tmp/" + "long" * 40)
    NONE = ("nonsense", "")
    OPEN = ("0.0.0.0:0", "[::]:0", ":0", "192.0.2.1:7071", "worker-0:7071",
            "127.0.0.1.example.com:7071")

    def commands(self, listen, *more):
        return ((WORKER, "--model", DRAFT, "--listen", listen, *more),
                (COORDINATOR, "--draft", DRAFT, "--target", NOBODY, "--listen", listen, *more))

    def test_bad_addresses(self):
        for address in self.BAD:
            for command in self.commands(address, "--insecure"):
                with self.subTest(command):
                    self.check_refusal(*run(*command), address)

    def test_addresses_that_are_none(self):
        for address in self.NONE:
            for command in self.commands(address):
                with self.subTest(command):
                    self.check_usage(*run(*command), f"'{address}': expected HOST:PORT")

    def test_addresses_that_everybody_can_reach(self):
        for address in self.OPEN:
            for command in self.commands(address):
                with self.subTest(command):
                    output = run(*command)
                    for word in (address, "--tls-certificate", "loopback", "--insecure"):
                        self.check_usage(*output, word)

    def test_bad_weights(self):
        for weight, word in (("alice", "NAME=W"), ("=3", "NAME=W"), ("alice=0", "1 to 1000"),
                             ("alice=x", "1 to 1000"), ("n" * 300 + "=2", "255 bytes")):
            with self.subTest(weight):
                self.check_refusal(*run(COORDINATOR, "--draft", DRAFT, "--target", NOBODY,
                                        "--listen", self.listen, "--client-weight", weight), word)

    def test_addresses_in_use(self):
        for transport in ("unix", "tcp"):
            with World(transport=transport) as world:
                self.world = world
                for address in (world.address, world.worker_addresses[0]):
                    for command in self.commands(address):
                        with self.subTest(command):
                            self.check_refusal(*run(*command), address)
                self.assertEqual(len(world.greedy()), 24)

    def test_port_zero_is_any_port(self):
        for name, command in zip(("outrider-worker", "outrider-coordinator"),
                                 self.commands("127.0.0.1:0")):
            server = start(name, self.folder, *command[1:])
            try:
                event = " ready " if name == "outrider-worker" else " listening "
                wait_until(lambda: event in server.log(), 10 * PATIENCE, f"{name} has its door")
                address = re.search(r" address=(127\.0\.0\.1:[1-9]\d*) ", server.log()).group(1)
                status, output = run(CLIENT, "health", "-a", address)
                word = "serving" if name == "outrider-worker" else "not serving"
                self.assertEqual(output.strip(), word)
                self.assertEqual(status, 0 if name == "outrider-worker" else 1)
            finally:
                self.assertEqual(server.stop(), 0)

    def test_dead_socket_files_are_taken_over(self):
        world = self.world = World()
        self.addCleanup(world.leave)
        world.start()
        for server in (world.coordinator, world.workers):
            server.process.kill()
            server.wait(5)
        world.start()
        self.assertEqual(len(world.greedy()), 24)


class Prompts(FaultTest):
    @classmethod
    def setUpClass(cls):
        cls.world = World(coordinator_flags=["--max-prompt-bytes", "30000"])
        cls.addClassCleanup(cls.world.leave)
        cls.world.start()
        cls.greedy = cls.world.greedy()

    def tearDown(self):
        self.check_logs(self.world)
        self.assertEqual(self.world.greedy(), self.greedy)

    def refused(self, *arguments, words, **options):
        done = self.world.outrider("generate", "-n", "4", *arguments, **options)
        self.check_failure(done.returncode, done.stderr, *words)
        self.assertEqual(done.stdout, "")

    def test_too_long(self):
        self.refused("once " * 2000, words=("1024",))
        self.refused("once " * 10000, words=("50000 bytes", "30000"))
        self.refused("--prompt-ids", ",".join(["5"] * 1024), words=("1024",))

    def test_just_fits(self):
        ids = ",".join(["5"] * 1023)
        done = self.world.outrider("generate", "-n", "4", "--prompt-ids", ids)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_empty(self):
        self.refused("", words=("empty",))
        self.refused(stdin="", words=("empty",))

    def test_ids_of_no_token(self):
        self.refused("--prompt-ids", "1,2,4096", words=("4096",))
        self.refused("--prompt-ids", "1,2,2147483647", words=("2147483647",))

    def test_not_utf8(self):
        for raw in (b"caf\xe9", b"\xff\xfe\x00", b"\xed\xa0\x80", b"a\xc3",
                    b"\xf8\x88\x80\x80\x80"):
            with self.subTest(raw):
                status, output = run(CLIENT, "generate", "-n", "4", "-q", "-a", self.world.address,
                                     stdin=raw)
                self.check_usage(status, output, "UTF-8")

    def test_rule_that_does_not_fit(self):
        self.refused("--rule", "greedy", "--temperature", "1", "a", words=("greedy",))


class Groups(FolderTest):
    def group(self, n_ranks):
        world = World(n_ranks=n_ranks, transport="tcp")
        self.addCleanup(world.leave)
        world.start_workers()
        return world

    def wait_ready(self, world):
        wait_until(lambda: world.logs()["workers.log"].count(" ready ") == world.n_ranks,
                   20 * PATIENCE, "the group is ready")

    def refuse(self, addresses, *words):
        self.check_refusal(*run(COORDINATOR, "--draft", DRAFT, "--target", ",".join(addresses),
                                "--listen", self.listen), *words, is_late=True)

    def check_waits(self, addresses, *words):
        """A fault that a restart of the group may mend does not end the coordinator."""
        server = start("outrider-coordinator", self.folder, "--draft", DRAFT, "--target",
                       ",".join(addresses), "--listen", self.listen)
        try:
            wait_until(lambda: "target_unreachable" in server.log(), 5 * PATIENCE, "it is refused")
            status, output = run(CLIENT, "generate", "-a", self.listen, "-n", "4", PROMPT)
            self.check_failure(status, output, *words)
            self.assertEqual(run(CLIENT, "health", "-a", self.listen), (1, "not serving\n"))
        finally:
            server.stop()
            self.check_sanitizers(server.log())
            os.remove(server.log_path)

    def check_not_used(self, addresses, *words):
        """Ranks that make no whole group beside one that serves are told of, and end nothing."""
        server = start("outrider-coordinator", self.folder, "--draft", DRAFT, "--target",
                       ",".join(addresses), "--listen", self.listen)
        try:
            wait_until(lambda: "target_not_used" in server.log(), 5 * PATIENCE, "it is told")
            line = next(x for x in server.log().splitlines() if "target_not_used" in x)
            for word in words:
                self.assertIn(word, line)
            wait_until(lambda: run(CLIENT, "health", "-a", self.listen)[0] == 0, 5 * PATIENCE,
                       "it serves")
        finally:
            self.assertEqual(server.stop(), 0)
            self.check_sanitizers(server.log())
            os.remove(server.log_path)

    def test_ranks_that_are_no_group(self):
        one, two = self.group(2), self.group(2)
        self.wait_ready(one)
        self.wait_ready(two)
        first, second = one.worker_addresses
        self.refuse([first], first, "group of 2", "1 address")
        self.check_usage(*run(COORDINATOR, "--draft", DRAFT, "--target", f"{first},{first}"),
                         first, "twice")
        self.check_not_used([first, second, two.worker_addresses[0]], "group of 2", "1 address")
        self.check_waits([first, f"ipv4:{first}"], "rank 0 of 2", "one group")
        self.check_waits([first, two.worker_addresses[1]], first, "1 of them", "one group")
        self.check_waits([two.worker_addresses[0], second], "one group")
        for world in (one, two):  # the other requests are served
            world.start_coordinator()
            world.wait_serving()
        self.assertEqual(one.greedy(), two.greedy())
        self.check_told_of_another(one.worker_addresses)

    def check_told_of_another(self, addresses):
        """Once, however often the group is asked, and with what keeps strangers out."""
        server = start("outrider-coordinator", self.folder, "--draft", DRAFT, "--target",
                       ",".join(addresses), "--listen", self.listen)
        try:
            wait_until(lambda: "another coordinator is using it" in server.log(), 10 * PATIENCE,
                       "it is told of the other one")
            time.sleep(1)
            self.assertEqual(server.log().count("another coordinator is using it"), 1, server.log())
            self.assertIn("--group-key, of ranks and coordinators, keeps strangers out",
                          server.log())
        finally:
            server.stop()
            os.remove(server.log_path)

    def test_number_of_ranks_that_cannot_share_the_model(self):
        world = self.group(3)
        self.assertNotEqual(world.workers.wait(20 * PATIENCE), 0)
        log = world.workers.log()
        self.check_sanitizers(log)
        failures = [line for line in log.splitlines() if " failed reason=" in line]
        self.assertGreater(len(failures), 0, log)
        for line in failures:
            self.assertIn("3 ranks cannot share this model", line)
            self.assertIn("T must be one of 1, 2, 4, 8", line)
        self.assertEqual(world.rank_pids(), {})

    def test_two_workers_are_two_groups_of_one(self):
        free = free_ports(2)
        addresses = [f"127.0.0.1:{free + i}" for i in range(2)]
        servers = []
        try:
            for i, address in enumerate(addresses):
                folder = os.path.join(self.folder, str(i))
                os.mkdir(folder)
                servers.append(start("outrider-worker", folder, "--model", DRAFT, "--listen",
                                     address))
            for server in servers:
                wait_until(lambda s=server: " ready " in s.log(), 10 * PATIENCE, "it is ready")
            server = start("outrider-coordinator", self.folder, "--draft", DRAFT, "--target",
                           ",".join(addresses), "--listen", self.listen)
            servers.insert(0, server)
            wait_until(lambda: server.log().count("target_ready") == 2, 10 * PATIENCE, "both serve")
            described = json.loads(run(CLIENT, "describe", "--json", "-a", self.listen)[1])
            self.assertEqual([g["state"] for g in described["groups"]], ["serving"] * 2)
            self.assertEqual(sorted(described["worker_addresses"]), addresses)
        finally:
            for server in servers:
                self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    main()
