#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=300
"""TLS with real processes and certificates of deploy/tls/make-ca: who is served and who is not, and
what each side says of it; certificates that are renewed while a text is generated; the same text
over mutual TLS as over plain connections. Skipped (77) where grpcio is not installed."""
import contextlib
import json
import os
import queue
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
import unittest
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from rpc_python import Caller, field, fields, grpc
from cluster import TALES, slowness, wait_until
from fault_util import PATIENCE, SLOW_STEPS, FaultTest, Stream, World, main, program, run
from made_ca import MAKE_CA, MadeCa

WORKER, COORDINATOR = program("outrider-worker"), program("outrider-coordinator")
DRAFT = os.path.join(TALES, "draft")
NOBODY = "unix:/tmp/outrider-nobody-listens-here"
SEEDED = ("Once upon a time", "-n", "48", "--temperature", "0.8", "--seed", "11", "--json")
ANY_ADDRESS = ("--target", NOBODY, "--draft", "none", "--tokenizer", DRAFT)


class DelayedAnswers:
    """The address of a relay whose first answer is so many seconds late."""

    def __init__(self, port, seconds):
        self.port, self.seconds = port, seconds
        self.listener = socket.create_server(("127.0.0.1", 0))

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return f"127.0.0.1:{self.listener.getsockname()[1]}"

    def __exit__(self, *unused):
        self.listener.close()

    def _accept(self):
        near, _ = self.listener.accept()
        far = socket.create_connection(("127.0.0.1", self.port))
        threading.Thread(target=self._pass_on, args=(near, far, 0), daemon=True).start()
        self._pass_on(far, near, self.seconds)

    @staticmethod
    def _pass_on(source, sink, seconds):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                time.sleep(seconds)
                seconds = 0
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


def request(prompt="Once upon a time", n=24):
    """A GenerateRequest: greedy and plain."""
    return field(1, prompt) + field(3, n) + field(4, field(1, 0.0)) + field(5, field(1, 0)) + \
        field(7, 1)


def text_of(call):
    text = b""
    for message in call:
        f = fields(message)
        text += fields(f[1][0]).get(2, [b""])[0] if 1 in f else b""
    return text.decode()


def credentials(ca, name=None, roots=None):
    pair = (ca.read(name + ".key"), ca.read(name + ".pem")) if name else (None, None)
    return grpc.ssl_channel_credentials(roots or ca.read("ca.pem"), *pair)


def setUpModule():
    if not shutil.which("openssl"):
        raise unittest.SkipTest("openssl is not installed")


class TlsTest(FaultTest):
    """With an authority of its own, and one of a stranger."""

    @classmethod
    def setUpClass(cls):
        cls.ca = MadeCa("door=127.0.0.1", "worker=127.0.0.1", "client", "coordinator")
        cls.addClassCleanup(cls.ca.close)
        cls.stranger = MadeCa("client", "door=127.0.0.1")
        cls.addClassCleanup(cls.stranger.close)

    def health(self, address, *flags):
        """(status, words) of `outrider health` without the environment's certificates."""
        bare = {name: "" for name in ("OUTRIDER_TLS_CA", "OUTRIDER_TLS_CERTIFICATE",
                                      "OUTRIDER_TLS_KEY")}
        return run(program("outrider"), "health", "--address", address, *flags, environment=bare)


