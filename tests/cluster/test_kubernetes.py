#!/usr/bin/env python3
# ctest: labels=quick,slow libs=client beside=yes timeout=600
"""deploy/kubernetes: every overlay is rendered by kubectl's kustomize and held against the schemas
of Kubernetes and of the custom kinds, against itself (selectors, ports, secrets) and against the
programs (options, ports, probes, metrics); it is, to the byte, what deploy/kubernetes/render makes
of the chart with Helm's engine; and manifests with one thing wrong are all refused. No cluster is
needed. test_kubernetes_run.py runs programs as the manifests say.

    test_kubernetes.py BUILD [Class]
    test_kubernetes.py BUILD --crds FOLDER      compares tests/support/kubernetes_kinds.yaml with
                                                the CustomResourceDefinitions in FOLDER"""
import copy
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "build/release"
import pypi
pypi.enter(BUILD, "kubernetes.txt")
import kubernetes_check
import kubernetes_schema
import yaml
from cluster import SOURCE

FOLDER = os.path.join(SOURCE, "deploy", "kubernetes")
CHART = os.path.join(FOLDER, "chart")
OVERLAYS = sorted(os.listdir(os.path.join(FOLDER, "overlays")))
NAMESPACE = "outrider"


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as file:
        return file.read()


def adapter_rules():
    values = yaml.safe_load(read("deploy", "kubernetes", "prometheus-adapter.yaml"))
    return values["rules"]["custom"]


def source_of(rule):
    return rule["seriesQuery"].partition("{")[0]


def coordinator_series():
    table = read("coordinator", "signals", "signals_rows.h")
    names = {"outrider_" + name for name in re.findall(r'^SIGNAL\(\w+, \w+, "(\w+)"', table, re.M)}
    return names | {name + "_bucket" for name in names}


def made_metrics():
    """Returns the metrics of prometheus-adapter.yaml, whose sources must be metrics of the
    coordinator."""
    series = coordinator_series()
    return {rule["name"]["as"] for rule in adapter_rules() if source_of(rule) in series}


class World:
    """Objects that all tests share, made once."""
    overlays = {}
    schemas = None
    options = {}
    metrics = set()
    environment = set()

    @classmethod
    def make(cls):
        cls.schemas = kubernetes_schema.Schemas()
        programs = os.path.join(BUILD, "bin")
        for name in kubernetes_check.PROGRAMS:
            cls.options[name] = kubernetes_check.options_of([os.path.join(programs, name)])
        cls.options["outrider-group"] = {**cls.options["outrider-worker"],
                                         **cls.options["outrider-group"]}
        cls.options["outrider health"] = kubernetes_check.options_of(
            [os.path.join(programs, "outrider"), "health"])
        cls.metrics = made_metrics()
        cls.environment = set(re.findall(r"`(OUTRIDER_[A-Z_]+)`", read("docs", "options.md")))
        for name in OVERLAYS:
            cls.overlays[name] = kubernetes_schema.render_kustomize(
                os.path.join(FOLDER, "overlays", name))

    @classmethod
    def problems(cls, items):
        return kubernetes_check.problems(items, cls.schemas, cls.options, cls.metrics,
                                         cls.environment)


