"""Several target groups behind one coordinator, for end-to-end tests. A group can be ended and
started again at another address of its own; --target names all of them from the beginning.

    with Fleet(build, ranks=[1, 2]) as fleet:           # both groups serve when this is passed
        fleet.groups[1].kill()
        fleet.groups[1].start(place=1)
"""
import json
import os
import signal
import threading
import urllib.error
import urllib.request

import cluster
from cluster import Cluster, ClusterError, Program, bound, wait_until

PLACES = 2  # addresses that a group may have


class Group:
    """The ranks of one group: a plain process, or several under mpirun."""

    def __init__(self, fleet, number, n_ranks, flags=()):
        self.fleet, self.number, self.n_ranks, self.flags = fleet, number, n_ranks, list(flags)
        self.program = None
        self.place = 0
        self.n_starts = 0

    def listen(self, place):
        return f"unix:{self.fleet.folder}/g{self.number}.{place}"

    def addresses(self, place):
        if self.n_ranks == 1:
            return [self.listen(place)]
        return [f"{self.listen(place)}.{rank}" for rank in range(self.n_ranks)]

    def start(self, place=0, model=None):
        self.place = place
        self.n_starts += 1
        command = [os.path.join(self.fleet.bin, "outrider-worker"), "--model",
                   model or self.fleet.target, "--listen", self.listen(place), *self.flags]
        environment = {}
        if self.n_ranks > 1:
            command = ["mpirun", *cluster.MPI_FLAGS, "-np", str(self.n_ranks), *command]
            environment = cluster.MPI_ENVIRONMENT
        log = os.path.join(self.fleet.folder, f"group{self.number}.{self.n_starts}.log")
        self.program = Program(f"group {self.number}", command, log, environment)

    def wait_ready(self, timeout=60):
        wait_until(lambda: all(self.fleet.is_serving(a) for a in self.addresses(self.place)),
                   timeout, f"group {self.number} is there")

    def kill(self, wait=True):
        """SIGKILL for rank 0; mpirun ends the others, which takes seconds."""
        pids = cluster.descendants(self.program.pid) if self.n_ranks > 1 else [self.program.pid]
        ranks = [pid for pid in pids if Cluster._rank_of(pid) == 0] if self.n_ranks > 1 else pids
        os.kill(ranks[0], signal.SIGKILL)
        if wait:
            self.program.wait(20)

    def terminate(self):
        """SIGTERM for every rank, as an orchestrator would send it."""
        pids = [self.program.pid]
        if self.n_ranks > 1:
            pids = [pid for pid in cluster.descendants(self.program.pid)
                    if Cluster._rank_of(pid) is not None]
        for pid in pids:
            os.kill(pid, signal.SIGTERM)


class Fleet(Cluster):
    """A coordinator with several groups; their addresses stay with them."""

    def __init__(self, build, ranks=(1, 1), *, worker_flags=(), **options):
        options.setdefault("http", True)
        super().__init__(build, **options)
        self.groups = [Group(self, i, n, worker_flags) for i, n in enumerate(ranks)]
        self.worker_addresses = [a for group in self.groups for place in range(PLACES)
                                 for a in group.addresses(place)]

    def start(self, timeout=60):
        for group in self.groups:
            group.start()
        self.start_coordinator()
        self.wait_groups(len(self.groups), timeout)
        self.wait_measured()

    def stop(self):
        statuses = super().stop()
        for group in self.groups:
            if group.program:
                group.program.stop()
        return statuses

    def described(self):
        done = self.outrider("describe", "--json")
        if done.returncode:
            raise ClusterError(done.stderr)
        return json.loads(done.stdout)

    def serving(self):
        """The first address of each group that serves."""
        return [g["worker_addresses"][0] for g in self.described()["groups"]
                if g["state"] == "serving"]

    def wait_groups(self, n, timeout=60):
        wait_until(lambda: self.is_serving() and len(self.serving()) == n, timeout,
                   f"{n} groups serve")

    def serves(self, group):
        """True if the coordinator uses this group where it is now."""
        return group.addresses(group.place)[0] in self.serving()

    def metric(self, name):
        """Group -> value of a metric that has a line for each group."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=10) as page:
            lines = page.read().decode().splitlines()
        values = {}
        for line in lines:
            if line.startswith(f"outrider_{name}{{"):
                number = line.partition('group="')[2].partition('"')[0]
                values[int(number)] = float(line.rpartition(" ")[2])
        return values


class Post(threading.Thread):
    """One request over HTTP, whose status and text are kept."""

    def __init__(self, fleet, **body):
        super().__init__()
        self.url = fleet.url + "/v1/completions"
        self.body = {"temperature": 0, "ignore_eos": True, **body}
        self.status = self.text = None
        self.start()

    def run(self):
        request = urllib.request.Request(self.url, json.dumps(self.body).encode())
        try:
            with urllib.request.urlopen(request, timeout=bound(120)) as answer:
                self.status = answer.status
                self.text = json.loads(answer.read())["choices"][0]["text"]
        except urllib.error.HTTPError as error:
            self.status, self.text = error.code, error.read().decode()
        except OSError as error:
            self.status, self.text = 0, str(error)
