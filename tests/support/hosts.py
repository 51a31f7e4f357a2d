"""Network namespaces as hosts: each has its own name, addresses and sshd, and the same files.

    with Hosts(build, 3) as hosts:                   # node1, node2, node3
        hosts.run(0, "ssh", "node2", "hostname")     # by ssh, without a password
        hosts.delay(0.001)                           # each way, between all hosts
        hosts.cut(0, 1)                              # node1 and node2 no longer hear each other

A host has two networks. The control network, 10.77.0.0/24, is what the names node1, node2 ... stand
for; ssh goes through it. The data network, 10.78.0.0/24, has the links that can be slow, lossy or
cut (tests/programs/prog_switch.c). With veth=True it has links of the kernel instead, which are
faster and have none of that. Everything ends with the block, because the namespaces end with the
processes that hold them.
"""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import skips
from cluster import Program, bound, descendants, dying_with_us, is_alive, wait_until

CONTROL, DATA = "10.77.0", "10.78.0"
DATA_NETWORK = f"{DATA}.0/24"
SSHD = "/usr/sbin/sshd"
HOLD = """
mount --bind "$1/hosts" /etc/hosts && mount --bind "$1/ssh" /etc/ssh &&
mount -t tmpfs none /run && mkdir /run/sshd && hostname "$2" &&
ip link set lo up && echo ready && exec sleep infinity
"""
SSH_CONFIG = """
Host *
    IdentityFile /etc/ssh/key
    GlobalKnownHostsFile /etc/ssh/known_hosts
    UserKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    BatchMode yes
    LogLevel ERROR
"""
SSHD_CONFIG = """
HostKey /etc/ssh/key
AuthorizedKeysFile /etc/ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
MaxStartups 100
PidFile none
"""


class Unsupported(Exception):
    """The machine cannot have such hosts; the text says why in one sentence."""


def skip_unless_supported(links=True):
    """Ends the test as skipped, with the reason, where namespaces (or links) are refused."""
    try:
        check_support(links)
    except Unsupported as why:
        skips.skip(why)


def check_support(links=True):
    if os.geteuid() != 0:
        raise Unsupported("hosts as network namespaces need root")
    for program, package in ((SSHD, "openssh-server"), ("ssh", "openssh-client"),
                             ("mpirun", "openmpi-bin"), ("unshare", "util-linux"),
                             ("nsenter", "util-linux"), ("ip", "iproute2")):
        skips.need(program, package=package)
    done = _quiet("unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc",
                  "sh", "-c", "hostname probe && ip link add veth0 type veth peer name veth1 && "
                  "ip link add bridge0 type bridge && mount -t tmpfs none /run")
    if done.returncode:
        raise Unsupported("this kernel refuses namespaces of network, host name or mounts: "
                          + (done.stderr.strip() or "unshare failed").replace("\n", "; "))
    done = _quiet("unshare", "--net", "ip", "tuntap", "add", "probe", "mode", "tap")
    if links and done.returncode:
        raise Unsupported("this kernel has no TAP devices, which slow links are made of: "
                          + done.stderr.strip().replace("\n", "; "))