class Overlays(unittest.TestCase):
    def test_every_overlay_is_right(self):
        for name in OVERLAYS:
            with self.subTest(overlay=name):
                self.assertEqual(World.problems(World.overlays[name]), [])

    def test_its_one_file_is_enough_without_kustomize(self):
        for name in OVERLAYS:
            with self.subTest(overlay=name):
                text = read("deploy", "kubernetes", "overlays", name, "outrider.yaml")
                items = kubernetes_schema.load(text)
                self.assertEqual(by_title(items), by_title(World.overlays[name]))
                self.assertEqual([item["kind"] for item in items[:3]],
                                 ["Namespace", "ServiceAccount", "PriorityClass"])

    def test_the_readme_names_every_overlay_and_no_other(self):
        text = read("deploy", "kubernetes", "README.md")
        table = re.search(r"^\| overlay \|.*\n(?:\|.*\n)+", text, re.M)[0]
        self.assertEqual(sorted(re.findall(r"^\| ([a-z-]+) \|", table, re.M)[1:]), OVERLAYS)

    def test_all_kinds_of_the_schemas_are_used(self):
        used = {kubernetes_schema.kind_of(item) for items in World.overlays.values()
                for item in items}
        self.assertLessEqual(set(World.schemas.custom), used)

    def test_every_image_is_built(self):
        if not os.path.exists(os.path.join(SOURCE, "deploy", "image", "recipe")):
            self.skipTest("deploy/image is not there")
        recipe = read("deploy", "image", "recipe")
        built = set(re.search(r"^IMAGES=\((.*)\)$", recipe, re.M)[1].split())
        self.assertLessEqual(kubernetes_check.IMAGES - {"outrider-models"}, built)

    def test_the_namespace_refuses_what_is_not_restricted(self):
        for name, items in World.overlays.items():
            labels = next(item for item in items if item["kind"] == "Namespace")[
                "metadata"]["labels"]
            self.assertEqual(labels["pod-security.kubernetes.io/enforce"], "restricted", name)

    def test_everything_is_denied_by_default(self):
        for name, items in World.overlays.items():
            policies = [item["spec"] for item in items if item["kind"] == "NetworkPolicy"]
            default = [spec for spec in policies if spec["podSelector"] == {}]
            self.assertEqual(len(default), 1, name)
            self.assertEqual(default[0]["policyTypes"], ["Ingress", "Egress"])
            self.assertNotIn("ingress", default[0])
            self.assertEqual({port["port"] for rule in default[0]["egress"]
                              for port in rule["ports"]}, {53})

    def test_the_pod_that_fills_the_claim_is_right(self):
        pod = yaml.safe_load(read("deploy", "kubernetes", "copy-models.yaml"))
        self.assertEqual(World.schemas.problems(pod), [])
        claim = at(World.overlays["one-rank"], "PersistentVolumeClaim")
        self.assertEqual(pod["spec"]["volumes"][0]["persistentVolumeClaim"],
                         {"claimName": claim["metadata"]["name"]})
        self.assertEqual(pod["metadata"]["namespace"], claim["metadata"]["namespace"])
        check = kubernetes_check.Check([], {}, set(), set())
        check.look_at_security("it", kubernetes_check.Pod(pod, "", pod, 1),
                               pod["spec"]["containers"][0])
        self.assertEqual(check.found, [])

    def test_the_readme_shows_an_overlay_of_ones_own_that_is_right(self):
        text = read("deploy", "kubernetes", "README.md")
        text = re.search(r"<<END\n(.*?)^ *END$", text, re.M | re.S)[1]
        with tempfile.TemporaryDirectory() as folder:
            there = os.path.relpath(FOLDER, os.path.realpath(folder))
            with open(os.path.join(folder, "kustomization.yaml"), "w", encoding="utf-8") as file:
                file.write(textwrap.dedent(text).replace("../deploy/kubernetes", there))
            items = kubernetes_schema.render_kustomize(folder)
        self.assertEqual(World.problems(items), [])
        for kind in ("Deployment", "StatefulSet"):
            self.assertTrue(container(items, kind)["image"].startswith("registry.example/"))


