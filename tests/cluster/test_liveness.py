#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=180
"""Liveness of a rank. ptrace stops the engine thread of a real rank between two steps, as a bug
would, and /live and the health "live" say so within the limit of 10 seconds, and no longer when it
runs again. An idle rank, one in a long step, one that was paused as a whole, and one that still
loads are live; the last one is not ready. Skipped (77) where the kernel lets nobody trace."""
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import parallel_cases
from rpc_python import OPTIONS, fields, grpc
from cluster import Cluster, bound, free_ports, wait_until
from skips import skip

BUILD = sys.argv[1] if len(sys.argv) > 1 else "build/release"
HANG_S = 10
SERVING, NOT_SERVING = 1, 2
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000  # __WALL


def ptrace(request, tid):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(request, tid, None, None) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class StoppedThread:
    """One thread of a child of ours does not run while the block does."""

    def __init__(self, tid):
        self.tid = tid

    def __enter__(self):
        ptrace(PTRACE_SEIZE, self.tid)
        ptrace(PTRACE_INTERRUPT, self.tid)
        os.waitpid(self.tid, WALL)

    def __exit__(self, *failure):
        ptrace(PTRACE_DETACH, self.tid)


def may_trace():
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            with StoppedThread(child.pid):
                return True
        except PermissionError:
            return False
        finally:
            child.kill()


class LiveWatch(threading.Thread):
    """Keeps the values of the health "live", from the beginning."""

    def __init__(self, address):
        super().__init__()
        self.channel = grpc.insecure_channel(address, options=OPTIONS)
        self.call = self.channel.unary_stream("/grpc.health.v1.Health/Watch")(b"\x0a\x04live")
        self.states = []
        self.start()

    def run(self):
        try:
            for message in self.call:
                self.states += fields(message).get(1, [0])
        except grpc.RpcError:
            pass

    def close(self):
        self.call.cancel()
        self.join()
        self.channel.close()


class Rank(Cluster):
    def __init__(self, **more):
        self.metrics = free_ports(more.get("n_ranks", 1))
        flags = ["--metrics", f"127.0.0.1:{self.metrics}", *more.pop("worker_flags", [])]
        super().__init__(BUILD, transport="tcp", worker_flags=flags, **more)

    def ask(self, path):
        """(status, text) of the rank's metrics door."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}{path}", timeout=10) as a:
                return a.status, a.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def is_live(self):
        return self.ask("/live") == (200, "live\n")

    def health_live(self):
        return self.outrider("health", "-a", self.worker_addresses[0], "--service", "live")


class Liveness(unittest.TestCase):
    def rank(self, **more):
        rank = Rank(**more)
        self.addCleanup(rank._leave, False)
        rank.start_workers()
        return rank

    def idle_rank(self):
        rank = self.rank(target="synthetic:tiny,seed=1")
        wait_until(lambda: rank.is_serving(rank.listen), 30, "the rank serves")
        return rank

    def check_live(self, rank, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.assertEqual(rank.ask("/live"), (200, "live\n"))
            time.sleep(0.2)

    def test_an_engine_thread_that_hangs_between_steps(self):
        rank = self.idle_rank()
        watch = LiveWatch(rank.listen)
        self.addCleanup(watch.close)
        wait_until(lambda: watch.states == [SERVING], 10, "it is live")
        with StoppedThread(rank.workers.pid): # the engine thread is the main one
            began = time.monotonic()
            wait_until(lambda: not rank.is_live(), 2 * HANG_S, "/live says that it hangs")
            took = time.monotonic() - began
            self.assertGreater(took, HANG_S - 1)
            wait_until(lambda: watch.states == [SERVING, NOT_SERVING], 2, "its watchers are told")
            status, text = rank.ask("/live")
            self.assertEqual(status, 503)
            self.assertRegex(text, r"^the engine thread has made no progress for \d\d s")
            self.assertEqual(rank.ask("/ready")[0], 503)
            self.assertEqual(rank.ask("/health")[0], 200)
            self.assertEqual(rank.ask("/metrics")[0], 200)
            began = time.monotonic()
            probe = rank.health_live()
            self.assertNotEqual(probe.returncode, 0, "not serving, or no answer in time")
            self.assertLess(time.monotonic() - began, bound(5))
            self.assertIn("engine_hangs", rank.workers.log())
        wait_until(rank.is_live, 5, "it goes on")
        wait_until(lambda: watch.states == [SERVING, NOT_SERVING, SERVING], 5, "all know")
        self.assertEqual(rank.ask("/ready"), (200, "ready\n"))
        self.assertEqual(rank.health_live().stdout, "serving\n")

    def test_an_idle_rank_is_live(self):
        rank = self.idle_rank()
        watch = LiveWatch(rank.listen)
        self.addCleanup(watch.close)
        self.check_live(rank, HANG_S + 5)
        self.assertEqual(watch.states, [SERVING])

    def test_a_pause_of_the_whole_process_is_no_hang(self):
        rank = self.idle_rank()
        rank.workers.process.send_signal(signal.SIGSTOP)
        time.sleep(HANG_S + 2)
        rank.workers.process.send_signal(signal.SIGCONT)
        self.check_live(rank, 2)
        self.assertNotIn("engine_hangs", rank.workers.log())

    def test_a_rank_in_a_long_step_is_live(self):
        """It waits for the other rank, which is stopped; in a group's first steps nobody knows yet
        how long these may take."""
        rank = self.rank(n_ranks=2, coordinator_flags=["--calibrate", "0"])
        rank.start_coordinator()
        rank.wait_serving()
        ask = ("generate", "Once upon a time", "-n", "8")
        os.kill(rank.rank_pids()[1], signal.SIGSTOP)
        text = rank.popen(*ask, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(text.stdout.close)
        self.addCleanup(text.wait)
        self.addCleanup(text.kill)
        self.check_live(rank, HANG_S + 3)
        self.assertEqual(rank.ask("/ready"), (200, "ready\n"))
        self.assertIsNone(text.poll())
        os.kill(rank.rank_pids()[1], signal.SIGCONT)
        self.assertEqual(text.wait(30), 0)
        self.assertNotIn("engine_hangs", rank.workers.log())

    def test_a_rank_that_loads_is_live_and_not_ready(self):
        rank = self.rank(target="synthetic:llama-3.2-1b,seed=1", worker_flags=["--threads", "1"])

        def answers():
            try:
                return rank.ask("/live")
            except OSError:
                return None

        self.assertEqual(wait_until(answers, 30, "it answers"), (200, "live\n"))
        self.assertNotIn(" ready ", rank.workers.log())
        status, text = rank.ask("/ready")
        self.assertEqual(status, 503)
        self.assertIn("this rank still starts", text)
        self.assertEqual(rank.ask("/metrics"), (200, ""))
        rank.workers.process.kill()


if __name__ == "__main__":
    if not may_trace():
        skip("the kernel does not let this process trace another one")
    parallel_cases.main(verbosity=2)
