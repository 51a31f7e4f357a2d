#!/usr/bin/env python3
# ctest: labels=long libs=client beside=yes timeout=1800
"""The Debian package: lintian has nothing against it, and in a bare Debian 12 it is installed,
serves, with and without systemd, and is removed without a trace.

Usage: test_package.py BUILD_FOLDER

It needs root, and the network for Debian's packages.
"""
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import booted
import skips
from cluster import Program, free_ports, is_sanitized, wait_until
from units import Unit, end, reference

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
# Nobody's files: lists and logs of apt and dpkg, and what ldconfig and others keep.
NOT_OURS = ("run", "var/lib/dpkg", "var/lib/apt", "var/log", "var/cache", "etc/ld.so.cache", "tmp",
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
        words, text = reference()
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
            done = run(*self.inside(*USER, "outrider", *words), **client)
            self.assertEqual((done.returncode, done.stdout), (0, text))
            end(started)
        finally:
            for program in started:
                program.stop()
            shutil.rmtree(run_folder)

    def check_it_goes(self, before):
        self.apt("remove", "outrider")
        left = {name for name in self.files() if "outrider" in name}
        self.assertEqual(left, {"etc/outrider", "etc/outrider/coordinator.conf",
                                "etc/outrider/group.conf"})
        self.apt("purge", "outrider")
        self.assertEqual({name for name in self.files() if "outrider" in name}, set())
        self.apt("autoremove", "--purge")
        self.assertEqual(self.files() - before, set())
        self.assertEqual(run(*self.inside("dpkg-query", "-W", "outrider")).returncode, 1)

    def test_systemd_starts_it_again_and_again(self):
        """Two ranks under mpirun, in the sandbox of the unit."""
        refusal = booted.refusal()
        if refusal:
            self.skipTest(refusal)
        shutil.copy(self.package, os.path.join(self.root, "root", "outrider.deb"))
        self.apt("install", "--no-install-recommends", "/root/outrider.deb", "openmpi-bin",
                 "systemd", "dbus")
        for name, old, new in (
                ("group", "OUTRIDER_GROUP_RANKS=1", "OUTRIDER_GROUP_RANKS=2"),
                ("coordinator", "TARGET=unix:/run/outrider/worker",
                 "TARGET=unix:/run/outrider/worker.0,unix:/run/outrider/worker.1")):
            path = os.path.join(self.root, "etc", "outrider", f"{name}.conf")
            with open(path, encoding="utf-8") as file:
                text = file.read()
            self.assertIn(old, text)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace(old, new))
        with booted.Booted(self.root) as machine:
            self.machine = machine
            try:
                self.check_units()
            except BaseException:
                log = machine.run("journalctl", "--no-pager", "-u", "outrider-*").stdout
                print(log[:4000], "...", log[-4000:], sep="\n")
                raise

    def call(self, *command):
        done = self.machine.run(*command)
        self.assertEqual(done.returncode, 0, (command, done.stdout, done.stderr))
        return done.stdout

    def show(self, unit, key):
        return self.call("systemctl", "show", "--value", "-p", key, f"outrider-{unit}").strip()

    def check_answers(self):
        words, text = reference()
        wait_until(lambda: self.machine.run("outrider", "health").returncode == 0, 60, "it serves")
        self.assertEqual(self.call("outrider", *words), text)

    def check_units(self):
        units = ["outrider-group", "outrider-coordinator"]
        self.assertEqual({self.show(unit, "ActiveState") for unit in ("group", "coordinator")},
                         {"inactive"})
        self.call("systemctl", "enable", "--now", *units)
        self.check_answers()
        owners = self.call("stat", "-c", "%u", "/run/outrider/worker.0", "/run/outrider/worker.1")
        self.assertEqual(len(owners.split()), 2)
        self.assertNotIn("0", owners.split())
        self.check_new_start("coordinator", "systemctl", "reload", "outrider-coordinator")
        for unit in ("group", "coordinator"):
            self.check_new_start(unit, "systemctl", "kill", "--signal=KILL", f"outrider-{unit}")
        self.check_package_under_systemd(units)

    def check_new_start(self, unit, *command):
        before = int(self.show(unit, "NRestarts"))
        self.call(*command)
        wait_until(lambda: int(self.show(unit, "NRestarts")) == before + 1 and
                   self.show(unit, "ActiveState") == "active", 60, "it starts again")
        self.check_answers()

    def check_package_under_systemd(self, units):
        """An upgrade starts what runs anew; stops end well; purging ends what runs."""
        before = self.show("coordinator", "MainPID")
        self.call("dpkg", "--install", "/root/outrider.deb")
        self.assertNotIn(self.show("coordinator", "MainPID"), ("0", before))
        self.check_answers()
        self.call("systemctl", "stop", *units)
        for unit in ("group", "coordinator"):
            self.assertEqual(self.show(unit, "Result"), "success", unit)
        self.call("systemctl", "start", *units)
        self.check_answers()
        self.call("dpkg", "--purge", "outrider")
        for unit in ("group", "coordinator"):
            self.assertEqual(self.show(unit, "LoadState"), "not-found")
        left = {name for name in self.files() if "outrider" in name}
        self.assertEqual(left, {"root/outrider.deb"})
        self.assertEqual(self.call("systemctl", "list-units", "--no-legend", "outrider-*"), "")


if __name__ == "__main__":
    if is_sanitized(BUILD):
        skips.skip("a sanitizer's build is not packaged")
    if os.geteuid() != 0:
        skips.skip("only root can make a Debian to install the package in")
    skips.need("mmdebstrap", package="mmdebstrap")
    skips.need("lintian", package="lintian")
    skips.need("dpkg-shlibdeps", package="dpkg-dev")
    unittest.main(verbosity=2)