@unittest.skipUnless(importlib.util.find_spec("helm_python"), "Helm's engine is for x86-64 alone")
class Chart(unittest.TestCase):
    def test_helm_has_nothing_to_say_about_it(self):
        import helm_python
        said = helm_python.lint(CHART, strict=True)
        self.assertEqual([each for each in said["messages"] if "icon" not in str(each)], [])

    def test_every_overlay_is_rendered_from_the_chart_as_it_is(self):
        done = render("--check")
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_an_overlay_that_is_not_what_the_chart_makes_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(FOLDER, folder, dirs_exist_ok=True)
            overlays = os.path.join(folder, "overlays")
            examples = os.path.join(folder, "chart", "examples")
            append(os.path.join(examples, "one-node.yaml"), "drainTimeout: 20\n")
            append(os.path.join(overlays, "tls", "outrider.yaml"), "# by hand\n")
            os.remove(os.path.join(overlays, "lws", "kustomization.yaml"))
            os.rename(os.path.join(examples, "mpijob.yaml"), os.path.join(examples, "mpi.yaml"))
            done = render("--check", "--folder", folder)
            self.assertEqual([done.returncode, *done.stderr.splitlines()[:-1]], [1,
                "overlays/lws/kustomization.yaml: is not there",
                "overlays/mpi/kustomization.yaml: is not there",
                "overlays/mpi/outrider.yaml: is not there",
                "overlays/mpijob/kustomization.yaml: is of no example of the chart",
                "overlays/mpijob/outrider.yaml: is of no example of the chart",
                "overlays/one-node/outrider.yaml: is not what the chart makes",
                "overlays/tls/outrider.yaml: is not what the chart makes"])
            self.check_that_it_is_rendered_anew(folder, overlays)

    def test_an_example_that_the_chart_refuses_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(FOLDER, folder, dirs_exist_ok=True)
            append(os.path.join(folder, "chart", "examples", "mpijob.yaml"), "tls: true\n")
            done = render("--folder", folder)
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1), done.stderr)
            self.assertIn("chart/examples/mpijob.yaml: ", done.stderr)
            self.assertIn("tls wants group.kind", done.stderr)

    def check_that_it_is_rendered_anew(self, folder, overlays):
        own = os.path.join(overlays, "one-rank", "own.yaml")
        append(own, "# of a user\n")
        done = render("--folder", folder)
        self.assertEqual((done.returncode, done.stderr.splitlines()[:-1]),
                         (1, ["overlays/one-rank/own.yaml: is of no example of the chart"]))
        os.remove(own)
        self.assertEqual(render("--check", "--folder", folder).returncode, 0)
        items = kubernetes_schema.render_kustomize(os.path.join(overlays, "one-node"))
        self.assertIn("--drain-timeout=20", container(items, "StatefulSet")["args"])

    def test_helm_installs_what_the_overlays_have(self):
        for name in OVERLAYS:
            with self.subTest(overlay=name):
                values = yaml.safe_load(read("deploy", "kubernetes", "chart", "examples",
                                             name + ".yaml"))
                rendered = kubernetes_schema.render_chart(CHART, values or {}, NAMESPACE)
                wanted = [item for item in World.overlays[name] if item["kind"] != "Namespace"]
                self.assertEqual(by_title(rendered), by_title(wanted))

    def test_other_values_make_what_is_right_too(self):
        for values in ({"group": {"ranks": 4}}, {"group": {"ranks": 3}},
                       {"group": {"ranks": 2, "count": 8}, "tls": True},
                       {"group": {"kind": "MPIJob", "ranks": 4, "count": 2}},
                       {"group": {"kind": "LeaderWorkerSet", "ranks": 8}, "tls": True},
                       {"drainTimeout": 100, "gracePeriodSeconds": 120},
                       {"drainTimeout": 100, "gracePeriodSeconds": 120,
                        "group": {"kind": "MPIJob"}},
                       {"image": {"registry": "registry.example.com/a", "tag": "1"}},
                       {"models": {"image": "outrider-models:1"}, "tls": True,
                        "monitoring": {"enabled": True}, "autoscaling": {"enabled": True}},
                       {"monitoring": {"enabled": True}, "autoscaling": {"enabled": True},
                        "group": {"ranks": 8}, "coordinator": {"args": ["--queue=9"]}}):
            with self.subTest(values=values):
                rendered = kubernetes_schema.render_chart(CHART, values, NAMESPACE)
                self.assertGreater(len(rendered), 8)
                self.assertEqual(World.problems(rendered), [])

    def test_a_head_takes_the_place_of_the_draft(self):
        rendered = kubernetes_schema.render_chart(CHART, {"coordinator": {"head": "/models/head"}},
                                                  NAMESPACE)
        self.assertEqual(World.problems(rendered), [])
        [args] = [container["args"] for item in rendered if item["kind"] == "Deployment"
                  for container in item["spec"]["template"]["spec"]["containers"]]
        self.assertIn("--head=/models/head", args)
        self.assertIn("--tokenizer=/models/target", args)
        self.assertFalse([arg for arg in args if arg.startswith("--draft=")])

    def test_values_that_make_no_sense_are_refused(self):
        import helm_python
        for values in ({"grups": 2}, {"group": {"ranks": "two"}}, {"group": {"ranks": 0}},
                       {"group": {"ranks": 16}}, {"group": {"kind": "Pod"}}, {"drainTimeout": 60},
                       {"cells": True}, {"tls": True, "group": {"kind": "MPIJob"}}):
            with self.subTest(values=values), self.assertRaises(helm_python.HelmError):
                kubernetes_schema.render_chart(CHART, values, NAMESPACE)