def _quiet(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8")


def _must(*command):
    done = _quiet(*command)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Hosts:
    def __init__(self, build, n, *, veth=False):
        self.build, self.n, self.veth = build, n, veth
        self.folder = tempfile.mkdtemp(prefix="outrider-hosts-")
        self.names = [f"node{i + 1}" for i in range(n)]
        self.control = [f"{CONTROL}.{i + 1}" for i in range(n)]
        self.data = [f"{DATA}.{i + 1}" for i in range(n)]
        self.holders, self.daemons, self.programs = [], [], []
        self.hub = self.switch = None

    def __enter__(self):
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            self.print_logs()
        self.close()

    # ---- making them ----

    def _open(self):
        self._write_files()
        self.hub = self._hold("hub")
        self.holders = [self._hold(name) for name in self.names]
        self._wire("ctl0", CONTROL)
        if self.veth:
            self._wire("data0", DATA)
        else:
            self._switch()
        for i in range(self.n):
            self._start_sshd(i)

    def _write_files(self):
        ssh = os.path.join(self.folder, "ssh")
        os.mkdir(ssh)
        key = os.path.join(ssh, "key")
        _must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
        with open(key + ".pub", encoding="ascii") as file:
            public = " ".join(file.read().split()[:2])
        self._write("ssh/ssh_config", SSH_CONFIG)
        self._write("ssh/sshd_config", SSHD_CONFIG)
        self._write("ssh/authorized_keys", public + "\n")
        self._write("ssh/known_hosts", f"* {public}\n")
        lines = [f"{a} {name}" for a, name in zip(self.control, self.names)]
        self._write("hosts", "127.0.0.1 localhost\n" + "\n".join(lines) + "\n")

    def _write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="ascii") as file:
            file.write(text)

    def write_hostfile(self, slots, name="hostfile"):
        """slots: how many ranks of each host, in order. Returns the path."""
        lines = [f"{name} slots={n}" for name, n in zip(self.names, slots) if n]
        self._write(name, "\n".join(lines) + "\n")
        return os.path.join(self.folder, name)

    def _hold(self, name):
        """A process whose namespaces are the host."""
        holder = subprocess.Popen(
            dying_with_us(["unshare", "--net", "--uts", "--mount", "sh", "-c", HOLD, "sh",
                           self.folder, name]),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
        if holder.stdout.readline() != b"ready\n":
            raise OSError(f"the host {name} cannot be made")
        return holder

    def _wire(self, device, network):
        """A bridge in the hub's namespace and a cable from it to each host."""
        self._ip(self.hub, "link", "add", device, "type", "bridge")
        self._ip(self.hub, "link", "set", device, "up")
        for i, holder in enumerate(self.holders):
            port = f"{device}n{i}"
            _must("ip", "link", "add", port, "netns", str(self.hub.pid), "type", "veth",
                  "peer", "name", device, "netns", str(holder.pid))
            self._ip(self.hub, "link", "set", port, "master", device, "up")
            self._set_up(holder, device, f"{network}.{i + 1}/24")

    def _set_up(self, holder, device, address):
        self._ip(holder, "addr", "add", address, "dev", device)
        self._ip(holder, "link", "set", device, "up")

    @staticmethod
    def _ip(holder, *args):
        _must("nsenter", f"--net=/proc/{holder.pid}/ns/net", "ip", *args)

    def _switch(self):
        ports = [f"{holder.pid}:data0" for holder in self.holders]
        self.switch = subprocess.Popen(
            dying_with_us([os.path.join(self.build, "tests", "prog_switch"), *ports]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self._answer()
        for i, holder in enumerate(self.holders):
            self._ip(holder, "link", "set", "data0", "address", f"02:4f:52:00:00:{i:02x}")
            self._set_up(holder, "data0", f"{DATA}.{i + 1}/24")

    def _start_sshd(self, i):
        self.start_daemon(i, f"sshd{i + 1}", SSHD, "-D", "-e")

        def answers():
            return self.run(i, "ssh", self.names[i], "true").returncode == 0

        wait_until(answers, 10, f"the sshd of {self.names[i]} answers")

    # ---- using them ----

    def command(self, i, *args):
        """The command line that runs args on host i."""
        pid = self.holders[i].pid
        return ["nsenter", f"--target={pid}", "--net", "--uts", "--mount", *args]

    def run(self, i, *args, timeout=60, **more):
        return subprocess.run(self.command(i, *args), stdin=subprocess.DEVNULL,
                              timeout=bound(timeout), capture_output=True, encoding="utf-8", **more)

    def start(self, i, name, *args, environment=None):
        """A program on host i, with a log of its own; it is stopped with the hosts."""
        log = os.path.join(self.folder, f"{name}.log")
        program = Program(name, self.command(i, *args), log, environment or {})
        self.programs.append(program)
        return program

    def start_daemon(self, i, name, *args, environment=None, has_proc=False):
        """As start, in a PID namespace of its own: all that it starts ends with it. has_proc: with
        a /proc of that namespace, and so with mounts of its own."""
        proc = ["--mount-proc"] if has_proc else []
        command = ["unshare", "--pid", "--fork", "--kill-child", *proc, *args]
        log = os.path.join(self.folder, f"{name}.log")
        self.daemons.append(Program(name, self.command(i, *command), log, environment or {}))
        return self.daemons[-1]

    def popen(self, i, *args, **more):
        return subprocess.Popen(dying_with_us(self.command(i, *args)), stdin=subprocess.DEVNULL,
                                **more)

    # ---- links ----

    def _answer(self):
        line = self.switch.stdout.readline()
        if not line:
            raise OSError("the switch has ended")
        return line.decode().strip()

    def _tell(self, command):
        self.switch.stdin.write((command + "\n").encode())
        self.switch.stdin.flush()
        return self._answer()

    def delay(self, seconds):
        """Each way, between all hosts, in the data network."""
        self._tell(f"delay {seconds * 1e6:.0f}")

    def loss(self, ratio):
        self._tell(f"loss {ratio:.9f}")

    def cut(self, i, j=None):
        """Drops without a word what goes between two hosts, or between one and all others."""
        self._tell(f"cut {i} {i if j is None else j}")

    def heal(self):
        self._tell("heal")

    def count(self):
        """(frames passed on, frames lost)"""
        return tuple(int(word) for word in self._tell("count").split())

    def set_control(self, i, state):
        """Takes the cable of the control network out ("down") or puts it in ("up")."""
        self._ip(self.hub, "link", "set", f"ctl0n{i}", state)

    # ---- the end ----

    def print_logs(self):
        for program in [*self.programs, *self.daemons]:
            tail = "\n".join(program.log().splitlines()[-40:])
            print(f"---- {program.name}, the last lines\n{tail}", file=sys.stderr)

    def close(self):
        for program in reversed(self.programs):
            program.stop()
        for daemon in self.daemons:
            self._stop_daemon(daemon)
        for holder in [self.switch, *self.holders, self.hub]:
            if holder and holder.poll() is None:
                holder.kill()
                holder.wait()
        for holder in filter(None, [self.switch, *self.holders, self.hub]):
            for pipe in (holder.stdin, holder.stdout):
                if pipe:
                    pipe.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def _stop_daemon(daemon):
        family = descendants(daemon.pid)
        daemon.process.kill()
        daemon.process.wait()
        wait_until(lambda: not any(is_alive(pid) for pid in family), 5,
                   f"what {daemon.name} started ends")
