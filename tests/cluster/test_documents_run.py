#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=900
"""Every code block of README.md and of docs/serve-your-model.md runs, from the first to the last,
in a home of its own, with the programs of this build. Says how many ran, and of the others why not.

A block is indented by four columns. A reader does not see these comments before it:

  not run: WHY      it is left out
  needs: PyPI       it is left out where PyPI cannot be reached
  typed: TEXT       the standard input of its commands
  prints: REGEX     what must be in their output
  prints nothing    what it says

A line that serves runs until the next such line, or to the end of the document, where it has to end
as after Ctrl-C. Two things are not as at a user's: the ports, which are free ones here, and
Qwen/Qwen3-0.6B in the Hugging Face cache, which is the tales model under that name.

Usage: test_documents_run.py BUILD_FOLDER [DOCUMENT...]
"""
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import pypi
from cluster import SOURCE, TALES, ClusterError, bound, dying_with_us, free_ports, wait_until

DOCUMENTS = ("README.md", "docs/serve-your-model.md")
COMMENT = re.compile(r"^<!-- (.*) -->$")
KINDS = re.compile(r"(not run|needs|typed|prints): (.+)|prints nothing")
SERVES = re.compile(r"^(?:\S*/)?(?:outrider serve|deploy/local/run --serve)(?: |$)", re.M)
NAMED = "Qwen/Qwen3-0.6B"
COMMAND_SECONDS = 120


class Block:
    """Commands of a document, and what the comments before them say."""

    def __init__(self, line, words):
        self.line, self.lines, self.words = line, [], words

    def word(self, kind):
        return self.words.get(kind)


def blocks_of(text):
    """The indented blocks in their order. A comment holds for the block after it."""
    blocks, words, block, was_blank = [], {}, None, True
    for number, line in enumerate(text.splitlines(), 1):
        comment = COMMENT.match(line)
        if comment:
            found = KINDS.fullmatch(comment[1])
            if not found:
                raise ValueError(f"line {number}: {comment[1]!r} is no comment for a block")
            words[found[1] or "prints nothing"] = found[2] or True
            block = None
        elif line.startswith("    ") and (block or was_blank):
            if not block:
                block = Block(number, words)
                blocks.append(block)
                words = {}
            block.lines.append(line[4:])
        elif line and block:
            block = None
        elif block and not line:
            block.lines.append("")
        if line.startswith("```"):
            raise ValueError(f"line {number}: a block is indented, not fenced")
        if line and not comment and not line.startswith("    ") and words:
            raise ValueError(f"line {number}: the comment before it belongs to no block")
        was_blank = not line
    return blocks


def pieces_of(block):
    """The scripts of a block, cut where a line serves; (script, True if it serves)."""
    script, pieces = [], []
    for line in block.lines:
        if SERVES.match(line):
            pieces += [("\n".join(script), False), (line, True)]
            script = []
        else:
            script.append(line)
    pieces.append(("\n".join(script), False))
    return [(text, serves) for text, serves in pieces if text.strip()]