class Door(TlsTest):
    """A coordinator with a certificate that asks for none."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.world = World(transport="tcp", worker_flags=SLOW_STEPS, http=True,
                          coordinator_flags=cls.ca.door("door", client_ca=False),
                          environment={"OUTRIDER_TLS_CA": cls.ca.path("ca.pem")})
        cls.addClassCleanup(cls.world.leave)
        cls.world.start()

    def tearDown(self):
        self.check_logs(self.world)

    def port(self):
        return int(self.world.address.rpartition(":")[2])

    def served_certificate(self):
        return ssl.get_server_certificate(("127.0.0.1", self.port()), timeout=10 * PATIENCE)

    def test_another_implementation_is_served(self):
        caller = Caller(self.world.address, credentials(self.ca))
        self.addCleanup(caller.close)
        ours = self.world.outrider("generate", "Once upon a time", "-n", "24", "-K", "0", "-q",
                                   "--temperature", "0", "--ignore-eos")
        self.assertEqual(text_of(caller.stream("Generate", request())), ours.stdout)

    def test_the_authority_must_be_known(self):
        done = self.health(self.world.address, *self.stranger.caller("--tls"))
        self.check_failure(*done, "no secure connection to " + self.world.address,
                           "signed by none of our authorities")
        caller = Caller(self.world.address, credentials(self.stranger))
        self.addCleanup(caller.close)
        status, text = caller.refusal("Describe", b"")
        self.assertEqual(status, "UNAVAILABLE", text)

    def test_the_name_may_be_another_one(self):
        """The address is checked where none is given: tests/unit/rpc/test_rpc_tls.c."""
        flags = [self.world.address, *self.ca.caller("--tls"), "--tls-name"]
        self.assertEqual(self.health(*flags, "door"), (0, "serving\n"))
        self.check_failure(*self.health(*flags, "worker"), "for another name")

    def test_plain_clients_are_told(self):
        self.check_failure(*self.health(self.world.address), "it may want TLS")
        self.world.wait_log("coordinator", "tls_handshake_failed", 5)

    def shake(self, address, version, ciphers):
        """The version that a handshake agrees on; "" = it fails."""
        context = ssl._create_unverified_context()
        context.set_ciphers(ciphers)
        context.minimum_version = context.maximum_version = version
        context.set_alpn_protocols(["h2"])
        host, port = address.split(":")
        try:
            with socket.create_connection((host, int(port)), timeout=10 * PATIENCE) as plain:
                with context.wrap_socket(plain) as connection:
                    return connection.version()
        except (ssl.SSLError, ConnectionError):
            return ""

    def test_old_versions_and_ciphers_are_refused_by_both_doors(self):
        everything = "ALL:@SECLEVEL=0"
        for address in (self.world.address, self.world.http):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                got = [self.shake(address, *wish) for wish in (
                    (ssl.TLSVersion.TLSv1, everything), (ssl.TLSVersion.TLSv1_1, everything),
                    (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES256-SHA"),
                    (ssl.TLSVersion.TLSv1_2, everything), (ssl.TLSVersion.TLSv1_3, everything))]
            self.assertEqual(got, ["", "", "", "TLSv1.2", "TLSv1.3"], address)
        warning = "an HTTP client has left, does not speak TLS"
        self.world.wait_log("coordinator", warning, 5)
        self.assertEqual(self.world.logs()["coordinator.log"].count(warning), 1)

    def test_handshakes_that_do_not_go_on_are_ended(self):
        begin, silent = time.monotonic(), []
        for said in (b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
            silent.append(socket.create_connection(("127.0.0.1", self.port())))
            self.addCleanup(silent[-1].close)
            silent[-1].sendall(said)
        for connection in silent:
            connection.settimeout(90)
            self.assertEqual(connection.recv(4096), b"")
        self.assertGreater(time.monotonic() - begin, 15)

    def test_a_handshake_may_take_two_seconds(self):
        """Such as with a machine that is busy or far away."""
        with DelayedAnswers(self.port(), 2) as address:
            done = self.health(address, *self.ca.caller("--tls"))
            self.assertEqual(done, (0, "serving\n"))

    def test_plain_servers_are_told(self):
        done = self.health(self.world.worker_addresses[0], *self.ca.caller("--tls"))
        self.check_failure(*done, "the other side does not speak TLS")

    def test_a_renewed_certificate_is_served_beside_a_stream(self):
        before = self.served_certificate()
        stream = Stream(self.world)
        self.ca.make("door=127.0.0.1")
        self.assertNotEqual(self.served_certificate(), before)
        self.assertEqual(self.served_certificate().split(),
                         self.ca.read("door.pem").decode().split())
        self.assertEqual(self.world.health_word(), "serving")
        self.assertTrue(stream.is_running())
        self.assertEqual(stream.end(60)[0], 0)

    def test_a_bad_renewal_changes_nothing_and_is_reported_once(self):
        good, before = self.ca.read("door.pem").decode(), self.served_certificate()
        n_before = self.world.logs()["coordinator.log"].count("certificates_refused")
        self.ca.write("door.pem", "nonsense")
        self.addCleanup(self.ca.write, "door.pem", good)
        for _ in range(3):
            self.assertEqual(self.served_certificate(), before)
        log = self.world.logs()["coordinator.log"]
        self.assertEqual(log.count("certificates_refused") - n_before, 1, log)
        line = [line for line in log.splitlines() if "certificates_refused" in line][-1]
        self.assertIn(self.ca.path("door.pem") + " holds no certificate", line)

    def test_a_hangup_reads_the_files(self):
        before = self.world.logs()["coordinator.log"].count("certificates_read")
        os.kill(self.world.coordinator.pid, signal.SIGHUP)
        wait_until(lambda: self.world.logs()["coordinator.log"].count("certificates_read") > before,
                   5 * PATIENCE, "the files are read again")
        self.assertEqual(self.world.health_word(), "serving")


class Mutual(TlsTest):
    """Two ranks and a coordinator, all of which ask for certificates."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        flags = [*cls.ca.caller("--target", "coordinator"), *cls.ca.door("door")]
        cls.world = World(2, transport="tcp", worker_flags=cls.ca.door("worker"),
                          coordinator_flags=flags, environment={
                              "OUTRIDER_TLS_CA": cls.ca.path("ca.pem"),
                              "OUTRIDER_TLS_CERTIFICATE": cls.ca.path("client.pem"),
                              "OUTRIDER_TLS_KEY": cls.ca.path("client.key")})
        cls.addClassCleanup(cls.world.leave)
        cls.world.start()

    def tearDown(self):
        self.check_logs(self.world)

    def test_the_text_is_that_of_plain_connections(self):
        def texts(world):
            seeded = json.loads(world.outrider("generate", *SEEDED).stdout)
            return [one["token_ids"] for one in (
                world.generate(), world.generate("-K", "4"), seeded)]

        with World(2) as plain:
            self.assertEqual(texts(self.world), texts(plain))

    def test_strangers_are_refused_by_every_door(self):
        for address in (self.world.address, *self.world.worker_addresses):
            with self.subTest(address):
                done = self.health(address, *self.ca.caller("--tls"))
                self.check_failure(*done, "it may want another certificate of ours")
                done = self.health(address, "--tls-ca", self.ca.path("ca.pem"),
                                   "--tls-certificate", self.stranger.path("client.pem"),
                                   "--tls-key", self.stranger.path("client.key"))
                self.check_failure(*done, "it may want another certificate of ours")
                done = self.health(address, *self.ca.caller("--tls", "client"))
                self.assertEqual(done, (0, "serving\n"))
        for name in ("workers", "coordinator"):
            for why in ("the other side shows no certificate",
                        "the certificate of the other side is signed by none of our authorities"):
                self.world.wait_log(name, f'tls_handshake_failed text="{why}', 5)

    def test_only_a_coordinator_takes_the_group(self):
        """A certificate of the authority is not enough."""
        port = self.world.worker_addresses[0]
        for name, words in (("client", "are for 'coordinator,outrider-coordinator'"),
                            ("coordinator", "one at a time")):
            with self.subTest(name):
                with grpc.secure_channel(port, credentials(self.ca, name)) as channel:
                    run = channel.stream_stream("/outrider.target.v1.Target/Run")
                    with self.assertRaises(grpc.RpcError) as refused:
                        next(run(iter(queue.Queue().get, None), timeout=20))
                    self.assertIn(words, refused.exception.details())

    def test_a_coordinator_of_another_name_says_so_once(self):
        world = World(transport="tcp", worker_flags=self.ca.door("worker"),
                      coordinator_flags=self.ca.caller("--target", "client"))
        self.addCleanup(world.leave)
        world.start_workers()
        world.wait_log("workers", " ready ", 20)
        world.start_coordinator()
        world.wait_log("coordinator", "target_unreachable", 20)
        time.sleep(1)
        log = world.logs()["coordinator.log"]
        self.assertIn("are for 'coordinator,outrider-coordinator', and this one is not", log)
        self.assertEqual(log.count("target_"), 1, log)

    def test_a_certificate_that_has_expired_is_refused(self):
        self.ca.make_short("old", -60)
        done = self.health(self.world.address, *self.ca.caller("--tls", "old"))
        self.check_failure(*done, "old.pem has expired on 20")
        caller = Caller(self.world.address, credentials(self.ca, "old"))
        self.addCleanup(caller.close)
        self.assertEqual(caller.refusal("Describe", b"")[0], "UNAVAILABLE")

    def test_a_server_that_expires_is_refused_by_clients(self):
        self.ca.make_short("short", round(8 * PATIENCE * slowness()))
        with World(transport="tcp", coordinator_flags=self.ca.door("short", client_ca=False),
                   environment={"OUTRIDER_TLS_CA": self.ca.path("ca.pem")}) as world:
            wait_until(lambda: not world.is_serving(), 40 * PATIENCE, "the certificate expires")
            done = self.health(world.address, *self.ca.caller("--tls"))
            self.check_failure(*done, "signed by none of our authorities, or out of date")

    def test_a_coordinator_that_trusts_another_authority_says_so(self):
        flags = [*self.stranger.caller("--target", "client")]
        with self.assertRaisesRegex(Exception, "in vain"):
            world = World(transport="tcp", worker_flags=self.ca.door("worker"),
                          coordinator_flags=flags)
            self.addCleanup(world.leave)
            world.start(timeout=3 * PATIENCE)
        world.wait_log("coordinator", "target_unreachable text=\"no secure connection to "
                       f"{world.worker_addresses[0]}: the certificate of the other side is signed "
                       "by none of our authorities", 5)

    def test_a_renewed_client_certificate_is_shown_to_a_new_group(self):
        """The coordinator's own certificate expires, is renewed, and its group comes back."""
        seconds = round(8 * PATIENCE * slowness())  # in which the group and its coordinator meet
        self.ca.make_short("brief", seconds)
        flags = self.ca.caller("--target", "brief")
        with World(transport="tcp",
                   worker_flags=[*self.ca.door("worker"), "--tls-client-name", "other,brief"],
                   coordinator_flags=flags) as world:
            time.sleep(seconds + 1)
            self.assertEqual(world.health_word(), "serving") # the connection goes on
            self.ca.make("brief")
            world.workers.stop()
            world.wait_not_serving()
            world.start_workers()
            wait_until(world.is_serving, 20 * PATIENCE, "the new group is served")


