#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=300
"""Programs that run as the manifests of deploy/kubernetes say: the command and the options of their
containers, with addresses on loopback, and the folders of the volumes elsewhere. The probes of the
manifests are asked as the kubelet asks them, a request is served, a program that has stopped fails
its liveness probe, and SIGTERM ends everything within the grace period.

    test_kubernetes_run.py BUILD [Class]"""
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "build/release"
import pypi
pypi.enter(BUILD, "kubernetes.txt")
import kubernetes_check
import kubernetes_schema
from cluster import (SOURCE, TALES, ClusterError, Program, descendants, free_ports, is_alive,
                     wait_until)
from made_ca import MadeCa

OVERLAYS = os.path.join(SOURCE, "deploy", "kubernetes", "overlays")
PROGRAMS = os.path.join(BUILD, "bin")
START_S = 60
PROMPT = "Once upon a time"


class Container:
    """A program of a manifest, with its ports moved to free ones."""

    def __init__(self, run, pod, spec, more_ports=(), drop=(), environment=None):
        self.run, self.spec, self.grace = run, spec, pod.spec["terminationGracePeriodSeconds"]
        own = [port["containerPort"] for port in spec["ports"]]
        self.ports = dict(more_ports)
        for first in sorted(port for port in own if port - 1 not in own):  # ranks are neighbours
            count = len([port for port in own if first <= port < first + 8])
            free = free_ports(count)
            self.ports.update({first + i: free + i for i in range(count)})
        self.named = {port["name"]: self.ports[port["containerPort"]] for port in spec["ports"]}
        words = [self.local(word) for word in spec["command"] + spec["args"] if word not in drop]
        words = [os.path.join(PROGRAMS, word) if word in kubernetes_check.PROGRAMS else word
                 for word in words]
        path = os.path.join(run.folder, f"{spec['name']}-{len(run.programs)}.log")
        self.program = Program(spec["name"], words, path,
                               environment or {})
        run.programs.append(self.program)

    def local(self, word):
        """An argument as it is here."""
        name, is_set, value = word.partition("=")
        if not is_set:
            return word
        value = re.sub(r"^/models/", TALES + "/", value)
        value = re.sub(r"^/(tls|keys)/", rf"{self.run.folder}/{self.spec['name']}/\1/", value)
        value = re.sub(r"^0\.0\.0\.0:", "127.0.0.1:", value)
        value = re.sub(r"dns:[a-z-]+:", "dns:localhost:", value)
        value = re.sub(r"(?<=:)(\d+)\b", lambda port: str(self.ports[int(port[1])])
                       if int(port[1]) in self.ports else port[1], value)
        return f"{name}={value}"

    def answers(self, probe):
        """Asks once, as the kubelet does. False also when the answer takes too long."""
        spec = self.spec[probe]
        patience = spec.get("timeoutSeconds", 1) + 1  # this machine has other things to do
        if "httpGet" in spec:
            return get(self.named[spec["httpGet"]["port"]], spec["httpGet"]["path"],
                       patience) == 200
        if "exec" in spec:
            return runs([self.local(word) for word in spec["exec"]["command"]], patience)
        return self.is_healthy(spec["grpc"].get("service", ""), spec["grpc"]["port"], patience)

    def is_healthy(self, service, port, patience=5):
        return runs(["outrider", "health", "--service", service,
                     "--address", f"127.0.0.1:{self.ports[port]}"], patience)

    def wait_probes(self):
        for probe in kubernetes_check.PROBES:
            wait_until(lambda probe=probe: self.check_alive() and self.answers(probe), START_S,
                       f"{self.spec['name']} passes its {probe}")

    def check_alive(self):
        if not self.program.is_alive():
            raise ClusterError(f"{self.program.name} ended with {self.program.wait(1)}")
        return True