def render(*words):
    """deploy/kubernetes/render, in this Python, which has Helm's engine."""
    return subprocess.run([sys.executable, os.path.join(FOLDER, "render"), *words],
                          capture_output=True, encoding="utf-8", timeout=60, check=False)


def append(path, text):
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)


def by_title(items):
    found = {kubernetes_schema.title(item): item for item in items}
    assert len(found) == len(items), "two objects have one name"
    return found


class Adapter(unittest.TestCase):
    def test_its_rules_are_of_metrics_that_are_there(self):
        self.assertEqual(len(made_metrics()), len(adapter_rules()))
        self.assertGreater(len(coordinator_series()), 50)

    def test_prometheus_understands_its_queries(self):
        if not shutil.which("promtool"):
            self.skipTest("there is no promtool on this machine")
        rules = []
        for rule in adapter_rules():
            query = rule["metricsQuery"].replace("<<.Series>>", source_of(rule))
            query = query.replace("<<.LabelMatchers>>", 'namespace="outrider",service="outrider"')
            rules.append({"record": rule["name"]["as"] + ":made",
                          "expr": query.replace("<<.GroupBy>>", "service")})
            self.assertNotIn("<<", rules[-1]["expr"])
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump({"groups": [{"name": "adapter", "rules": rules}]}, file)
            file.flush()
            done = subprocess.run(["promtool", "check", "rules", file.name], capture_output=True,
                                  encoding="utf-8", check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


# ---- one thing wrong

def at(items, kind, name=None):
    return next(item for item in items if item["kind"] == kind
                and name in (None, item["metadata"]["name"]))


def container(items, kind="Deployment", index=0):
    spec = at(items, kind)["spec"]
    if kind == "LeaderWorkerSet":
        return spec["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][index]
    if kind == "MPIJob":
        return spec["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][index]
    return spec["template"]["spec"]["containers"][index]


def change_option(items, kind, old, new):
    args = container(items, kind)["args"]
    place = args.index(old)
    args[place:place + 1] = [new] if new else []


def put(place, *path_and_value):
    *path, last, value = path_and_value
    for key in path:
        place = place[key]
    place[last] = value


def drop(place, *path):
    *path, last = path
    for key in path:
        place = place[key]
    del place[last]


# (overlay, what is wrong, the change, a part of the sentence that refuses it)
WRONG = [
    ("one-rank", "a misspelt field of a pod", lambda i: put(
        container(i), "imagePullPolice", "Always"), "imagePullPolice"),
    ("one-rank", "a misspelt field of a probe", lambda i: put(
        container(i), "readinessProbe", "periodSecond", 3), "periodSecond"),
    ("one-rank", "a text for a number", lambda i: put(
        at(i, "Deployment"), "spec", "replicas", "one"), "'one'"),
    ("one-rank", "a number for a text", lambda i: container(i)["args"].append(5), "5"),
    ("one-rank", "no selector", lambda i: drop(at(i, "Deployment"), "spec", "selector"),
     "selector"),
    ("one-rank", "a kind that is not there", lambda i: put(
        at(i, "Deployment"), "apiVersion", "apps/v1beta7"), "no kind"),
    ("one-rank", "a selector that matches other labels", lambda i: put(
        at(i, "StatefulSet"), "spec", "selector", "matchLabels", "app.kubernetes.io/component",
        "ranks"), "does not match its own pods"),
    ("one-rank", "a Service without pods", lambda i: put(
        at(i, "Service", "outrider"), "spec", "selector", "app.kubernetes.io/component", "front"),
     "matches no pod"),
    ("one-rank", "a Service of a port that no pod has", lambda i: put(
        at(i, "Service", "outrider"), "spec", "ports", 1, "targetPort", "web"), "no port web"),
    ("one-rank", "ranks that are found only when they are ready", lambda i: drop(
        at(i, "Service", "outrider-worker"), "spec", "publishNotReadyAddresses"),
     "not a headless Service"),
    ("one-rank", "a probe of a port that is not there", lambda i: put(
        container(i), "readinessProbe", "httpGet", "port", "web"), "nothing answers"),
    ("one-rank", "a probe of a path that is not there", lambda i: put(
        container(i), "readinessProbe", "httpGet", "path", "/readyz"), "nothing answers /readyz"),
    ("one-rank", "a probe of a service that has no health", lambda i: put(
        container(i, "StatefulSet"), "livenessProbe", "grpc", "service", "alive"),
     "no service alive"),
    ("one-rank", "a liveness that asks for readiness", lambda i: drop(
        container(i, "StatefulSet"), "livenessProbe", "grpc", "service"), "makes progress"),
    ("one-rank", "no liveness", lambda i: drop(container(i), "livenessProbe"), "livenessProbe"),
    ("one-rank", "an option that is not there", lambda i: container(i)["args"].append(
        "--drafts=/models/draft"), "no option --drafts"),
    ("one-rank", "an option without its value", lambda i: container(i)["args"].append("--queue"),
     "needs a value"),
    ("one-rank", "a flag with a value", lambda i: change_option(
        i, "Deployment", "--insecure", "--insecure=yes"), "takes no value"),
    ("one-rank", "a variable that nobody reads", lambda i: put(
        container(i), "env", [{"name": "OUTRIDER_DRAFT", "value": "x"}]), "OUTRIDER_DRAFT"),
    ("one-rank", "a port that is opened and not named", lambda i: change_option(
        i, "StatefulSet", "--metrics=0.0.0.0:9400", "--metrics=0.0.0.0:9500"), "its ports"),
    ("one-rank", "a drain that is longer than the grace period", lambda i: change_option(
        i, "Deployment", "--drain-timeout=30", "--drain-timeout=60"), "too short"),
    ("one-rank", "ranks at a port that nobody calls", lambda i: change_option(
        i, "Deployment", "--target=dns:outrider-worker:7071", "--target=dns:outrider-worker:7070"),
     "calls ranks at"),
    ("one-rank", "a door that the program refuses to open", lambda i: change_option(
        i, "Deployment", "--insecure", None), "refuse to listen"),
    ("one-rank", "a model that is on no volume", lambda i: change_option(
        i, "StatefulSet", "--model=/models/target", "--model=/model/target"), "is on no volume"),
    ("one-rank", "a program that may get privileges", lambda i: put(
        container(i), "securityContext", "allowPrivilegeEscalation", True),
     "allowPrivilegeEscalation"),
    ("one-rank", "a root file system that can be written", lambda i: drop(
        container(i), "securityContext", "readOnlyRootFilesystem"), "readOnlyRootFilesystem"),
    ("one-rank", "a capability", lambda i: put(
        container(i), "securityContext", "capabilities", "add", ["NET_BIND_SERVICE"]),
     "keeps capabilities"),
    ("one-rank", "a volume that nobody mounts", lambda i: container(i)["volumeMounts"].pop(),
     "volumes and mounts differ"),
    ("one-rank", "a claim that is not there", lambda i: i.remove(at(i, "PersistentVolumeClaim")),
     "there is no claim"),
    ("one-rank", "an image that nobody builds", lambda i: put(
        container(i), "image", "outrider-front:latest"), "there is no image"),
    ("one-rank", "a policy for a port that nobody has", lambda i: put(
        at(i, "NetworkPolicy", "outrider-worker"), "spec", "ingress", 0, "ports", 0, "port", 7099),
     "has the port 7099"),
    ("one-rank", "a policy from pods that are not there", lambda i: put(
        at(i, "NetworkPolicy", "outrider-worker"), "spec", "ingress", 0, "from", 0, "podSelector",
        "matchLabels", "app.kubernetes.io/component", "front"), "matches no pod"),
    ("one-rank", "a budget of pods that are not there", lambda i: put(
        at(i, "PodDisruptionBudget"), "spec", "selector", "matchLabels",
        "app.kubernetes.io/component", "rank"), "matches no pod"),
    ("one-node", "more ranks than ports", lambda i: change_option(
        i, "StatefulSet", "--ranks=2", "--ranks=3"), "its ports"),
    ("one-node", "a rank that the coordinator does not call", lambda i: change_option(
        i, "Deployment", "--target=dns:outrider-worker:7071,dns:outrider-worker:7072",
        "--target=dns:outrider-worker:7071"), "calls ranks at"),
    ("one-node", "a liveness that asks one rank of two", lambda i: put(
        container(i, "StatefulSet"), "livenessProbe", "exec", "command", 3,
        "--address=127.0.0.1:7071"), "does not ask all 2 ranks"),
    ("lws", "a policy of restarts that is not there", lambda i: put(
        at(i, "LeaderWorkerSet"), "spec", "leaderWorkerTemplate", "restartPolicy", "Always"),
     "'Always'"),
    ("lws", "a misspelt field of a LeaderWorkerSet", lambda i: put(
        at(i, "LeaderWorkerSet"), "spec", "leaderWorkerTemplate", "sizes", 2), "sizes"),
    ("lws", "a misspelt field of its pods", lambda i: put(
        container(i, "LeaderWorkerSet"), "argz", []), "argz"),
    ("lws", "ranks that do not know that they are of a LeaderWorkerSet", lambda i: change_option(
        i, "LeaderWorkerSet", "--lws", None), "--lws"),
    ("mpijob", "no workers", lambda i: drop(
        at(i, "MPIJob"), "spec", "mpiReplicaSpecs", "Worker"), "Worker"),
    ("mpijob", "fewer pods than ranks", lambda i: put(
        at(i, "MPIJob"), "spec", "mpiReplicaSpecs", "Worker", "replicas", 1), "does not start"),
    ("mpijob", "an sshd that ends while its rank drains", lambda i: put(
        container(i, "MPIJob"), "lifecycle", "preStop", "sleep", "seconds", 20),
     "before the launcher has drained"),
    ("mpijob", "a sleep that is longer than the grace period", lambda i: put(
        container(i, "MPIJob"), "lifecycle", "preStop", "sleep", "seconds", 45),
     "too short for preStop"),
    ("mpijob", "keys where no sshd looks", lambda i: put(
        at(i, "MPIJob"), "spec", "sshAuthMountPath", "/root/.ssh"), "look for /home/outrider/.ssh"),
    ("mpijob", "slots as text", lambda i: put(at(i, "MPIJob"), "spec", "slotsPerWorker", "1"),
     "slotsPerWorker"),
    ("monitoring", "a monitor of a port that is not there", lambda i: put(
        at(i, "ServiceMonitor"), "spec", "endpoints", 0, "port", "prometheus"),
     "no port prometheus"),
    ("monitoring", "a misspelt field of a monitor", lambda i: put(
        at(i, "PodMonitor"), "spec", "podMetricsEndpoints", 0, "intervall", "15s"), "intervall"),
    ("monitoring", "a monitor of another path", lambda i: put(
        at(i, "PodMonitor"), "spec", "podMetricsEndpoints", 0, "path", "/stats"), "has no metrics"),
    ("monitoring", "a monitor that finds no Service", lambda i: put(
        at(i, "ServiceMonitor"), "spec", "selector", "matchLabels", "app.kubernetes.io/component",
        "front"), "matches no Service"),
    ("autoscaling", "a metric that nobody makes", lambda i: put(
        at(i, "HorizontalPodAutoscaler"), "spec", "metrics", 0, "object", "metric", "name",
        "outrider_queue_seconds"), "no metric outrider_queue_seconds"),
    ("autoscaling", "a count beside the autoscaler", lambda i: put(
        at(i, "StatefulSet"), "spec", "replicas", 2), "sets the number of groups back"),
    ("cells", "a count beside the autoscaler", lambda i: put(
        at(i, "LeaderWorkerSet"), "spec", "replicas", 2), "sets the number of groups back"),
    ("autoscaling", "something else to scale", lambda i: put(
        at(i, "HorizontalPodAutoscaler"), "spec", "scaleTargetRef", "name", "outrider-groups"),
     "there is no StatefulSet"),
    ("cells", "a pool of a port that is not there", lambda i: put(
        at(i, "InferencePool"), "spec", "targetPorts", 0, "number", 8080), "no port 8080"),
    ("cells", "a pool without a picker", lambda i: drop(
        at(i, "InferencePool"), "spec", "endpointPickerRef"), "endpointPickerRef"),
    ("tls", "a gRPC probe of a door with certificates", lambda i: put(
        container(i), "livenessProbe", {"grpc": {"port": 7070, "service": "live"}}),
     "speaks no TLS"),
    ("tls", "a secret that nobody makes", lambda i: i.remove(
        at(i, "Certificate", "outrider-worker")), "nothing makes outrider-worker-tls"),
    ("tls", "an issuer that is not there", lambda i: i.remove(at(i, "Issuer", "outrider-ranks")),
     "no issuer outrider-ranks"),
    ("tls", "a key file that others can read", lambda i: put(
        at(i, "StatefulSet"), "spec", "template", "spec", "volumes", 3, "secret", "defaultMode",
        0o444), "others may read it"),
    ("tls", "a file that its secret does not hold", lambda i: change_option(
        i, "StatefulSet", "--tls-key=/tls/tls.key", "--tls-key=/tls/key.pem"),
     "not in its secret"),
    ("tls", "a misspelt field of a certificate", lambda i: put(
        at(i, "Certificate"), "spec", "dnsName", ["a"]), "dnsName"),
]


class Wrong(unittest.TestCase):
    def test_one_thing_wrong_is_refused(self):
        for overlay, what, change, sentence in WRONG:
            with self.subTest(overlay=overlay, wrong=what):
                items = copy.deepcopy(World.overlays[overlay])
                change(items)
                self.assertNotEqual(items, World.overlays[overlay])
                found = World.problems(items)
                self.assertTrue(any(sentence in each for each in found), found)


def compare(folder):
    found, compared, known = kubernetes_schema.compare_with_published(folder)
    print("\n".join(found + [f"{len(compared)} kinds compared; not there: "
                             f"{', '.join(sorted(known - compared)) or 'none'}"]))
    return 1 if found or known - compared else 0


if __name__ == "__main__":
    if "--crds" in sys.argv:
        sys.exit(compare(sys.argv[sys.argv.index("--crds") + 1]))
    World.make()
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
