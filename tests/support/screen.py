"""A terminal of a fixed size, in which a program runs: what it shows, and keys for it.

    with Screen(["outrider", "chat"], columns=80, rows=24, environment={...}) as screen:
        screen.wait_for(">>> ")
        screen.type("Hello\\n")
        screen.lines()                      # what is to be seen, without blanks at their ends

tmux is the terminal. Its server ends with this process, however that ends.
"""
import os
import shlex
import subprocess
import tempfile

from cluster import ClusterError, bound, dying_with_us, wait_until

KEYS = {"\n": "Enter", "\x03": "C-c", "\x04": "C-d", "\x07": "C-g"}


class Screen:
    def __init__(self, command, columns=80, rows=24, environment=None):
        self.command = command
        self.size = columns, rows
        self.environment = environment or {}

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="outrider-screen-")
        self.socket = os.path.join(self.folder.name, "tmux")
        self.status = os.path.join(self.folder.name, "status")
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}
        environment.pop("TMUX", None)
        self.server = subprocess.Popen(
            dying_with_us(["tmux", "-S", self.socket, "-f", "/dev/null", "-D"]),
            stdin=subprocess.DEVNULL, env=environment)
        wait_until(lambda: os.path.exists(self.socket), 10, "tmux has its socket")
        words = [f"{name}={value}" for name, value in self.environment.items()]
        line = shlex.join(["env", *words, *self.command])
        columns, rows = self.size
        self.tmux("new-session", "-d", "-x", str(columns), "-y", str(rows),
                  f"{line}; echo $? >{self.status}; sleep 1000")
        return self

    def tmux(self, *words):
        done = subprocess.run(["tmux", "-S", self.socket, *words], stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=bound(20), check=False)
        if done.returncode:
            raise ClusterError(f"tmux {words[0]}: {done.stderr.decode()}")
        return done.stdout.decode("utf-8")

    def lines(self, with_colours=False, joined=False):
        """The lines that are to be seen, up to the last one that is not empty. joined: a line that
        the terminal has broken is one."""
        flags = [*(["-e"] if with_colours else []), *(["-J"] if joined else [])]
        return [line.rstrip() for line in
                self.tmux("capture-pane", "-p", *flags).rstrip().split("\n")]

    def type(self, text):
        for character in text:
            if character in KEYS:
                self.tmux("send-keys", KEYS[character])
            else:
                self.tmux("send-keys", "-l", character)

    def key(self, name):
        self.tmux("send-keys", name)

    def wait_for(self, condition, timeout=30):
        """The lines once condition(lines) is true, or once a line is this text."""
        if isinstance(condition, str):
            text = condition
            condition = lambda lines: text.rstrip() in lines
        seen = []

        def look():
            seen[:] = self.lines(joined=True)
            return condition(seen)
        try:
            wait_until(look, timeout, "the screen shows it")
        except ClusterError as error:
            raise ClusterError(f"{error}:\n" + "\n".join(seen)) from None
        return list(seen)

    def wait_end(self, timeout=30):
        """The program's exit status."""
        wait_until(lambda: os.path.exists(self.status) and os.path.getsize(self.status), timeout,
                   "the program has ended")
        with open(self.status, encoding="ascii") as file:
            return int(file.read())

    def __exit__(self, *_):
        try:
            self.tmux("kill-server")
        except ClusterError:
            self.server.terminate()
        self.server.wait(bound(10))
        self.folder.cleanup()