def runs(command, patience):
    """True if a program of ours ends well in time."""
    try:
        return subprocess.run([os.path.join(PROGRAMS, command[0]), *command[1:]],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=patience, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def get(port, path, patience=5):
    """The status; 0 where nothing answers in time."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=patience) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, TimeoutError):
        return 0


class Run:
    """Programs that one test started."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="outrider-kube-")
        self.programs = []

    def __enter__(self):
        return self

    def __exit__(self, kind, *unused):
        for program in reversed(self.programs):
            program.stop()
            if kind:
                print(f"---- {program.name}\n{program.log()[-3000:]}", file=sys.stderr)
        shutil.rmtree(self.folder, ignore_errors=True)

    def file(self, text, *path):
        path = os.path.join(self.folder, *path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            os.chmod(path, 0o640)  # as defaultMode 0440 has it
            file.write(text)


def pods_of(overlay):
    """{kind and role: pod} of an overlay."""
    items = kubernetes_schema.render_kustomize(os.path.join(OVERLAYS, overlay))
    return {f"{item['kind']} {pod.role}".strip(): pod for item in items
            if item["kind"] in kubernetes_check.WORKLOADS
            for pod in kubernetes_check.pods_of(item)}


def is_rank(pid, rank):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return f"OMPI_COMM_WORLD_RANK={rank}".encode() in file.read().split(b"\0")


def ask(test, port, context=None, key=None):
    """A request over HTTP."""
    body = json.dumps({"prompt": PROMPT, "max_tokens": 8, "seed": 1}).encode()
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    scheme = "https" if context else "http"
    request = urllib.request.Request(f"{scheme}://127.0.0.1:{port}/v1/completions", body, headers)
    with urllib.request.urlopen(request, timeout=60, context=context) as answer:
        test.assertTrue(json.load(answer)["choices"][0]["text"])


def end(test, *containers):
    """SIGTERM, as the kubelet sends it when preStop is over, to all at once."""
    begin = time.monotonic()
    ranks = [pid for each in containers for pid in descendants(each.program.pid)]
    for each in containers:
        each.program.process.send_signal(signal.SIGTERM)
    for each in containers:
        status = each.program.wait(each.grace)
        test.assertEqual(status, 0, each.program.log()[-2000:])
        test.assertIn("stopped", each.program.log())
    test.assertLess(time.monotonic() - begin, min(each.grace for each in containers))
    wait_until(lambda: not any(is_alive(pid) for pid in ranks), 5, "no rank is left")


def start_pair(run, group, front):
    """The ranks' container and the coordinator's, of two pods."""
    worker = Container(run, group, group.containers[0])
    ranks = {port: local for port, local in worker.ports.items() if port < 9000}
    return worker, Container(run, front, front.containers[0], ranks)


class Programs(unittest.TestCase):
    def test_one_rank(self):
        pods = pods_of("one-rank")
        with Run() as run:
            worker, front = start_pair(run, pods["StatefulSet"], pods["Deployment"])
            worker.wait_probes()
            front.wait_probes()
            self.check_doors(worker, front)
            ask(self, front.named["http"])
            self.check_stopped_worker(worker)
            end(self, worker, front)

    def check_doors(self, worker, front):
        """The doors answer what kubernetes_check.py believes of them, and nothing else."""
        for container, door, port in ((front, "--http", "http"), (front, "--metrics", "metrics"),
                                      (worker, "--metrics", "metrics")):
            for path in kubernetes_check.DOOR_PATHS[door]:
                self.assertEqual(get(container.named[port], path), 200, (door, path))
            self.assertEqual(get(container.named[port], "/readyz"), 404)
        for container, port in ((front, 7070), (worker, 7071)):
            for service in kubernetes_check.GRPC_SERVICES:
                self.assertTrue(container.is_healthy(service, port), (port, service))
            self.assertFalse(container.is_healthy("alive", port))

    def check_stopped_worker(self, worker):
        worker.program.process.send_signal(signal.SIGSTOP)
        try:
            self.assertFalse(worker.answers("livenessProbe"))
        finally:
            worker.program.process.send_signal(signal.SIGCONT)
        wait_until(lambda: worker.answers("readinessProbe"), START_S, "the rank goes on")

    def test_two_ranks_in_a_pod(self):
        pods = pods_of("one-node")
        with Run() as run:
            worker, front = start_pair(run, pods["StatefulSet"], pods["Deployment"])
            worker.wait_probes()
            front.wait_probes()
            ask(self, front.named["http"])
            self.check_stopped_rank(worker)
            self.assertEqual(worker.program.log().count('"ready"'), 2, worker.program.log())
            end(self, worker, front)
            self.assertEqual(worker.program.log().count('"stopped"'), 2, worker.program.log())

    def check_stopped_rank(self, worker):
        """Rank 1 alone stops, which rank 0 does not notice between steps."""
        pid = next(pid for pid in descendants(worker.program.pid) if is_rank(pid, 1))
        os.kill(pid, signal.SIGSTOP)
        try:
            self.assertTrue(worker.is_healthy("live", 7071))
            self.assertFalse(worker.answers("livenessProbe"))
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: worker.answers("livenessProbe"), START_S, "the rank goes on")

    def test_certificates_and_keys(self):
        pods = pods_of("tls")
        with Run() as run, MadeCa("rank=outrider-worker", "caller=outrider-coordinator") as ranks, \
                MadeCa("front=outrider,127.0.0.1") as fronts:
            for made, name, place in ((ranks, "rank", "worker/tls"),
                                      (ranks, "caller", "coordinator/tls/target"),
                                      (fronts, "front", "coordinator/tls/front")):
                run.file(made.read("ca.pem"), place, "ca.crt")
                run.file(made.read(name + ".pem"), place, "tls.crt")
                run.file(made.read(name + ".key"), place, "tls.key")
            keys = os.path.join(run.folder, "coordinator", "keys", "keys")
            os.makedirs(os.path.dirname(keys))
            key = subprocess.run([os.path.join(PROGRAMS, "outrider"), "key", "add", keys, "a"],
                                 capture_output=True, encoding="utf-8", check=True).stdout.strip()
            worker, front = start_pair(run, pods["StatefulSet"], pods["Deployment"])
            worker.wait_probes()
            front.wait_probes()
            context = ssl.create_default_context(cafile=fronts.path("ca.pem"))
            ask(self, front.named["http"], context, key)
            with self.assertRaises(urllib.error.HTTPError):
                ask(self, front.named["http"], context)
            end(self, worker, front)

    def test_a_leader_with_a_coordinator(self):
        """The cell of a LeaderWorkerSet, with the environment that its controller sets. A group of
        one rank, because a CPU's ranks do not meet over NCCL."""
        leader = pods_of("cells")["LeaderWorkerSet leader"]
        rank, front = leader.containers
        environment = {"LWS_LEADER_ADDRESS": "localhost", "LWS_GROUP_SIZE": "1",
                       "LWS_WORKER_INDEX": "0"}
        with Run() as run:
            worker = Container(run, leader, rank, drop=("--device=cuda",), environment=environment)
            front = Container(run, leader, front, {7071: worker.ports[7071]},
                              environment=environment)
            worker.wait_probes()
            front.wait_probes()
            ask(self, front.named["http"])
            with urllib.request.urlopen(f"http://127.0.0.1:{front.named['http']}/metrics",
                                        timeout=5) as page:
                text = page.read().decode()
            for name in ("num_requests_waiting", "num_requests_running", "kv_cache_usage_perc"):
                self.assertIn(f"vllm:{name}", text)
            end(self, worker, front)


if __name__ == "__main__":
    socket.setdefaulttimeout(60)
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
