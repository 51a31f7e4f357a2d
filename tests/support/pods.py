"""Pods without a cluster: the root file systems of images in namespaces of their own.

    with Node() as node:                         # within unshare(): see enter()
        pod = node.start(Image(out, "outrider-worker"), "--model", "/models/target", ...)
        node.get(pod, 9400, "/ready")
        pod.run("/usr/bin/outrider", "health", "--address", "127.0.0.1:7071")

A node is a bridge with the addresses 10.88.0.0/24 and a DNS server, dnsmasq, as a cluster has it. A
pod has its own network, processes, mounts, host name and shared memory. It runs as Kubernetes runs
the restricted profile with a read-only root: as the image's user, without capabilities, with a /tmp
that can be written. All of it is in namespaces of the test, so that nothing is left when it ends.
"""
import base64
import ctypes
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import skips
from cluster import ClusterError, LOG_TAIL_LINES, bound, descendants, is_alive, wait_until

SUBNET = "10.88.0"
NODE = f"{SUBNET}.1"
# The bridge's own address, or it would be that of a pod, and change when the pod ends, unknown to
# the others.
BRIDGE_MAC = "02:00:0a:58:00:01"
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 38, 24
LAST_CAPABILITY = 63
INSIDE = "OUTRIDER_INSIDE_NAMESPACES"


def refusal():
    """Why this machine cannot have pods, in one sentence; None where it can."""
    skips.need("unshare", "nsenter", "mount", package="util-linux")
    skips.need("ip", package="iproute2")
    skips.need("dnsmasq", package="dnsmasq-base")
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "--uts", "--ipc", "sh", "-c",
         "mount -t tmpfs none /mnt && ip link add name try0 type bridge && "
         "ip link add name try1 type veth peer name try2"],
        capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"the kernel refuses namespaces, mounts or bridges: {tried.stderr.strip()}"
    return None


def enter():
    """Runs this script again in namespaces of its own, which end with it; returns there."""
    if os.environ.get(INSIDE):
        return
    os.environ[INSIDE] = "yes"
    os.execvp("unshare", ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child",
                          "--mount-proc", sys.executable, *sys.argv])


class Image:
    """An image of deploy/image/build; its layers are unpacked once."""

    def __init__(self, out, name):
        self.name = name
        self.layout = os.path.join(out, name)
        self.manifest = self._blob(self._json("index.json")["manifests"][0])
        self.config = self._blob(self.manifest["config"])
        self.root = None

    def _json(self, path):
        with open(os.path.join(self.layout, path), encoding="utf-8") as file:
            return json.load(file)

    @staticmethod
    def _path(descriptor):
        return os.path.join("blobs", *descriptor["digest"].split(":"))

    def _blob(self, descriptor):
        return self._json(self._path(descriptor))

    def digest(self):
        return self._json("index.json")["manifests"][0]["digest"]

    def packed_bytes(self):
        return sum(layer["size"] for layer in self.manifest["layers"])

    def layers(self):
        """The layers, open for reading."""
        for layer in self.manifest["layers"]:
            packed = gzip.open(os.path.join(self.layout, self._path(layer)))
            with packed, tarfile.open(fileobj=packed, mode="r|") as tar:
                yield tar

    def unpack(self, folder):
        self.root = os.path.join(folder, self.name)
        if os.path.isdir(self.root):
            return self.root
        os.makedirs(self.root)
        for layer in self.layers():
            layer.extractall(self.root, numeric_owner=True)
        return self.root

    def environment(self):
        return dict(entry.split("=", 1) for entry in self.config["config"]["Env"])

    def user(self):
        return [int(part) for part in self.config["config"]["User"].split(":")]


