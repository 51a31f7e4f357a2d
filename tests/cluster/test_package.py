#!/usr/bin/env python3
# ctest: labels=long libs=client beside=yes timeout=1800
"""The Debian package: lintian has nothing against it, and in a bare Debian 12 it is installed,
serves, and is removed without a trace.

Usage: test_package.py BUILD_FOLDER

It needs root and the network, for Debian's packages.
"""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import skips
from cluster import SOURCE, Program, free_ports, is_sanitized, wait_until
from units import Unit

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
REFERENCE = os.path.join(SOURCE, "tests", "golden", "tales", "reference_target.json")
# Nobody's files: lists and logs of apt and dpkg, and what ldconfig and others keep.
NOT_OURS = ("var/lib/dpkg", "var/lib/apt", "var/log", "var/cache", "etc/ld.so.cache", "tmp",
            "proc", "dev", "etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-")
USER = ["setpriv", "--reuid", "4242", "--regid", "4242", "--clear-groups", "--no-new-privs"]


def run(*command, timeout=600, **more):
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=timeout,
                          stdin=subprocess.DEVNULL, check=False, **more)


def checked(*command, **more):
    done = run(*command, **more)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="outrider-")
        os.chmod(cls.folder, 0o755)
        cls.root = os.path.join(cls.folder, "root")
        try:
            checked("cpack", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-B", cls.folder)
            [cls.package] = glob.glob(os.path.join(cls.folder, "*.deb"))
            # As the machine's own Debian, whose sources apt knows; the lists stay for what follows.
            checked("mmdebstrap", "--variant=minbase", "--mode=root", "--skip=cleanup/apt",
                    "bookworm", cls.root, timeout=900)
            shutil.copy(cls.package, os.path.join(cls.root, "tmp", "outrider.deb"))
        except BaseException:
            shutil.rmtree(cls.folder)
            raise

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def inside(self, *command):
        """The command with the root in place of /; /proc is there as long as it runs."""
        return ["unshare", "--mount", "sh", "-c",
                'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"', self.root, *command]

    def apt(self, *arguments):
        return checked(*self.inside("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--yes",
                                    "--quiet", *arguments))

    def files(self):
        found = set()
        for at, folders, names in os.walk(self.root):
            below = os.path.relpath(at, self.root)
            folders[:] = [name for name in folders
                          if not os.path.normpath(os.path.join(below, name)).startswith(NOT_OURS)]
            found |= {os.path.normpath(os.path.join(below, name)) for name in [*names, *folders]}
        return {name for name in found if not name.startswith(NOT_OURS)}

    def test_lintian_has_nothing_against_it(self):
        done = run("lintian", "--no-cfg", "--allow-root", "--fail-on", "error,warning",
                   self.package)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_it_comes_serves_and_goes(self):
        before = self.files()
        self.apt("install", "--no-install-recommends", "/tmp/outrider.deb")
        self.check_files(before)
        self.check_it_serves()
        self.check_it_goes(before)

    def check_files(self, before):
        new = self.files() - before
        for name in ("usr/bin/outrider", "usr/share/man/man1/outrider-generate.1.gz",
                     "usr/share/bash-completion/completions/outrider",
                     "usr/share/zsh/vendor-completions/_outrider", "etc/outrider/group.conf",
                     "usr/lib/systemd/system/outrider-coordinator.service"):
            self.assertIn(name, new)
        version = checked(*self.inside("outrider", "version"))
        self.assertRegex(version, r"^outrider \d+\.\d+\.\d+\n$")
        # Nobody but dpkg has an opinion on them.
        self.assertEqual(checked(*self.inside("dpkg", "--verify", "outrider")), "")

    def check_it_serves(self):
        """The units' commands, as a user without rights, at free ports."""
        with open(REFERENCE, encoding="utf-8") as file:
            wanted = json.load(file)["prompts"][0]
        run_folder = os.path.join(self.root, "run", "outrider")
        os.mkdir(run_folder, 0o700)
        os.chown(run_folder, 4242, 4242)
        started = []
        port = free_ports(2)
        ports = {"OUTRIDER_ADDRESS": f"127.0.0.1:{port}",
                 "OUTRIDER_COORDINATOR_LISTEN": f"127.0.0.1:{port}",
                 "OUTRIDER_COORDINATOR_HTTP": f"127.0.0.1:{port + 1}"}
        client = {"env": {**os.environ, **ports}}

        def serves():
            for program in started:
                assert program.is_alive(), f"{program.name} has ended: {program.log()}"
            return run(*self.inside("outrider", "health"), **client).returncode == 0

        try:
            for name in ("group", "coordinator"):
                unit = Unit(self.root, f"outrider-{name}.service")
                started.append(Program(name, self.inside(*USER, *unit.command),
                                       os.path.join(self.folder, f"{name}.log"),
                                       {**unit.options, **ports}))
            wait_until(serves, 60, "it serves")
            done = run(*self.inside(*USER, "outrider", "generate", "--quiet", "-n",
                                    str(len(wanted["greedy_ids"])), "--temperature", "0",
                                    wanted["text"]), **client)
            self.assertEqual((done.returncode, done.stdout), (0, wanted["greedy_text"]))
            for program in reversed(started):
                program.process.terminate()
                self.assertEqual(program.wait(20), 0, program.log())
        finally:
            for program in started:
                program.stop()
            shutil.rmtree(run_folder)

    def check_it_goes(self, before):
        options = {"etc/outrider", "etc/outrider/coordinator.conf", "etc/outrider/group.conf"}
        self.apt("remove", "--autoremove", "outrider")
        left = {name for name in self.files() if "outrider" in name}
        self.assertEqual(left, options)
        # Files that units keep, and the link that enables one.
        kept = ["var/lib/private/outrider/notes", "var/lib/outrider-coordinator/counts"]
        enabled = "etc/systemd/system/multi-user.target.wants/outrider-group.service"
        for name in [*kept, enabled]:
            path = os.path.join(self.root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="ascii"):
                pass
        self.apt("purge", "--autoremove", "outrider")
        self.assertEqual({name for name in self.files() if "outrider" in name}, set())
        print("        left by its libraries:", sorted(self.files() - before))
        self.assertEqual(run(*self.inside("dpkg-query", "-W", "outrider")).returncode, 1)


if __name__ == "__main__":
    if is_sanitized(BUILD):
        skips.skip("a sanitizer's build is not packaged")
    if os.geteuid() != 0:
        skips.skip("only root can make a Debian to install the package in")
    skips.need("mmdebstrap", package="mmdebstrap")
    skips.need("lintian", package="lintian")
    skips.need("dpkg-shlibdeps", package="dpkg-dev")
    unittest.main(verbosity=2)
