#!/usr/bin/env python3
# ctest: labels=full libs=client timeout=300
"""outrider-group: the ranks of one container, which drain at SIGTERM.

Usage: test_group_program.py BUILD_FOLDER
"""
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import Cluster, Program, descendants, is_alive, wait_until

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
PROGRAM = os.path.join(BUILD, "bin", "outrider-group")


# As many ranks as cores would spin while they wait, though others need the cores, too.
YIELD = "--mca mpi_yield_when_idle 1"


class Group(Cluster):
    """A cluster whose ranks outrider-group starts."""

    def start_workers(self):
        command = [PROGRAM, "--ranks", str(self.n_ranks), "--model", self.target, "--listen",
                   self.listen, *self.worker_flags]
        self.workers = Program("workers", command, self._log_path("workers"),
                               {"MPIRUN_FLAGS": YIELD})


class GroupOnHosts(Group):
    """As Group, with a host file whose one host is this one."""

    def start_workers(self):
        hosts = os.path.join(self.folder, "hosts")
        with open(hosts, "w", encoding="ascii") as file:
            file.write(f"localhost slots={self.n_ranks}\n")
        command = [PROGRAM, "--ranks", str(self.n_ranks), "--hosts", hosts, "--model", self.target,
                   "--listen", self.listen, *self.worker_flags]
        self.workers = Program("workers", command, self._log_path("workers"),
                               {"MPIRUN_FLAGS": f"--mca plm isolated {YIELD}"})


class GroupProgram(unittest.TestCase):
    def test_ranks_answer_and_end_with_0_at_sigterm(self):
        with Group(BUILD, 2) as group:
            done = group.outrider("generate", "Once upon a time", "-n", "8", "--temperature", "0")
            self.assertEqual(done.returncode, 0, done.stderr)
            everyone = [group.workers.pid, *descendants(group.workers.pid)]
            self.assertEqual(len(group.rank_pids()), 2)
            group.workers.process.terminate()
            self.assertEqual(group.workers.wait(10), 0)
            self.assertEqual([pid for pid in everyone if is_alive(pid)], [])
            group.wait_not_serving()

    def test_a_text_is_finished_first(self):
        with Group(BUILD, 2, worker_flags=["--drain-timeout", "300"]) as group:
            busy = group.popen("generate", "Once upon a time", "-n", "900", "--ignore-eos", "-K",
                               "0", "--stats", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
            self.assertTrue(busy.stdout.read(16))
            group.workers.process.terminate()
            _, figures = busy.communicate(timeout=250)
            self.assertEqual(busy.returncode, 0, figures)
            self.assertIn(b"ended by length", figures)
            self.assertEqual(group.workers.wait(40), 0)

    def test_with_a_host_file_a_text_is_finished_and_the_status_is_143(self):
        """Not 0, because a job scheduler would take that for the end of the job."""
        with GroupOnHosts(BUILD, 2, worker_flags=["--drain-timeout", "300"]) as group:
            busy = group.popen("generate", "Once upon a time", "-n", "900", "--ignore-eos", "-K",
                               "0", "--stats", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
            self.assertTrue(busy.stdout.read(16))
            everyone = [group.workers.pid, *descendants(group.workers.pid)]
            group.workers.process.terminate()
            _, figures = busy.communicate(timeout=250)
            self.assertEqual(busy.returncode, 0, figures)
            self.assertIn(b"ended by length", figures)
            self.assertEqual(group.workers.wait(40), 128 + signal.SIGTERM)
            self.assertEqual([pid for pid in everyone if is_alive(pid)], [])

    def test_a_killed_rank_ends_the_group(self):
        with Group(BUILD, 2) as group:
            everyone = [group.workers.pid, *descendants(group.workers.pid)]
            group.kill_rank(1)
            self.assertNotEqual(group.workers.wait(10), 0)
            wait_until(lambda: not any(is_alive(pid) for pid in everyone), 5, "all have ended")

    def test_a_killed_mpirun_leaves_no_rank(self):
        with Group(BUILD, 2) as group:
            everyone = [group.workers.pid, *descendants(group.workers.pid)]
            mpirun = [pid for pid in everyone[1:] if pid not in group.rank_pids().values()]
            os.kill(mpirun[0], signal.SIGKILL)
            self.assertEqual(group.workers.wait(10), 128 + signal.SIGKILL)
            wait_until(lambda: not any(is_alive(pid) for pid in everyone), 10, "all have ended")
            own = f"outrider-mpirun.{group.workers.pid}."
            left = [name for folder in ("/dev/shm", os.environ.get("TMPDIR", "/tmp"))
                    for name in os.listdir(folder) if name.startswith(own)]
            self.assertEqual(left, [])

    def test_one_rank_needs_no_mpirun(self):
        with Group(BUILD, 1) as group:
            with open(f"/proc/{group.workers.pid}/comm", encoding="ascii") as file:
                self.assertEqual(file.read(), "outrider-worker\n")
            group.workers.process.terminate()
            self.assertEqual(group.workers.wait(10), 0)

    def test_wrong_options_are_refused(self):
        for options, ranks, text in ((["--ranks", "0"], "", "--ranks"),
                                     (["--ranks"], "", "--ranks needs a value"),
                                     (["-T=many"], "2", "--ranks: 'many'"),
                                     ([], "many", "OUTRIDER_GROUP_RANKS: 'many'"),
                                     (["-T=1", "--slots=many"], "2", "worker: --slots: 'many'")):
            done = subprocess.run([PROGRAM, *options], capture_output=True, encoding="utf-8",
                                  env={**os.environ, "OUTRIDER_GROUP_RANKS": ranks},
                                  stdin=subprocess.DEVNULL, timeout=10, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main()