class Pod:
    """A container of an image: .ip, .pid (its process 1, seen from here)."""

    def __init__(self, node, name, image, ip, command, options):
        self.name, self.image, self.ip = name, image, ip
        self.log_path = os.path.join(node.folder, f"{name}.log")
        plan = {"name": name, "root": image.unpack(os.path.join(node.folder, "roots")),
                "mount": tempfile.mkdtemp(dir=node.folder), "user": image.user(),
                "files": tempfile.mkdtemp(dir=node.folder),
                "environment": {**image.environment(), "HOSTNAME": name,
                                **options.get("environment", {})},
                "binds": options.get("binds", {}), "resolv": node.resolv, "ip": ip,
                "command": command}
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                ["nsenter", f"--net=/run/netns/{name}", "unshare", "--mount", "--pid", "--fork",
                 "--kill-child", "--uts", "--ipc", sys.executable, os.path.abspath(__file__),
                 json.dumps(plan)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.pid = wait_until(self._find, 10, f"{name} has begun")

    def _find(self):
        """unshare's one child, once it is the program; unshare itself where the program has done
        its work already."""
        if self.process.poll() == 0:
            return self.process.pid
        if self.process.poll() is not None:
            raise ClusterError(f"{self.name} ended with {self.process.returncode}: {self.log()}")
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children",
                  encoding="ascii") as file:
            children = file.read().split()
        for pid in children:
            try:
                with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
                    if f"Uid:\t{self.image.user()[0]}\t" in status.read():
                        return int(pid)
            except FileNotFoundError:
                pass # it has just ended
        return None

    def find(self, name):
        """The process of this program below process 1, as it is numbered here."""
        for pid in descendants(self.pid):
            try:
                with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
                    if file.read().rstrip() == name:
                        return pid
            except FileNotFoundError:
                pass # it has just ended
        raise ClusterError(f"{self.name} has no {name}")

    def status(self):
        """Fields of /proc/PID/status of process 1."""
        with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as file:
            return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)

    def is_alive(self):
        return self.process.poll() is None

    def run(self, *command, timeout=20):
        """Runs a program of the image in the pod, as a health command is run."""
        user, group = self.image.user()
        return subprocess.run(
            ["nsenter", "--target", str(self.pid), "--mount", "--net", "--pid", "--uts", "--ipc",
             "--root", "--wd=/", "--setuid", str(user), "--setgid", str(group), *command],
            stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=bound(timeout),
            check=False)

    def is_live(self, port):
        """Asked within the pod, which needs no link to others."""
        return self.run("/usr/bin/outrider", "health", "--service", "live",
                        "--address", f"127.0.0.1:{port}").returncode == 0

    def stop(self, grace):
        """As the kubelet does: SIGTERM to process 1. The exit status and the seconds it took."""
        start = time.monotonic()
        os.kill(self.pid, signal.SIGTERM)
        try:
            return self.process.wait(bound(grace)), time.monotonic() - start
        except subprocess.TimeoutExpired:
            raise ClusterError(f"{self.name} still runs {grace:g} s after SIGTERM") from None

    def kill(self):
        """As when its memory is used up, or its node is lost."""
        if is_alive(self.pid):
            os.kill(self.pid, signal.SIGKILL)
        self.process.wait(10)

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()


def make_ssh_secret(folder):
    """A key in the form in which the MPI Operator makes it, with the names that it mounts."""
    os.makedirs(folder)
    key = os.path.join(folder, "id_rsa")
    subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key],
                   check=True, capture_output=True)
    public = subprocess.run(["openssl", "ec", "-in", key, "-pubout", "-outform", "DER"], check=True,
                            capture_output=True).stdout[-65:]
    kind, curve = b"ecdsa-sha2-nistp256", b"nistp256"
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in (kind, curve, public))
    line = f"{kind.decode()} {base64.b64encode(blob).decode()}\n"
    for name in ("id_rsa.pub", "authorized_keys"):
        with open(os.path.join(folder, name), "w", encoding="ascii") as file:
            file.write(line)
    for name in os.listdir(folder):
        os.chmod(os.path.join(folder, name), 0o644)
    return folder


