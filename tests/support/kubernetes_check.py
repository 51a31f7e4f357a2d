"""Checks that manifests agree with each other and with the programs: selectors, ports, probes,
options, grace periods, secrets. problems() returns sentences; none if all is well."""
import os
import re
import subprocess

from cluster import SOURCE
from kubernetes_schema import title

WORKLOADS = ("Deployment", "StatefulSet", "LeaderWorkerSet", "MPIJob")
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
# Paths of the HTTP doors, by the option that opens them; tests/cluster/test_kubernetes.py asks real
# programs.
DOOR_PATHS = {"--http": {"/live", "/ready", "/health"},
              "--metrics": {"/live", "/ready", "/health", "/metrics"}}
GRPC_SERVICES = {"", "live"}
PROGRAMS = ("outrider-coordinator", "outrider-worker", "outrider-group")
IMAGES = {"outrider-coordinator", "outrider-worker", "outrider-worker-cuda", "outrider-worker-ssh",
          "outrider-models"}
MARGIN_S = 10
# Secrets and pods that users bring themselves: deploy/kubernetes/README.md says so.
BROUGHT_SECRETS = {"outrider-keys": {"keys"}}
BROUGHT_PODS = [{"app.kubernetes.io/name": "outrider-endpoint-picker"}]
TLS_FILES = {"tls.crt", "tls.key", "ca.crt"}


def options_of(program):
    """{name: whether it takes a value} of a program's --help."""
    text = subprocess.run([*program, "--help"], capture_output=True, encoding="utf-8", check=True,
                          env={**os.environ, "ARGP_HELP_FMT": "rmargin=10000"}, timeout=30).stdout
    return {name: bool(value) for name, value in
            re.findall(r"^ {2}(?:-\S, | {4})--([a-z0-9-]+)(=\S+)?", text, re.M)}


class Pod:
    """A pod template and where it is from."""

    def __init__(self, item, role, template, count):
        self.item, self.role, self.count = item, role, count
        self.name = title(item) + (f" {role}" if role else "")
        self.labels = (template.get("metadata") or {}).get("labels") or {}
        self.spec = template["spec"]
        self.containers = self.spec.get("containers") or []

    def ports(self):
        return {port["name"]: port["containerPort"]
                for each in self.containers for port in each.get("ports", [])}


def pods_of(item):
    spec = item["spec"]
    if item["kind"] == "LeaderWorkerSet":
        group = spec["leaderWorkerTemplate"]
        pods = [Pod(item, "", group["workerTemplate"], group.get("size", 1))]
        if "leaderTemplate" in group:
            pods.append(Pod(item, "leader", group["leaderTemplate"], 1))
        return pods
    if item["kind"] == "MPIJob":
        return [Pod(item, role, each["template"], each["replicas"])
                for role, each in spec["mpiReplicaSpecs"].items()]
    return [Pod(item, "", spec["template"], spec.get("replicas", 1))]


def command_of(container):
    """(program, its options {name: value or None}, words that are no options)."""
    words = container.get("command", []) + container.get("args", [])
    options, strange = {}, []
    for word in words[1:]:
        name, is_set, value = word.partition("=")
        if name.startswith("--"):
            options[name] = value if is_set else None
        else:
            strange.append(word)
    return os.path.basename(words[0]) if words else "", options, strange


def ssh_key():
    """Where the image of an MPIJob has its key, as deploy/image/recipe writes it."""
    with open(os.path.join(SOURCE, "deploy", "image", "recipe"), encoding="utf-8") as file:
        text = file.read()
    places = set(re.findall(r"^\s*(?:HostKey|IdentityFile) (\S+)$", text, re.M))
    assert len(places) == 1, places
    return places.pop()


def covers(selector, labels):
    return bool(selector) and selector.items() <= labels.items()