class Options(TlsTest):
    def test_options_that_do_not_fit(self):
        door, ca, key = (self.ca.path(name) for name in ("door.pem", "ca.pem", "door.key"))
        for flags, words in (
                (["--tls-certificate", door], ["--tls-key is missing", door]),
                (["--tls-key", key], ["--tls-certificate is missing", key]),
                (["--tls-client-ca", ca], ["--tls-client-ca", "--tls-certificate and --tls-key"])):
            for command in ((WORKER, "--model", DRAFT), (COORDINATOR, *ANY_ADDRESS)):
                with self.subTest([*command, *flags]):
                    self.check_usage(*run(*command, *flags), *words)

    def test_files_that_do_not_fit(self):
        """No further start would help: status 78, with --check too."""
        door = self.ca.path("door.pem")
        key, other = self.ca.path("door.key"), self.ca.path("worker.key")
        for flags, words in (
                (["--tls-certificate", door, "--tls-key", other],
                 [other, "does not belong to the certificate", door]),
                (["--tls-certificate", "/nowhere", "--tls-key", key], ["cannot open /nowhere"]),
                (["--tls-certificate", key, "--tls-key", key], ["holds no certificate"]),
                (["--tls-certificate", door, "--tls-key", door], ["holds no private key"]),
                (["--tls-certificate", door, "--tls-key", key, "--tls-client-ca", key],
                 ["holds no certificate"])):
            for command in ((WORKER, "--model", DRAFT), (COORDINATOR, *ANY_ADDRESS)):
                with self.subTest([*command, *flags]):
                    self.check_refusal(*run(*command, *flags), *words)
                    status, output = run(*command, *flags, "--check")
                    self.assertEqual((status, output.count("\n")), (78, 1), output)
                    for word in words:
                        self.assertIn(word, output)

    def test_files_for_the_workers(self):
        door, key = self.ca.path("door.pem"), self.ca.path("door.key")
        for flags, words in (
                (["--target-certificate", door, "--target-key", key], ["--target-ca is missing"]),
                (["--target-certificate", door], ["--target-key is missing"]),
                (["--target-name", "worker"], ["--target-name worker", "--target-ca"])):
            with self.subTest(flags):
                self.check_usage(*run(COORDINATOR, *ANY_ADDRESS, *flags), *words)
        self.check_refusal(*run(COORDINATOR, *ANY_ADDRESS, "--target-ca", key),
                           "holds no certificate")

    def test_files_of_a_client(self):
        door, key = self.ca.path("door.pem"), self.ca.path("door.key")
        for flags, words in (
                (["--tls-certificate", door, "--tls-key", key], ["--tls-ca is missing"]),
                (["--tls-ca", door, "--tls-key", key], ["--tls-certificate is missing"])):
            with self.subTest(flags):
                self.check_usage(*run(program("outrider"), "describe", *flags), *words)

    def test_an_expired_certificate_is_no_start(self):
        self.ca.make_short("old", -60)
        self.check_refusal(*run(WORKER, "--model", DRAFT, *self.ca.door("old")), "old.pem",
                           "has expired on 20")

    def test_tls_opens_doors_to_others(self):
        """0.0.0.0 is refused without it: tests/cluster/test_faults_input.py."""
        for flags, is_enough in ((self.ca.door("door"), True),
                                 (self.ca.door("door", client_ca=False), False)):
            done = run(WORKER, "--model", "/nowhere", "--listen", "0.0.0.0:0", *flags)
            if is_enough:
                self.check_refusal(*done, "/nowhere")
            else:
                self.check_usage(*done, "0.0.0.0:0", "--tls-client-ca")