class Node:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="outrider-node-")
        self.pods = []
        self.names = {}
        self.last = 9
        self.dns = None
        self.resolv = os.path.join(self.folder, "resolv.conf")
        self.hosts = os.path.join(self.folder, "hosts")

    def __enter__(self):
        with open(self.resolv, "w", encoding="ascii") as file:
            file.write(f"nameserver {NODE}\nsearch outrider.svc.test svc.test\noptions ndots:5\n")
        os.makedirs("/run/netns", exist_ok=True)
        for command in ("mount -t tmpfs none /run/netns", "ip link set lo up",
                        f"ip link add pods address {BRIDGE_MAC} type bridge",
                        f"ip addr add {NODE}/24 dev pods",
                        "ip link set pods up"):
            subprocess.run(command.split(), check=True)
        self._write_names()
        self.dns = subprocess.Popen(
            ["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv",
             "--no-hosts", "--local=/test/", f"--addn-hosts={self.hosts}",
             f"--listen-address={NODE}", "--bind-interfaces", "--user=root", "--pid-file=",
             "--local-ttl=1"],
            stdin=subprocess.DEVNULL)
        wait_until(self._is_dns_ready, 10, "dnsmasq reads its files at SIGHUP")
        return self

    def _is_dns_ready(self):
        """Before it catches SIGHUP, the signal would end it."""
        with open(f"/proc/{self.dns.pid}/status", encoding="ascii") as file:
            caught = re.search(r"SigCgt:\s*(\w+)", file.read())
        return caught and int(caught[1], 16) >> (signal.SIGHUP - 1) & 1

    def __exit__(self, kind, value, trace):
        if kind is not None:
            self.print_logs()
        for pod in self.pods:
            pod.kill()
        if self.dns:
            self.dns.kill()
            self.dns.wait(5)
        for command in ("ip link delete pods", "ip -all netns delete", "umount /run/netns"):
            subprocess.run(command.split(), check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def print_logs(self):
        for pod in self.pods:
            print(f"---- {pod.name} ({pod.ip})", file=sys.stderr)
            print("\n".join(pod.log().splitlines()[-LOG_TAIL_LINES:]), file=sys.stderr)

    def next_ip(self):
        """The address that the next pod gets."""
        return f"{SUBNET}.{self.last + 1}"

    def start(self, image, *arguments, entry=None, **options):
        """A new pod, at an address that no pod had before. entry: instead of the image's own;
        options: environment, binds (path in the pod -> folder or file here)."""
        self.last += 1
        name, ip = f"{image.name}-{self.last}", f"{SUBNET}.{self.last}"
        link = f"pod{self.last}"
        for command in (f"ip netns add {name}",
                        f"ip link add {link} type veth peer name eth0 netns {name}",
                        f"ip link set {link} master pods up",
                        f"ip -n {name} addr add {ip}/24 dev eth0",
                        f"ip -n {name} link set eth0 up", f"ip -n {name} link set lo up"):
            subprocess.run(command.split(), check=True)
        command = [*(entry or image.config["config"]["Entrypoint"]), *arguments]
        self.pods.append(Pod(self, name, image, ip, command, options))
        return self.pods[-1]

    @staticmethod
    def cut(pod, state="down"):
        """From now on no packet reaches the pod, and none of its own reaches anybody; with the
        state "up" they do again."""
        link = f"pod{pod.ip.rpartition('.')[2]}"
        subprocess.run(["ip", "link", "set", link, state], check=True)

    def _write_names(self):
        with open(self.hosts, "w", encoding="ascii") as file:
            for name, addresses in self.names.items():
                for address in addresses:
                    file.write(f"{address} {name}\n")

    def name(self, name, *addresses):
        """A headless service: from now on the name has these addresses."""
        self.names[name] = addresses
        if self.dns.poll() is not None:
            raise ClusterError(f"dnsmasq ended with {self.dns.returncode}")
        self._write_names()
        self.dns.send_signal(signal.SIGHUP)

    @staticmethod
    def get(pod, port, path, timeout=2):
        """(status, text) of an HTTP probe; status 0 while nobody answers."""
        try:
            with urllib.request.urlopen(f"http://{pod.ip}:{port}{path}", timeout=timeout) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def wait_ready(self, pod, port, path="/ready", timeout=30):
        """Seconds until the probe succeeds."""
        start = time.monotonic()
        while self.get(pod, port, path)[0] != 200:
            if not pod.is_alive():
                raise ClusterError(f"{pod.name} ended with status {pod.process.returncode}")
            if time.monotonic() - start > bound(timeout):
                raise ClusterError(f"{pod.name}:{port}{path}: {self.get(pod, port, path)}")
            time.sleep(0.01)
        return time.monotonic() - start


# ---- in the pod, before its program ----

def _mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def _make_root(plan):
    """The image read-only, and on it what a container runtime mounts."""
    root = plan["mount"]
    _mount("--make-rprivate", "/")
    _mount("--bind", plan["root"], root)
    files = {"resolv.conf": open(plan["resolv"], encoding="ascii").read(),
             "hosts": f"127.0.0.1 localhost\n{plan['ip']} {plan['name']}\n",
             "hostname": f"{plan['name']}\n"}
    # The runtime makes what it mounts on; here on a copy that this pod alone has.
    for name in files:
        with open(os.path.join(plan["root"], "etc", name), "ab"):
            pass
    _mount("-t", "proc", "-o", "nosuid,nodev,noexec", "proc", f"{root}/proc")
    _mount("-t", "sysfs", "-o", "ro,nosuid,nodev,noexec", "sysfs", f"{root}/sys")
    _mount("-t", "tmpfs", "-o", "nosuid,nodev,noexec,size=64m", "tmp", f"{root}/tmp")
    _mount("-t", "tmpfs", "-o", "nosuid,mode=755", "dev", f"{root}/dev")
    for name in ("null", "zero", "full", "random", "urandom"):
        open(f"{root}/dev/{name}", "wb").close()
        _mount("--bind", f"/dev/{name}", f"{root}/dev/{name}")
    for name in ("shm", "pts"):
        os.mkdir(f"{root}/dev/{name}")
    _mount("-t", "tmpfs", "-o", "nosuid,nodev,noexec,mode=1777,size=64m", "shm", f"{root}/dev/shm")
    _mount("-t", "devpts", "-o", "nosuid,noexec,newinstance,ptmxmode=0666", "devpts",
           f"{root}/dev/pts")
    os.symlink("pts/ptmx", f"{root}/dev/ptmx")
    for name, text in files.items():
        path = os.path.join(plan["files"], name)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        _mount("--bind", path, f"{root}/etc/{name}")
    for inside, outside in plan["binds"].items():
        os.makedirs(plan["root"] + inside, exist_ok=True)
        _mount("--bind", outside, root + inside)
        _mount("-o", "remount,bind,ro", root + inside)
    _mount("-o", "remount,bind,ro", root)
    return root


def _leave_power(user, group):
    """Drops what the restricted profile forbids: all capabilities, and every way to one."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(LAST_CAPABILITY + 1):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails beyond the last one
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")


def _become(plan):
    root = _make_root(plan)
    subprocess.run(["hostname", plan["name"]], check=True)
    os.chroot(root)
    os.chdir("/")
    os.umask(0o022)
    _leave_power(*plan["user"])
    os.execve(plan["command"][0], plan["command"], plan["environment"])


if __name__ == "__main__":
    _become(json.loads(sys.argv[1]))
