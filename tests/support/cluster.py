"""A real cluster for end-to-end tests: workers, coordinator and client of a build folder.

    with Cluster(build, n_ranks=2) as cluster:           # serving when this line is passed
        done = cluster.outrider("generate", "Once upon a time", "-n", "8", "--json")
        cluster.kill_rank(1)

One rank is a plain process; more run under mpirun on this machine. Addresses, ports and files are
unique to each cluster; every wait has a deadline; no process survives it, whatever happens. When a
block fails, the tail of every log is printed.
"""
import faulthandler
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
TALES = os.path.join(SOURCE, "deploy", "models", "tales")
GENERATION = "outrider.generation.v1.Generation"

# One node, any number of ranks on any number of cores, as any user, without ssh.
MPI_FLAGS = (
    "--oversubscribe --bind-to none --mca btl vader,self "
    "--mca btl_vader_single_copy_mechanism none --mca plm isolated --mca mpi_yield_when_idle 1 "
    "--mca odls_base_sigkill_timeout 0"
).split()
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # Open MPI keeps memory until the process ends.
    "ASAN_OPTIONS": "detect_leaks=0",
}
LOG_TAIL_LINES = 30
SLOWEST = 4.0
LEAST_S = 15.0
# Many clusters run on this machine, and most tests do not ask over HTTP.
os.environ.setdefault("OUTRIDER_HTTP", "off")
# A test that hangs says where, shortly before ctest ends it, or when it is asked.
faulthandler.register(signal.SIGUSR2)
if "OUTRIDER_TEST_TIMEOUT" in os.environ:
    faulthandler.dump_traceback_later(0.95 * float(os.environ["OUTRIDER_TEST_TIMEOUT"]))


class ClusterError(Exception):
    """The cluster did not do what it should in time; the text says what."""


def is_sanitized(build):
    """Returns True if the programs of this build folder check every access."""
    with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as file:
        return re.search(r"^OUTRIDER_SANITIZE:\w+=.+$", file.read(), re.M) is not None


def dying_with_us(command):
    """The command as one that gets SIGTERM when the test itself is killed. Not by a preexec_fn: in
    a process with gRPC's threads Python code between fork and exec can wait for a lock for ever."""
    return ["setpriv", "--pdeathsig", "TERM", "--", *command]


def free_ports(n):
    """The first of n neighbouring TCP ports that nobody uses, below the range that the kernel hands
    out by itself."""
    for _ in range(200):
        first = random.randrange(20000, 32000 - n)
        try:
            for port in range(first, first + n):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise ClusterError(f"found no {n} free ports in a row")


