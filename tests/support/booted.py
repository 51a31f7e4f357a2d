"""A Debian in a folder, started by a systemd of its own.

    with Booted(root) as machine:
        machine.run("systemctl", "start", "outrider-group")

It has namespaces of its own for mounts, processes, network, names and control groups, so that
nothing of it is seen outside, and nothing of it is left at the end. Root is needed, and a kernel
that lets root make these; refusal() says what is missing.
"""
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import ClusterError, bound, wait_until

GROUP = f"outrider-test-{os.getpid()}"
# $1 the root, $2 v1 or v2. The group that this is in becomes the root of all groups in there.
BOOT = """
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount -t sysfs sysfs "$1/sys"
mount -t tmpfs tmpfs "$1/run"
mount -t tmpfs tmpfs "$1/tmp"
if [ "$2" = v2 ]; then
    mount -t cgroup2 cgroup "$1/sys/fs/cgroup"
    options=systemd.unified_cgroup_hierarchy=1
else
    mount -t tmpfs tmpfs "$1/sys/fs/cgroup"
    mkdir "$1/sys/fs/cgroup/systemd"
    mount -t cgroup -o none,name=systemd cgroup "$1/sys/fs/cgroup/systemd"
    options="systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1"
fi
exec chroot "$1" env -i container=docker "SYSTEMD_PROC_CMDLINE=$options" \\
    /lib/systemd/systemd --system --log-target=console --show-status=no
"""
NAMESPACES = ["--mount", "--pid", "--fork", "--uts", "--ipc", "--net", "--cgroup"]


def hierarchy():
    """Version and folder of the hierarchy of control groups that systemd takes, or None."""
    if os.path.exists("/sys/fs/cgroup/cgroup.procs"):
        with open("/proc/self/cgroup", encoding="ascii") as file:
            own = file.read().splitlines()[-1].partition("::")[2]
        return "v2", "/sys/fs/cgroup" + own.rstrip("/")
    if os.path.exists("/sys/fs/cgroup/systemd/cgroup.procs"):
        return "v1", "/sys/fs/cgroup/systemd"
    return None


def refusal():
    """A sentence where this machine cannot do it, otherwise None."""
    if os.geteuid() != 0:
        return "only root can start a systemd"
    if not hierarchy():
        return "there is no hierarchy of control groups for a systemd"
    if not os.access(hierarchy()[1], os.W_OK):
        return f"no control group can be made in {hierarchy()[1]}"
    done = subprocess.run(["unshare", *NAMESPACES, "mount", "-t", "proc", "proc", "/proc"],
                          capture_output=True, encoding="utf-8", timeout=bound(30), check=False)
    return f"the kernel refuses namespaces: {done.stderr.strip()}" if done.returncode else None


class Booted:
    def __init__(self, root):
        self.root = root
        self.log = root + ".log"
        self.version, folder = hierarchy()
        self.group = os.path.join(folder, GROUP)

    def __enter__(self):
        os.mkdir(self.group)
        enter = 'echo $$ >"$0/cgroup.procs" && exec "$@"'
        with open(self.log, "ab") as log:
            self.starter = subprocess.Popen(
                ["sh", "-c", enter, self.group, "unshare", *NAMESPACES, "--kill-child",
                 "sh", "-c", BOOT, "boot", self.root, self.version],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait_until(self.is_up, 60, "systemd has started")
        except BaseException:
            self.__exit__()
            raise
        return self

    def is_up(self):
        if self.starter.poll() is not None:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                raise ClusterError(f"systemd has ended: {log.read()}")
        return self.init() and self.run("systemctl", "is-system-running").stdout.strip() in (
            "running", "degraded")

    def init(self):
        """The pid of its first process, from outside; None while it does not run yet."""
        path = f"/proc/{self.starter.pid}/task/{self.starter.pid}/children"
        with open(path, encoding="ascii") as file:
            children = file.read().split()
        for child in children:
            with open(f"/proc/{child}/comm", encoding="ascii") as file:
                if file.read() == "systemd\n":
                    return int(child)
        return None

    def run(self, *command, **more):
        return subprocess.run(
            ["nsenter", "--target", str(self.init()), "--mount", "--pid", "--uts", "--ipc", "--net",
             "--cgroup", "--root", "--wd", *command], capture_output=True, encoding="utf-8",
            stdin=subprocess.DEVNULL, timeout=bound(120), check=False, **more)

    def __exit__(self, *_):
        if self.starter.poll() is None:
            if self.init():
                os.kill(self.init(), signal.SIGKILL)
            else:
                self.starter.kill()
        self.starter.wait(bound(60))
        wait_until(self.remove_groups, 30, "the control groups are empty")

    def remove_groups(self):
        for at, _, _ in os.walk(self.group, topdown=False):
            try:
                os.rmdir(at)
            except OSError:
                return False
        return True
