"""Commands on a GPU machine: each has a limit, parts have one, and all together have one, so that
what hangs costs its own time alone. Results are printed as they come and once more at the end."""
import contextlib
import os
import signal
import subprocess
import threading
import time

SKIP = 77
LEAST_S = 1.0  # of a command that is still worth starting
TAIL = 1500  # characters shown of the output of what failed


class Table:
    """Commands that ran, how they ended, how long they took, and the figures they printed. Locked
    inside."""

    def __init__(self, root, limit_s, log=None):
        self.root = root
        self.rows, self.figures = [], []
        self.lock = threading.RLock() # a signal may come while it is held
        self.running = set()
        self.is_stopped = False
        self.start = time.monotonic()
        self.end = self.start + limit_s
        self.log = open(log, "w", encoding="utf-8") if log else None

    @contextlib.contextmanager
    def part(self, limit_s):
        """Gives limit_s seconds to all that runs inside together."""
        before = self.end
        self.end = min(before, time.monotonic() + limit_s)
        try:
            yield
        finally:
            self.end = before

    def run(self, name, command, env=None, limit=120, keep=None, figures=None):
        """Runs a command. keep(output): one line about how it went; figures(output): lines of
        figures, which may be those of a command that was stopped. Returns True if it passed."""
        begin = time.monotonic()
        limit = min(limit, self.end - begin)
        if limit < LEAST_S or self.is_stopped:
            return self._add(name, "NOT RUN", 0, "no time was left", "", [])
        output, code = self._execute(command, env, limit)
        verdict = {0: "ok", SKIP: "skipped", 124: "TIMEOUT"}.get(code, "FAILED")
        found, text = [], ""
        try:
            found = figures(output) if figures and verdict != "skipped" else []
            text = keep(output) if keep else ""
        except (ValueError, IndexError, KeyError, AttributeError, ZeroDivisionError) as failure:
            verdict, text = "FAILED", f"its output has another form than expected: {failure!r}"
        return self._add(name, verdict, time.monotonic() - begin, text, output, found)

    def skip(self, name, why):
        self._add(name, "skipped", 0, why, "", [])

    def _execute(self, command, env, limit):
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        try:
            process = subprocess.Popen(command, cwd=self.root, env=environment,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, encoding="utf-8",
                                       errors="replace", start_new_session=True)
        except OSError as failure:
            return f"{command[0]}: {failure.strerror}", 127
        with self.lock:
            self.running.add(process)
        try:
            return process.communicate(timeout=limit)[0], process.returncode
        except subprocess.TimeoutExpired:
            kill(process)
            try:
                return process.communicate(timeout=10)[0], 124
            except subprocess.TimeoutExpired: # something that left the session holds the pipe
                return "", 124
        finally:
            kill(process) # what it left behind in its session
            with self.lock:
                self.running.discard(process)

    def stop(self):
        """Ends all that runs, from any thread."""
        with self.lock:
            self.is_stopped = True
            for process in self.running:
                kill(process)

    def stop_on_signals(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())

    def _add(self, name, verdict, seconds, text, output, figures):
        with self.lock:
            print(f"== {name}: {verdict}, {seconds:.1f} s {text}".rstrip(), flush=True)
            if verdict not in ("ok", "skipped") and output:
                print(output[-TAIL:].rstrip(), flush=True)
            for line in figures:
                print(f"   {line}", flush=True)
            if self.log:
                self.log.write(f"==== {name}: {verdict}, {seconds:.1f} s\n{output}\n")
                self.log.flush()
            self.rows.append({"name": name, "verdict": verdict, "seconds": seconds, "text": text})
            self.figures += figures
        return verdict == "ok"

    def count(self, *verdicts):
        return sum(row["verdict"] in verdicts for row in self.rows)

    def n_failed(self):
        return len(self.rows) - self.count("ok", "skipped")

    def show(self):
        """Prints what did not pass, then all figures, then the counts."""
        print(f"\n{time.monotonic() - self.start:.0f} s in all. Commands that did not pass:")
        for row in self.rows:
            if row["verdict"] != "ok":
                print(f"  {row['name']}: {row['verdict']}, {row['seconds']:.1f} s {row['text']}")
        print("Figures:")
        for line in self.figures:
            print(f"  {line}")
        print(f"{self.count('ok')} passed, {self.n_failed()} failed, "
              f"{self.count('skipped')} skipped", flush=True)


def kill(process):
    """The whole session that the process began."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