class World:
    """A home and a checkout, whose build/release is the build folder."""

    def __init__(self, build, folder):
        self.folder = folder
        self.tree = os.path.join(folder, "outrider")
        self.state = os.path.join(folder, "state")
        self.server = None
        self.output = None
        home, temporary = (os.path.join(folder, name) for name in ("home", "tmp"))
        for path in (self.tree, home, temporary, os.path.join(self.tree, "build")):
            os.mkdir(path)
        for name in os.listdir(SOURCE):
            if name != "build" and not name.startswith("."):
                os.symlink(os.path.join(SOURCE, name), os.path.join(self.tree, name))
        os.symlink(build, os.path.join(self.tree, "build", "release"))
        self.make_named(os.path.join(home, ".cache/huggingface/hub"))
        self.http = free_ports(2)
        self.grpc = self.http + 1
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("OUTRIDER_", "XDG_", "HF_"))}
        self.environment.update(
            HOME=home, TMPDIR=temporary, OUTRIDER_BUILD=build, no_proxy="127.0.0.1,0.0.0.0",
            PIP_CONSTRAINT=os.path.join(pypi.SUPPORT, "clients.txt"),
            OUTRIDER_SERVE_HTTP_PORT=str(self.http), OUTRIDER_ADDRESS=f"127.0.0.1:{self.grpc}",
            OUTRIDER_SERVE_LISTEN=f"127.0.0.1:{self.grpc}")

    @staticmethod
    def make_named(hub):
        top = os.path.join(hub, "models--" + NAMED.replace("/", "--"))
        shutil.copytree(os.path.join(TALES, "target"), os.path.join(top, "snapshots", "0"))
        os.mkdir(os.path.join(top, "refs"))
        with open(os.path.join(top, "refs", "main"), "w", encoding="ascii") as file:
            file.write("0")

    def command(self, text):
        """The text after what earlier ones have exported, in the folder where they left off."""
        text = text.replace("127.0.0.1:8000", f"127.0.0.1:{self.http}")
        text = text.replace("127.0.0.1:7070", f"127.0.0.1:{self.grpc}")
        state = shlex.quote(self.state)
        return ["bash", "-euc", f"[ ! -f {state} ] || . {state}\n{text}\n"
                f"{{ export -p; printf 'cd %q\\n' \"$PWD\"; }} >{state}"]

    def run(self, text, typed=None):
        done = subprocess.run(dying_with_us(self.command(text)), cwd=self.tree,
                              env=self.environment, input=(typed or "") + "\n", encoding="utf-8",
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=bound(COMMAND_SECONDS), check=False)
        if done.returncode:
            raise ClusterError(f"status {done.returncode} of\n{text}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def serve(self, text):
        self.stop()
        self.output = os.path.join(self.folder, "served")
        with open(self.output, "wb") as file:
            self.server = subprocess.Popen(
                dying_with_us(self.command("exec " + text)), cwd=self.tree, env=self.environment,
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
        wait_until(lambda: self.server.poll() is not None or " is served at " in self.said(), 120,
                   f"this serves: {text}")
        if self.server.poll() is not None:
            raise ClusterError(f"it ended with {self.server.returncode}: {text}\n{self.said()}")

    def said(self):
        with open(self.output, encoding="utf-8") as file:
            return file.read()

    def stop(self):
        """As Ctrl-C does; it ends with status 0."""
        server, self.server = self.server, None
        if not server:
            return
        server.send_signal(signal.SIGINT)
        try:
            status = server.wait(bound(30))
        finally:
            server.kill()
            server.wait()
        if status:
            raise ClusterError(f"the server ended with {status}\n{self.said()}")


def run_block(world, block):
    output = ""
    for text, serves in pieces_of(block):
        if serves:
            world.serve(text)
        else:
            output += world.run(text, block.word("typed"))
    wanted = block.word("prints")
    if wanted and not re.search(wanted, output, re.M):
        raise ClusterError(f"{wanted!r} is not in its output:\n{output}")
    if block.word("prints nothing") and output:
        raise ClusterError(f"it prints:\n{output}")


def run_document(build, name, has_pypi):
    """Returns how many blocks ran, and the lines that say why others did not."""
    with open(os.path.join(SOURCE, name), encoding="utf-8") as file:
        blocks = blocks_of(file.read())
    n_run, left = 0, []
    with tempfile.TemporaryDirectory(prefix="outrider-doc-") as folder:
        world = World(build, folder)
        try:
            for block in blocks:
                why = block.word("not run")
                if not why and block.word("needs") == "PyPI" and not has_pypi:
                    why = "PyPI cannot be reached from here"
                if why:
                    left.append(f"{name}:{block.line}: {why}")
                    continue
                try:
                    run_block(world, block)
                except (ClusterError, subprocess.SubprocessError) as error:
                    raise ClusterError(f"{name}:{block.line}: {error}") from None
                n_run += 1
                print(f"ok      {name}:{block.line}: {block.lines[0]}", flush=True)
            world.stop()
        finally:
            if world.server:
                world.server.kill()
                world.server.wait()
        temporary = os.listdir(os.path.join(folder, "tmp"))
        if temporary:
            raise ClusterError(f"{name}: its commands left {temporary}")
    return n_run, left


def try_rules():
    """Small texts have the blocks that are listed, each with the comments before it."""
    text = ("a\n\n    one\n    two\n\n    three\n\n<!-- not run: x -->\n\n    four\n\n- b\n"
            "    of a list\n")
    made = [(block.line, block.lines, block.words) for block in blocks_of(text)]
    wanted = [(3, ["one", "two", "", "three", ""], {}), (10, ["four", ""], {"not run": "x"})]
    assert made == wanted, made
    for wrong in ("```\na\n```\n", "<!-- not run: x -->\n\nno block\n", "<!-- runs -->\n"):
        try:
            blocks_of(wrong)
        except ValueError:
            continue
        raise AssertionError(f"this is taken: {wrong}")
    served = Block(1, {})
    served.lines = ["a", "outrider serve x", "b", "outrider served"]
    assert pieces_of(served) == [("a", False), ("outrider serve x", True),
                                 ("b\noutrider served", False)], pieces_of(served)


def main():
    build = os.path.abspath(sys.argv[1])
    try_rules()
    has_pypi = pypi.is_there()
    n_run, left, failed = 0, [], 0
    for name in sys.argv[2:] or DOCUMENTS:
        try:
            n, more = run_document(build, name, has_pypi)
            n_run += n
            left += more
        except (ClusterError, ValueError) as error:
            failed += 1
            print(f"FAILED  {error}", flush=True)
    print("\n".join(f"not run {line}" for line in left))
    print(f"{n_run} blocks ran, {len(left)} did not")
    return 1 if failed or not n_run else 0


if __name__ == "__main__":
    sys.exit(main())
