#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=180
"""deploy/mpirun/outrider.sbatch as a job of a real Slurm: a controller and two nodes, which are
network namespaces.

Usage: test_slurm.py BUILD_FOLDER
"""
import json
import os
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import SOURCE, TALES, Cluster, Program, wait_until
import skips
from hosts import DATA_NETWORK, Hosts, skip_unless_supported

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
BIN = os.path.join(BUILD, "bin")
SCRIPT = os.path.join(SOURCE, "deploy", "mpirun", "outrider.sbatch")
GENERATE = ("generate", "Once upon a time", "-n", "24", "--temperature", "0", "--quiet")
CONFIG = """
ClusterName=test
SlurmctldHost=node1
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/controller
SlurmdSpoolDir={folder}/spool.%n
TmpFS={folder}/tmp.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
NodeName=node[1-2] CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE
"""


class Slurm:
    def __init__(self):
        self.hosts = Hosts(BUILD, 2, veth=True)

    def __enter__(self):
        self.hosts.__enter__()
        try:
            self.start()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind, *why):
        if kind is not None:
            self.print_files()
        self.hosts.__exit__(kind, *why)
        self.munged.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self):
        self.folder = self.hosts.folder + "-slurm" # outlives the hosts
        for name in ("", "munge", "controller", "spool.node1", "spool.node2", "tmp.node1",
                     "tmp.node2"):
            os.mkdir(os.path.join(self.folder, name), 0o700)
        config = os.path.join(self.folder, "slurm.conf")
        with open(config, "w", encoding="ascii") as file:
            file.write(CONFIG.format(folder=self.folder, cpus=os.cpu_count()))
        self.environment = {"SLURM_CONF": config}
        self.start_munge()
        self.hosts.start(0, "slurmctld", "slurmctld", "-D", "-f", config)
        for i, name in enumerate(self.hosts.names):
            self.hosts.start_daemon(i, f"slurmd-{name}", "slurmd", "-D", "-f", config, "-N", name,
                                    has_proc=True)
        wait_until(lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D").stdout == "2\n", 30,
                   "both nodes are idle")

    def start_munge(self):
        munge = os.path.join(self.folder, "munge")
        with open(os.path.join(munge, "key"), "wb") as file:
            file.write(os.urandom(128))
        os.chmod(file.name, 0o400)
        self.munged = Program("munged", [
            "munged", "--foreground", "--force", f"--socket={munge}/socket",
            f"--key-file={munge}/key", f"--log-file={munge}/log", f"--pid-file={munge}/pid",
            f"--seed-file={munge}/seed"], os.path.join(self.folder, "munged.log"), {})
        wait_until(lambda: os.path.exists(os.path.join(munge, "socket")), 10, "munged answers")

    def run(self, *args):
        return self.hosts.run(0, *args, env={**os.environ, **self.environment})

    def output(self):
        try:
            with open(os.path.join(self.folder, "out"), encoding="utf-8") as file:
                return file.read()
        except OSError:
            return ""

    def print_files(self):
        print("---- output of the job\n" + self.output()[-4000:], file=sys.stderr)


class Job(unittest.TestCase):
    def test_a_job_serves_restarts_its_ranks_and_ends_when_told(self):
        with Cluster(BUILD) as cluster:
            text = cluster.outrider(*GENERATE).stdout
        with Slurm() as slurm:
            export = (f"ALL,TARGET={TALES}/target,DRAFT={TALES}/draft,OUTRIDER_BUILD={BUILD},"
                      f"NETWORK={DATA_NETWORK},COORDINATOR_OPTIONS=--http off")
            done = slurm.run("sbatch", "--parsable", f"--export={export}", "--output",
                             f"{slurm.folder}/out", SCRIPT)
            self.assertEqual(done.returncode, 0, done.stderr)
            job = done.stdout.strip()
            self.serves(slurm, text)

            ranks = self.ranks()
            self.assertEqual(len(ranks), 2)
            os.kill(ranks[1], 9)
            wait_until(lambda: len(set(self.ranks()) - set(ranks)) == 2, 30, "two new ranks run")
            self.serves(slurm, text)
            self.assertIn("the ranks have ended; they start again in 1 s", slurm.output())

            slurm.run("scancel", "--batch", "--signal=TERM", job)
            wait_until(lambda: not slurm.run("squeue", "-h").stdout, 30, "the job has ended")
            self.assertEqual(self.ranks(), [])

    def serves(self, slurm, text):
        def client(*args):
            return slurm.run(f"{BIN}/outrider", *args)

        wait_until(lambda: client("health").returncode == 0, 60, "the job serves")
        self.assertEqual(json.loads(client("describe", "--json").stdout)["n_ranks"], 2)
        self.assertEqual(client(*GENERATE).stdout, text)

    @staticmethod
    def ranks():
        """The ranks that Slurm has started, of this build."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    is_of_job = b"\0SLURM_JOB_ID=" in b"\0" + file.read()
                if is_of_job and os.readlink(f"/proc/{pid}/exe") == os.path.join(
                        BIN, "outrider-worker"):
                    found.append(int(pid))
            except OSError:
                pass
        return sorted(found)


if __name__ == "__main__":
    skip_unless_supported(links=False)
    for program, package in (("slurmctld", "slurmctld"), ("slurmd", "slurmd"),
                             ("srun", "slurm-client"), ("munged", "munge")):
        skips.need(program, package=package)
    unittest.main(verbosity=2)