class MakeCa(FaultTest):
    def setUp(self):
        self.ca = MadeCa("one=10.0.0.1,front.example.com,::1")
        self.addCleanup(self.ca.close)

    def openssl(self, *arguments):
        return subprocess.run(["openssl", *arguments], check=True, capture_output=True,
                              encoding="utf-8").stdout

    def test_keys_are_their_owners_alone(self):
        for name in ("ca.key", "one.key"):
            self.assertEqual(stat.S_IMODE(os.stat(self.ca.path(name)).st_mode), 0o600, name)
        self.assertEqual(sorted(os.listdir(self.ca.folder)),
                         ["ca.key", "ca.pem", "one.key", "one.pem"])

    def test_certificates_name_their_hosts(self):
        text = self.openssl("x509", "-in", self.ca.path("one.pem"), "-noout", "-ext",
                            "subjectAltName,basicConstraints,extendedKeyUsage")
        for word in ("DNS:one", "IP Address:10.0.0.1", "DNS:front.example.com",
                     "IP Address:0:0:0:0:0:0:0:1", "CA:FALSE", "TLS Web Server", "TLS Web Client"):
            self.assertIn(word, text)
        self.openssl("verify", "-CAfile", self.ca.path("ca.pem"), self.ca.path("one.pem"))

    def test_the_authority_stays(self):
        authority, one = self.ca.read("ca.pem"), self.ca.read("one.pem")
        self.ca.make("one", "two")
        self.assertEqual(self.ca.read("ca.pem"), authority)
        self.assertNotEqual(self.ca.read("one.pem"), one)
        for name in ("one.pem", "two.pem"):
            self.openssl("verify", "-CAfile", self.ca.path("ca.pem"), self.ca.path(name))

    def test_half_an_authority_is_refused(self):
        os.unlink(self.ca.path("ca.key"))
        status, output = run(MAKE_CA, self.ca.folder, "one")
        self.assertEqual(status, 1, output)
        self.assertIn("has only one of ca.key and ca.pem", output)
        self.assertFalse(os.path.exists(self.ca.path("ca.key")))

    def test_wrong_words(self):
        for words, part in ((["--days", "0", "x", "one"], "--days 0"), (["x"], "at least one name"),
                            (["--nonsense"], "--nonsense"), ([self.ca.folder, "a b"], "'a b'"),
                            ([self.ca.folder, "a=b;c"], "'b;c'"), ([self.ca.folder, "ca"], "ca"),
                            ([self.ca.folder, "../one"], "'../one'")):
            with self.subTest(words):
                status, output = run(MAKE_CA, *words)
                self.assertEqual(status, 2, output)
                self.assertIn(part, output)


if __name__ == "__main__":
    main()