def _stat(pid):
    """(state, parent) of a process, or None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return fields[0], int(fields[1])
    except (OSError, ValueError, IndexError):
        return None


def is_alive(pid):
    """False also for a zombie: it is dead, its parent has only not waited for it yet."""
    stat = _stat(pid)
    return stat is not None and stat[0] not in "ZX"


def descendants(pid):
    """All processes below pid, nearest first."""
    children = {}
    for name in os.listdir("/proc"):
        stat = _stat(name) if name.isdigit() else None
        if stat:
            children.setdefault(stat[1], []).append(int(name))
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(0), [])
        found += below
        todo += below
    return found


def slowness():
    """How many times as long as on a quiet machine something may take: what OUTRIDER_TEST_SLOW says
    or, where more processes than cores want to run, now or in the last minute, as many times as
    there are more of them; never more than SLOWEST, because a bound that grows without end cannot
    fail."""
    with open("/proc/loadavg", encoding="ascii") as file:
        fields = file.read().split()
    load = max(float(fields[0]), int(fields[3].partition("/")[0]) - 1)  # without this process
    return min(SLOWEST, max(1.0, float(os.environ.get("OUTRIDER_TEST_SLOW", 1)),
                            load / (os.cpu_count() or 1)))


def bound(seconds):
    """The seconds that something may take which takes fewer than these on a quiet machine. They are
    never fewer than LEAST_S, because a machine that others use, too, holds up a process for seconds
    that no figure foretells: what must come before something else is to be compared with that."""
    return max(LEAST_S, seconds) * slowness()


def wait_until(condition, timeout, what):
    """The first true value of condition(); ClusterError after timeout seconds, or more on a machine
    that is busy."""
    start = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited = time.monotonic() - start
        if waited > bound(timeout):
            raise ClusterError(f"waited {waited:.1f} s in vain until {what}")
        time.sleep(0.05)


class Program:
    """A process of the cluster with its log file."""

    def __init__(self, name, command, log_path, environment):
        self.name = name
        self.log_path = log_path
        with open(log_path, "ab") as log:
            self.process = subprocess.Popen(
                dying_with_us(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    @property
    def pid(self):
        return self.process.pid

    def is_alive(self):
        return self.process.poll() is None

    def wait(self, timeout):
        """The exit status (negative: the signal)."""
        timeout = bound(timeout)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ClusterError(f"{self.name} still runs after {timeout:g} s") from None

    def stop(self, timeout=5):
        """SIGTERM, then SIGKILL for it and all its children. Returns the exit status."""
        family = descendants(self.pid)
        if self.is_alive():
            self.process.terminate()
            try:
                self.process.wait(bound(timeout))
            except subprocess.TimeoutExpired:
                family = descendants(self.pid) or family
                self.process.kill()
        for pid in family:
            if is_alive(pid) and self._is_ours(pid):
                os.kill(pid, signal.SIGKILL)
        status = self.process.wait(bound(5))
        wait_until(lambda: not any(is_alive(pid) and self._is_ours(pid) for pid in family), 5,
                   f"the children of {self.name} are gone")
        return status

    def _is_ours(self, pid):
        """Children stay in the session that this program began: no reused pid is signalled."""
        try:
            return os.getsid(pid) == self.pid
        except OSError:
            return False

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()


class Cluster:
    """Workers (ranks 0..n_ranks-1), a coordinator and calls of the client.

    build        the build folder
    n_ranks      more than 1 run under mpirun
    transport    "unix" or "tcp"
    target, draft, worker_flags, coordinator_flags: as on the command line; draft None = no draft
    environment  variables that all programs get beside those of this process
    http         opens the HTTP door; its address is .http, its URL .url

    start() waits until the coordinator has measured the pair, if it does, so that no measurement
    meets what a test does to the group.
    """

    def __init__(self, build, n_ranks=1, *, transport="unix", target=os.path.join(TALES, "target"),
                 draft=os.path.join(TALES, "draft"), worker_flags=(), coordinator_flags=(),
                 environment=None, http=False):
        self.build = build
        self.bin = os.path.join(build, "bin")
        self.n_ranks = n_ranks
        self.target = target
        self.draft = draft
        self.worker_flags = list(worker_flags)
        self.coordinator_flags = list(coordinator_flags)
        self.environment = dict(environment or {})
        self.folder = tempfile.mkdtemp(prefix="outrider-")
        self.workers = None
        self.coordinator = None
        self._choose_addresses(transport)
        self.http = f"127.0.0.1:{free_ports(1)}" if http else "off"
        self.url = f"http://{self.http}"

    def _choose_addresses(self, transport):
        if transport == "unix":
            self.listen = f"unix:{self.folder}/w"
            many = [f"{self.listen}.{rank}" for rank in range(self.n_ranks)]
            self.worker_addresses = many if self.n_ranks > 1 else [self.listen]
            self.address = f"unix:{self.folder}/c"
            return
        first = free_ports(self.n_ranks + 1)
        self.listen = f"127.0.0.1:{first}"
        self.worker_addresses = [f"127.0.0.1:{first + r}" for r in range(self.n_ranks)]
        self.address = f"127.0.0.1:{first + self.n_ranks}"

    # ---- life ----

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self._leave(failed=True)
            raise
        return self

    def __exit__(self, kind, value, trace):
        self._leave(failed=kind is not None)

    def _leave(self, failed):
        try:
            self.stop()
        finally:
            if failed:
                self.print_logs()
            shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, timeout=60):
        self.start_workers()
        self.start_coordinator()
        self.wait_serving(timeout)
        self.wait_measured()

    def start_workers(self):
        command = [os.path.join(self.bin, "outrider-worker"), "--model", self.target,
                   "--listen", self.listen, "--drain-timeout", "0", *self.worker_flags]
        environment = dict(self.environment)
        if self.n_ranks > 1:
            command = ["mpirun", *MPI_FLAGS, "-np", str(self.n_ranks), *command]
            environment.update(MPI_ENVIRONMENT)
        self.workers = Program("workers", command, self._log_path("workers"), environment)

    def start_coordinator(self):
        command = [os.path.join(self.bin, "outrider-coordinator"),
                   "--target", ",".join(self.worker_addresses), "--draft", self.draft or "none",
                   "--listen", self.address, "--http", self.http,
                   "--drain-timeout", "0", *self.coordinator_flags]
        if not self.draft and "--tokenizer" not in self.coordinator_flags:
            command += ["--tokenizer", self.target]
        self.coordinator = Program("coordinator", command, self._log_path("coordinator"),
                                   self.environment)

    def _log_path(self, name):
        return os.path.join(self.folder, f"{name}.log")

    def stop(self):
        """Coordinator first. Returns the exit statuses of those that ran, by name."""
        programs = [p for p in (self.coordinator, self.workers) if p]
        self.coordinator = self.workers = None
        statuses, failure = {}, None
        for program in programs:
            try:
                statuses[program.name] = program.stop()
            except (subprocess.TimeoutExpired, OSError, ClusterError) as error:
                failure = error
        if failure:
            raise ClusterError(f"cannot stop the cluster: {failure}")
        return statuses

    # ---- state ----

    def is_serving(self, address=None):
        return self.outrider("health", "--address", address or self.address).returncode == 0

    def wait_serving(self, timeout=60):
        def look():
            for program in (self.workers, self.coordinator):
                if not program.is_alive():
                    raise ClusterError(f"{program.name} ended with status {program.wait(1)}")
            return self.is_serving()

        wait_until(look, timeout, "the cluster serves")

    def is_measured(self):
        """True once no calibration of the draft and the groups that are there is left to do, and
        where that is told to those alone who have a key."""
        done = self.outrider("describe", "--json")
        if done.returncode:
            return "--api-key" in done.stderr
        return all(group["measured"] for group in json.loads(done.stdout)["groups"]
                   if group["worker_addresses"])

    def wait_measured(self):
        wait_until(self.is_measured, 60, "the pair is measured")

    def wait_not_serving(self, timeout=10):
        wait_until(lambda: not self.is_serving(), timeout, "the cluster serves no more")

    def rank_pids(self):
        """The process of each rank, in order; ranks that are gone are left out."""
        if self.n_ranks == 1:
            return {0: self.workers.pid} if self.workers.is_alive() else {}
        pids = {}
        for pid in descendants(self.workers.pid):
            rank = self._rank_of(pid)
            if rank is not None and is_alive(pid):
                pids[rank] = pid
        return pids

    @staticmethod
    def _rank_of(pid):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                for entry in file.read().split(b"\0"):
                    if entry.startswith(b"OMPI_COMM_WORLD_RANK="):
                        return int(entry.partition(b"=")[2])
        except (OSError, ValueError):
            pass
        return None

    def kill_rank(self, rank, signal_number=signal.SIGKILL):
        pid = self.rank_pids().get(rank)
        if pid is None:
            raise ClusterError(f"rank {rank} is not running")
        os.kill(pid, signal_number)

    def restart_workers(self, timeout=60):
        """Starts a new group on the old addresses once the old one is gone."""
        self.workers.stop()
        self.wait_not_serving() # otherwise the old group could be taken for the new one
        self.start_workers()
        self.wait_serving(timeout)

    # ---- the client ----

    def command(self, *args):
        return [os.path.join(self.bin, "outrider"), *args]

    def client_environment(self, **more):
        """A user's environment, with this cluster as the default."""
        return {**os.environ, "OUTRIDER_ADDRESS": self.address, **self.environment, **more}

    def outrider(self, *args, stdin=None, timeout=60, environment=None):
        """Runs the client to its end; stdin is text or None for no input. Texts are decoded."""
        timeout = bound(timeout)
        try:
            return subprocess.run(
                self.command(*args),
                input=stdin if stdin is not None else "",
                capture_output=True,
                encoding="utf-8",
                timeout=timeout,
                env=self.client_environment(**(environment or {})),
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(f"outrider {' '.join(args)}: no end after {timeout:g} s") from None

    def popen(self, *args, **options):
        """Starts the client and returns the Popen; the caller waits for it."""
        return subprocess.Popen(dying_with_us(self.command(*args)), env=self.client_environment(),
                                **options)

    # ---- logs ----

    def logs(self):
        """Name -> text of every log so far."""
        texts = {}
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".log"):
                with open(os.path.join(self.folder, name), encoding="utf-8",
                          errors="replace") as file:
                    texts[name] = file.read()
        return texts

    def print_logs(self):
        for name, text in self.logs().items():
            print(f"---- {name}, the last {LOG_TAIL_LINES} lines", file=sys.stderr)
            print("\n".join(text.splitlines()[-LOG_TAIL_LINES:]), file=sys.stderr)


def run_all(build, part, functions, **options):
    """Runs the functions test_* whose names contain part, each with the same cluster of one rank,
    and returns the exit status of the script. functions: name -> function, the test's globals();
    options: of the cluster."""
    failed = 0
    tests = [(name, f) for name, f in functions.items()
             if name.startswith("test_") and part in name]
    with Cluster(build, **options) as cluster:
        for name, function in tests:
            start = time.monotonic()
            try:
                function(cluster)
                print(f"ok      {name[5:]} ({time.monotonic() - start:.1f} s)", flush=True)
            except (AssertionError, ClusterError, OSError, ValueError, KeyError, TypeError,
                    subprocess.SubprocessError):
                failed += 1
                print(f"FAILED  {name[5:]}\n{traceback.format_exc()}", flush=True)
        if failed:
            cluster.print_logs()
    print(f"{len(tests)} tests, {failed} failed")
    return 1 if failed or not tests else 0