class Check:
    """One overlay's manifests, looked at as a whole."""

    def __init__(self, items, options, metrics, environment):
        self.items, self.options, self.metrics = items, options, metrics
        self.environment = environment
        self.found = []
        self.pods = [pod for item in items if item["kind"] in WORKLOADS for pod in pods_of(item)]

    def say(self, who, text):
        self.found.append(f"{who}: {text}")

    def of(self, kind):
        return [item for item in self.items if item["kind"] == kind]

    def named(self, kind, name):
        return next((item for item in self.of(kind) if item["metadata"]["name"] == name), None)

    def selected(self, who, selector):
        labels = selector.get("matchLabels", selector)
        pods = [pod for pod in self.pods if covers(labels, pod.labels)]
        if not pods and labels not in BROUGHT_PODS:
            self.say(who, f"the selector {labels} matches no pod")
        return pods

    def run(self):
        for item in self.items:
            self.look_at_item(item)
            look = getattr(self, "look_at_" + item["kind"], None)
            if look:
                look(item, item.get("spec", {}))
        for pod in self.pods:
            self.look_at_pod(pod)
            for container in pod.spec.get("initContainers", []):
                self.look_at_container(pod, container, False)
            for container in pod.containers:
                self.look_at_container(pod, container, True)
        return self.found

    def look_at_item(self, item):
        if item["kind"] in ("Namespace", "PriorityClass"):
            return
        if item["metadata"].get("namespace") != "outrider":
            self.say(title(item), "is in another namespace")

    # ---- kinds

    def look_at_workload(self, item, spec):
        labels = spec["selector"]["matchLabels"]
        for pod in self.pods:
            if pod.item is item and not covers(labels, pod.labels):
                self.say(title(item), "its selector does not match its own pods")
            if pod.item is not item and covers(labels, pod.labels):
                self.say(title(item), f"its selector matches the pods of {pod.name}")

    look_at_Deployment = look_at_workload

    def look_at_StatefulSet(self, item, spec):
        self.look_at_workload(item, spec)
        service = self.named("Service", spec.get("serviceName"))
        if not service or service["spec"].get("clusterIP") != "None":
            self.say(title(item), "serviceName is not that of a headless Service")

    def look_at_MPIJob(self, item, spec):
        launcher, worker = (spec["mpiReplicaSpecs"][role] for role in ("Launcher", "Worker"))
        container = launcher["template"]["spec"]["containers"][0]
        ranks = worker["replicas"] * spec.get("slotsPerWorker", 1)
        if command_of(container)[1].get("--ranks") != str(ranks):
            self.say(title(item), f"mpirun does not start {ranks} ranks")
        if "--same-port" not in command_of(container)[1]:
            self.say(title(item), "ranks of different pods want --same-port")
        if spec.get("sshAuthMountPath", "/root/.ssh") != os.path.dirname(ssh_key()):
            self.say(title(item), f"the image's ssh and sshd look for {ssh_key()}")

    def look_at_Service(self, item, spec):
        for pod in self.selected(title(item), spec["selector"]):
            ports = pod.ports()
            for port in spec["ports"]:
                target = port.get("targetPort", port["port"])
                if target not in ports and target not in ports.values():
                    self.say(title(item), f"{pod.name} has no port {target}")

    def look_at_NetworkPolicy(self, item, spec):
        who = title(item)
        pods = self.selected(who, spec["podSelector"]) if spec["podSelector"] else self.pods
        for direction, peers, word in (("ingress", "from", "Ingress"), ("egress", "to", "Egress")):
            if direction in spec and word not in spec["policyTypes"]:
                self.say(who, f"{direction} has no effect without {word} in policyTypes")
            for rule in spec.get(direction, []):
                called = pods if direction == "ingress" else []
                for peer in rule.get(peers, []):
                    if "podSelector" in peer and "namespaceSelector" not in peer:
                        others = self.selected(who, peer["podSelector"])
                        called = called or others
                self.look_at_ports(who, rule, called)

    def look_at_ports(self, who, rule, pods):
        for port in rule.get("ports", []):
            number = port.get("port")
            if pods and not any(number in pod.ports() or number in pod.ports().values()
                                for pod in pods):
                self.say(who, f"no pod that it is about has the port {number}")

    def look_at_PodDisruptionBudget(self, item, spec):
        self.selected(title(item), spec["selector"])

    def look_at_ServiceMonitor(self, item, spec):
        labels = spec["selector"]["matchLabels"]
        services = [each for each in self.of("Service")
                    if covers(labels, each["metadata"].get("labels", {}))]
        if not services:
            self.say(title(item), "its selector matches no Service")
        for service in services:
            names = {port.get("name") for port in service["spec"]["ports"]}
            for endpoint in spec["endpoints"]:
                if endpoint["port"] not in names:
                    self.say(title(item), f"{title(service)} has no port {endpoint['port']}")
                self.look_at_scrape(item, endpoint)

    def look_at_PodMonitor(self, item, spec):
        for pod in self.selected(title(item), spec["selector"]):
            for endpoint in spec["podMetricsEndpoints"]:
                if endpoint["port"] not in pod.ports():
                    self.say(title(item), f"{pod.name} has no port {endpoint['port']}")
                self.look_at_scrape(item, endpoint)

    def look_at_scrape(self, item, endpoint):
        if endpoint.get("path", "/metrics") != "/metrics":
            self.say(title(item), f"{endpoint['path']} has no metrics")

    def look_at_InferencePool(self, item, spec):
        for pod in self.selected(title(item), spec["selector"]):
            for port in spec["targetPorts"]:
                if port["number"] not in pod.ports().values():
                    self.say(title(item), f"{pod.name} has no port {port['number']}")
            if not any("--metrics-vllm" in command_of(each)[1] for each in pod.containers):
                self.say(title(item), f"{pod.name} does not show what the picker reads")

    def look_at_HorizontalPodAutoscaler(self, item, spec):
        who, target = title(item), spec["scaleTargetRef"]
        found = self.named(target["kind"], target["name"])
        if not found or found["apiVersion"] != target["apiVersion"]:
            self.say(who, f"there is no {target['kind']} {target['name']}")
        elif "replicas" in found["spec"]:
            self.say(who, "each time when this is applied it sets the number of groups back")
        if spec["minReplicas"] > spec["maxReplicas"]:
            self.say(who, "minReplicas is more than maxReplicas")
        for metric in spec["metrics"]:
            part = metric[metric["type"].lower()]
            if part["metric"]["name"] not in self.metrics:
                self.say(who, f"no metric {part['metric']['name']} is made")
            described = part.get("describedObject")
            if described and not self.named(described["kind"], described["name"]):
                self.say(who, f"there is no {described['kind']} {described['name']}")

    def look_at_Issuer(self, item, spec):
        secret = spec.get("ca", {}).get("secretName")
        if secret and secret not in self.made_secrets(only_authorities=True):
            self.say(title(item), f"no authority is made in {secret}")

    def look_at_Certificate(self, item, spec):
        if not self.named(spec["issuerRef"].get("kind", "Issuer"), spec["issuerRef"]["name"]):
            self.say(title(item), f"there is no issuer {spec['issuerRef']['name']}")

    def made_secrets(self, only_authorities=False):
        return {each["spec"]["secretName"]: TLS_FILES for each in self.of("Certificate")
                if each["spec"].get("isCA") or not only_authorities}

    # ---- pods

    def look_at_pod(self, pod):
        spec, who = pod.spec, pod.name
        if not self.named("ServiceAccount", spec.get("serviceAccountName")):
            self.say(who, "its service account is not there")
        if spec.get("automountServiceAccountToken") is not False:
            self.say(who, "a token is mounted that nobody needs")
        if not self.named("PriorityClass", spec.get("priorityClassName")):
            self.say(who, "its priority class is not there")
        for term in spec.get("topologySpreadConstraints", []):
            self.selected(who, term["labelSelector"])
        affinity = (spec.get("affinity") or {}).get("podAffinity", {})
        for term in affinity.get("preferredDuringSchedulingIgnoredDuringExecution", []):
            self.selected(who, term["podAffinityTerm"]["labelSelector"])
        self.look_at_volumes(pod)
        names = [port["name"] for each in pod.containers for port in each.get("ports", [])]
        if len(names) != len(set(names)) or len(set(pod.ports().values())) != len(names):
            self.say(who, "two ports of its containers are the same")

    def look_at_volumes(self, pod):
        volumes = {each["name"]: each for each in pod.spec.get("volumes", [])}
        containers = pod.containers + pod.spec.get("initContainers", [])
        mounted = {mount["name"] for each in containers for mount in each.get("volumeMounts", [])}
        if mounted != set(volumes):
            self.say(pod.name, f"volumes and mounts differ: {sorted(mounted ^ set(volumes))}")
        secrets = {**BROUGHT_SECRETS, **self.made_secrets()}
        for name, volume in volumes.items():
            claim = volume.get("persistentVolumeClaim")
            if claim and not self.named("PersistentVolumeClaim", claim["claimName"]):
                self.say(pod.name, f"volume {name}: there is no claim {claim['claimName']}")
            secret = volume.get("secret")
            if secret and secret["secretName"] not in secrets:
                self.say(pod.name, f"volume {name}: nothing makes {secret['secretName']}")
            if secret and secret.get("defaultMode", 0o644) & 0o027:
                self.say(pod.name, f"volume {name}: others may read it, or the group write it")

    def files_of(self, pod, container):
        """{mount path: names of its files, or None where nobody knows}."""
        secrets = {**BROUGHT_SECRETS, **self.made_secrets()}
        volumes = {each["name"]: each for each in pod.spec.get("volumes", [])}
        return {mount["mountPath"]:
                secrets.get(volumes.get(mount["name"], {}).get("secret", {}).get("secretName"))
                for mount in container.get("volumeMounts", [])}

    def look_at_container(self, pod, container, is_main):
        who = f"{pod.name}, container {container['name']}"
        self.look_at_security(who, pod, container)
        resources = {"limits": {}, "requests": {}, **container.get("resources", {})}
        if "memory" not in resources["limits"] or "cpu" not in resources["requests"]:
            self.say(who, "wants a request for CPU and a limit of memory")
        image = container["image"].rpartition("/")[2].partition(":")[0]
        if image not in IMAGES:
            self.say(who, f"there is no image {image}")
        for variable in container.get("env", []):
            if variable["name"] not in self.environment:
                self.say(who, f"no program reads {variable['name']}")
        if is_main:
            self.look_at_command(who, pod, container)

    def look_at_security(self, who, pod, container):
        both = {**pod.spec.get("securityContext", {}), **container.get("securityContext", {})}
        wanted = {"runAsNonRoot": True, "allowPrivilegeEscalation": False,
                  "readOnlyRootFilesystem": True, "seccompProfile": {"type": "RuntimeDefault"}}
        for name, value in wanted.items():
            if both.get(name) != value:
                self.say(who, f"{name} is not {value}")
        if both.get("capabilities", {}) != {"drop": ["ALL"]}:
            self.say(who, "keeps capabilities")
        if not both.get("runAsUser") or both.get("privileged"):
            self.say(who, "runs as root or with privileges")
        for name in ("hostNetwork", "hostPID", "hostIPC"):
            if pod.spec.get(name):
                self.say(who, f"has {name}")

    # ---- programs

    def look_at_command(self, who, pod, container):
        program, options, strange = command_of(container)
        if program == "sshd":
            launcher = next(each for each in self.pods
                            if each.item is pod.item and each.role == "Launcher")
            options = command_of(launcher.containers[0])[1]
            self.look_at_grace(who, pod, container, options, is_sshd=True)
            self.look_at_probes(who, pod, container, options, 1)
            return
        if program not in self.options:
            self.say(who, f"runs {program or 'nothing'}")
            return
        for name, value in options.items():
            takes = self.options[program].get(name[2:])
            if takes is None:
                self.say(who, f"{program} has no option {name}")
            elif takes != (value is not None):
                self.say(who, f"{name} {'needs a' if takes else 'takes no'} value")
        for word in strange:
            self.say(who, f"{program} takes no {word}")
        self.look_at_grace(who, pod, container, options)
        self.look_at_files(who, pod, container, options)
        self.look_at_callers(who, program, options)
        if pod.role == "Launcher":
            return
        n_ranks = int(options.get("--ranks") or 1)
        self.look_at_doors(who, container, options, n_ranks)
        self.look_at_probes(who, pod, container, options, n_ranks)
        if program == "outrider-coordinator":
            self.look_at_target(who, pod, options.get("--target") or "")
        elif ("--lws" in options) != (pod.item["kind"] == "LeaderWorkerSet"):
            self.say(who, "--lws belongs to ranks of a LeaderWorkerSet")

    def look_at_grace(self, who, pod, container, options, is_sshd=False):
        drain = int(options.get("--drain-timeout") or 5)
        sleep = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        grace = pod.spec.get("terminationGracePeriodSeconds", 30)
        if is_sshd:  # it ends at once at SIGTERM, and the rank with it
            if not sleep > drain:
                self.say(who, "sshd ends before the launcher has drained the ranks")
            drain = 0
        if grace < sleep + drain + MARGIN_S:
            self.say(who, f"a grace period of {grace} s is too short for preStop ({sleep} s), "
                          f"the drain ({drain} s) and {MARGIN_S} s more")

    def look_at_files(self, who, pod, container, options):
        mounts = self.files_of(pod, container)
        if pod.role == "Launcher":  # its options are those of the ranks
            worker = next(each for each in self.pods
                          if each.item is pod.item and each.role == "Worker")
            mounts = self.files_of(worker, worker.containers[0])
        for name, value in options.items():
            if not (value or "").startswith("/"):
                continue
            mount = next((each for each in mounts if value.startswith(each + "/")), None)
            if mount is None:
                self.say(who, f"{name}={value} is on no volume")
            elif mounts[mount] and value[len(mount) + 1:] not in mounts[mount]:
                self.say(who, f"{name}={value} is not in its secret")

    def look_at_callers(self, who, program, options):
        is_open = "--insecure" in options
        if program == "outrider-coordinator":
            is_safe = "--keys" in options or "--tls-certificate" in options
        else:
            is_safe = "--tls-client-ca" in options
        if not is_open and not is_safe:
            self.say(who, "the program will refuse to listen where strangers can call")
        if is_open and is_safe:
            self.say(who, "--insecure says nothing beside certificates or keys")

    def look_at_doors(self, who, container, options, n_ranks):
        has = {port["containerPort"] for port in container.get("ports", [])}
        opened = set()
        for door in ("--listen", "--http", "--metrics"):
            if door in options:
                first = int(options[door].rpartition(":")[2])
                ranks = 1 if door == "--http" else n_ranks
                opened.update(range(first, first + ranks))
        if has != opened:
            self.say(who, f"its ports {sorted(has)} are not those that it opens, {sorted(opened)}")

    def look_at_probes(self, who, pod, container, options, n_ranks):
        named = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
        doors = {int(options[door].rpartition(":")[2]): door
                 for door in ("--listen", "--http", "--metrics") if door in options}
        for probe in PROBES:
            found = container.get(probe)
            if not found:
                self.say(who, f"has no {probe}")
                continue
            if "tcpSocket" in found and found["tcpSocket"]["port"] not in named:
                self.say(who, f"{probe}: no port {found['tcpSocket']['port']}")
            if "grpc" in found:
                self.look_at_grpc(who, probe, found["grpc"], doors, options)
            if "httpGet" in found:
                get = found["httpGet"]
                port = named.get(get["port"], get["port"])
                door = doors.get(port)
                if get["path"] not in DOOR_PATHS.get(door, ()):
                    self.say(who, f"{probe}: nothing answers {get['path']} at port {get['port']}")
                elif door == "--http" and "--tls-certificate" in options:
                    self.say(who, f"{probe}: the door has certificates, ask that of the metrics")
            if "exec" in found:
                self.look_at_exec(who, probe, found["exec"]["command"], doors, n_ranks)
                self.look_at_files(who, pod, container, {
                    name: value for word in found["exec"]["command"]
                    for name, _, value in [word.partition("=")]})
        if n_ranks > 1 and "exec" not in container.get("livenessProbe", {}):
            self.say(who, f"livenessProbe: does not ask all {n_ranks} ranks")
        liveness = container.get("livenessProbe", {})
        answers = (liveness.get("grpc", {}).get("service") == "live" or "exec" in liveness
                   or liveness.get("httpGet", {}).get("path") == "/live")
        if liveness and not answers:
            self.say(who, "livenessProbe: does not ask whether the process makes progress")

    def look_at_grpc(self, who, probe, grpc, doors, options):
        if doors.get(grpc["port"]) != "--listen":
            self.say(who, f"{probe}: no gRPC at port {grpc['port']}")
        if grpc.get("service", "") not in GRPC_SERVICES:
            self.say(who, f"{probe}: no service {grpc['service']} has a health")
        if "--tls-certificate" in options:
            self.say(who, f"{probe}: the kubelet's gRPC speaks no TLS")

    def look_at_exec(self, who, probe, words, doors, n_ranks):
        if words[:2] != ["outrider", "health"]:
            self.say(who, f"{probe}: runs {words[0]}")
            return
        asked = {int(address.rpartition(":")[2]) for word in words
                 if word.startswith("--address=") for address in word[10:].split(",")}
        first = next(port for port, door in doors.items() if door == "--listen")
        if asked != set(range(first, first + n_ranks)):
            self.say(who, f"{probe}: does not ask all {n_ranks} ranks")
        for word in words[2:]:
            if word.partition("=")[0][2:] not in self.options["outrider health"]:
                self.say(who, f"{probe}: outrider health has no option {word}")

    def look_at_target(self, who, pod, target):
        ranks = [each for each in self.pods if each.labels.get("app.kubernetes.io/component")
                 == "worker"]
        wanted = {port["containerPort"] for each in ranks for container in each.containers
                  for port in container.get("ports", []) if port["name"].startswith("rank")}
        called = set()
        for item in target.split(","):
            if item.startswith("lws:"):
                called.add(int(item[4:]))
                if pod.item["kind"] != "LeaderWorkerSet":
                    self.say(who, "lws: is for a coordinator in a leader's pod")
                continue
            match = re.fullmatch(r"dns:([a-z0-9.-]+):(\d+)", item)
            if not match:
                self.say(who, f"--target: {item}")
                continue
            service = self.named("Service", match[1])
            if not service or service["spec"].get("clusterIP") != "None" or \
                    not service["spec"].get("publishNotReadyAddresses"):
                self.say(who, f"{match[1]} is not a headless Service of all ranks")
            called.add(int(match[2]))
        if called != wanted:
            self.say(who, f"calls ranks at {sorted(called)}; they are at {sorted(wanted)}")


def problems(items, schemas, options, metrics, environment):
    """All that is wrong with an overlay. Where the form is wrong, nothing else is looked at."""
    found = [problem for item in items for problem in schemas.problems(item)]
    return found or Check(items, options, metrics, environment).run()
