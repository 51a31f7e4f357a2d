#!/usr/bin/env python3
# ctest: labels=long libs=client beside=yes timeout=3600
"""README's first command in a bare Debian 12, which has neither a compiler nor our packages: it
installs, builds and prints the text. Says how long that took and how many bytes it brought.

Usage: test_bare_machine.py BUILD_FOLDER

It needs root, and the network for Debian's packages.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import skips
from cluster import SOURCE, bound

COMMAND_SECONDS = 3000


def first_block():
    """README's first commands, and what they must print."""
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
        text = file.read()
    found = re.search(r"(?m)^<!-- prints: (.+) -->\n\n((?: {4}.+\n)+)", text)
    return re.sub(r"(?m)^ {4}", "", found[2]), found[1]


def bytes_in(folder):
    """Returns the bytes of its files, without /proc."""
    done = subprocess.run(["du", "--summarize", "--bytes", "--one-file-system", folder],
                          capture_output=True, encoding="utf-8", check=True)
    return int(done.stdout.split()[0])


class BareMachine(unittest.TestCase):
    def test_the_first_command_of_the_readme(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="outrider-bare-"))
        os.chmod(folder, 0o755)
        root = os.path.join(folder, "root")
        subprocess.run(["mmdebstrap", "--variant=minbase", "--mode=root", "--skip=cleanup/apt",
                        "bookworm", root], capture_output=True, timeout=bound(900), check=True)
        tree = os.path.join(root, "outrider")
        shutil.copytree(SOURCE, tree, symlinks=True,
                        ignore=lambda at, names: [n for n in names if n.startswith(".") or
                                                  (at == SOURCE and n == "build")])
        command, wanted = first_block()
        before = bytes_in(root)
        start = time.monotonic()
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "sh", "-c",
             'mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/dev/shm" && '
             'exec chroot "$0" "$@"', root, "env", "-i", "HOME=/root",
             "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-euc", f"cd /outrider\n{command}"],
            stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
            timeout=bound(COMMAND_SECONDS), check=False)
        seconds = time.monotonic() - start
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])
        self.assertRegex(done.stdout, wanted)
        built = bytes_in(os.path.join(tree, "build"))
        print(f"from a bare Debian to the text: {seconds:.0f} s, "
              f"{(bytes_in(root) - before - built) / 1e6:.0f} MB of packages, "
              f"{built / 1e6:.0f} MB of build")
        said = [line for line in done.stderr.splitlines() if re.match(r"built in|building", line)]
        self.assertEqual(len(said), 2, done.stderr[-4000:])


if __name__ == "__main__":
    if os.geteuid() != 0:
        skips.skip("only root can make a Debian in a folder")
    skips.need("mmdebstrap", package="mmdebstrap")
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
