#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=120
"""`cmake --install`: which files are where, and that the programs, units and scripts run from
there.

Usage: test_install.py BUILD_FOLDER
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import skips
from cluster import SOURCE, Program, bound, free_ports, is_sanitized, wait_until
from units import Unit, end, reference

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
PROGRAMS = ["outrider", "outrider-coordinator", "outrider-group", "outrider-worker"]
SCRIPTS = {"usr/share/outrider/models/get", "usr/share/outrider/mpirun/group",
           "usr/share/outrider/mpirun/one", "usr/share/outrider/mpirun/outrider.sbatch",
           "usr/share/outrider/tls/make-ca"}
NO_RESTART = 78


def install(root, prefix):
    done = subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=False,
                          env={**os.environ, "DESTDIR": root}, capture_output=True,
                          encoding="utf-8", timeout=bound(60))
    assert done.returncode == 0, done.stderr
    return done.stdout


def files_of(folder):
    return {os.path.relpath(os.path.join(at, name), folder)
            for at, _, names in os.walk(folder) for name in names}


def listed(folder, *names):
    return {os.path.join(folder, name) for name in names}


def expected():
    """The files of an installation in /usr."""
    share = "usr/share/outrider"
    documents = [name for name in os.listdir(os.path.join(SOURCE, "docs")) if name.endswith(".md")]
    return (listed("usr/bin", *PROGRAMS)
            | listed("usr/share/man/man1", *os.listdir(os.path.join(BUILD, "man")))
            | listed("usr/share/bash-completion/completions", *PROGRAMS)
            | {"usr/share/zsh/vendor-completions/_outrider"}
            | listed("usr/lib/systemd/system", "outrider-coordinator.service",
                     "outrider-group.service")
            | listed("etc/outrider", "coordinator.conf", "group.conf")
            | listed("usr/share/doc/outrider", "README.md", "copyright", "changelog.gz", *documents)
            | listed(f"{share}/models/tales",
                     *files_of(os.path.join(SOURCE, "deploy", "models", "tales")))
            | {f"{share}/models/published"}
            | listed(f"{share}/mpirun", "common", "preflight", "hosts.example")
            | SCRIPTS
            | listed(f"{share}/prometheus", "alerts.yaml", "prometheus.yaml", "rules.yaml")
            | {f"{share}/grafana/outrider.json", f"{share}/rpc/health.proto"}
            | listed(f"{share}/proto", "generation.proto", "target.proto"))


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp(prefix="outrider-")
        install(cls.root, "/usr")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.root)

    def path(self, name):
        return os.path.join(self.root, name)

    def run_program(self, name, *arguments):
        return subprocess.run([self.path(name), *arguments], capture_output=True,
                              timeout=bound(30), stdin=subprocess.DEVNULL, encoding="utf-8",
                              check=False)

    def test_the_files(self):
        self.assertEqual(sorted(files_of(self.root)), sorted(expected()))
        for name in files_of(self.root):
            may_run = name.startswith("usr/bin/") or name in SCRIPTS
            self.assertEqual(os.access(self.path(name), os.X_OK), may_run, name)

    def test_no_file_knows_where_it_was_built(self):
        for name in sorted(files_of(self.root)):
            if name.startswith(("etc/", "usr/lib/", "usr/share/")):
                with open(self.path(name), "rb") as file:
                    text = file.read()
                for folder in (SOURCE, BUILD, "/opt/outrider", self.root):
                    self.assertNotIn(folder.encode(), text, name)

    def test_the_programs_run(self):
        done = self.run_program("usr/bin/outrider", "version")
        self.assertRegex(done.stdout, r"^outrider \d+\.\d+\.\d+\n$")
        for name in PROGRAMS:
            done = self.run_program(f"usr/bin/{name}", "--version")
            self.assertRegex(done.stdout, rf"^{name} \d+\.\d+\.\d+\n$")

    def test_the_scripts_find_the_programs_beside_them(self):
        for name in ("group", "one"):
            script = f"usr/share/outrider/mpirun/{name}"
            self.assertIn("--hosts", self.run_program(script, "--help").stdout)
        done = self.run_program("usr/share/outrider/mpirun/group", "--model", "/nowhere")
        self.assertEqual(done.returncode, NO_RESTART, done.stderr)
        self.assertRegex(done.stderr, "outrider-worker: .* /nowhere")
        os.rename(self.path("usr/bin/outrider-worker"), self.path("usr/bin/gone"))
        try:
            done = self.run_program("usr/share/outrider/mpirun/group", "--model", "/nowhere")
        finally:
            os.rename(self.path("usr/bin/gone"), self.path("usr/bin/outrider-worker"))
        self.assertIn(f"{self.root}/usr/bin/outrider-worker is not built", done.stderr)

    def test_the_units_serve_the_models_beside_them(self):
        """Their commands with their options, in this tree in place of / and at free ports."""
        words, text = reference()
        run = tempfile.mkdtemp(prefix="outrider-")
        started = []
        grpc = free_ports(2)
        ports = {":7070": f":{grpc}", ":8000": f":{grpc + 1}"}
        try:
            for name in ("group", "coordinator"):
                unit = Unit(self.root, f"outrider-{name}.service")
                options = dict(unit.options)
                for key, value in options.items():
                    value = value.replace("/usr/", f"{self.root}/usr/")
                    value = value.replace("/run/outrider", run)
                    options[key] = value.replace(":7070", ports[":7070"]).replace(
                        ":8000", ports[":8000"])
                command = [self.root + unit.command[0], *unit.command[1:]]
                started.append(Program(name, command, os.path.join(run, f"{name}.log"), options))
            address = f"127.0.0.1:{grpc}"
            wait_until(lambda: self.run_program("usr/bin/outrider", "health", "--address",
                                                address).returncode == 0, 30, "it serves")
            done = self.run_program("usr/bin/outrider", *words, "--address", address)
            self.assertEqual((done.returncode, done.stdout), (0, text))
            end(started)
        finally:
            for program in started:
                program.stop()
            shutil.rmtree(run)

    def test_another_prefix(self):
        with tempfile.TemporaryDirectory() as root:
            install(root, "/opt/tales")
            with open(os.path.join(root, "opt/tales/etc/outrider/group.conf"), "a",
                      encoding="utf-8") as file:
                file.write("OUTRIDER_WORKER_THREADS=1\n")
            install(root, "/opt/tales")
            moved = {name.removeprefix("usr/") for name in expected()}
            moved -= {"share/doc/outrider/copyright", "share/doc/outrider/changelog.gz",
                      "share/zsh/vendor-completions/_outrider"}
            moved |= {"share/doc/outrider/LICENSE", "share/zsh/site-functions/_outrider"}
            self.assertEqual(sorted(files_of(root)), sorted(listed("opt/tales", *moved)))
            unit = Unit(root, "outrider-group.service", "opt/tales/lib/systemd/system")
            self.assertEqual(unit.command, ["/opt/tales/bin/outrider-group"])
            self.assertEqual(unit.options["OUTRIDER_WORKER_MODEL"],
                             "/opt/tales/share/outrider/models/tales/target")
            # The administrator's line is still there.
            self.assertEqual(unit.options["OUTRIDER_WORKER_THREADS"], "1")


if __name__ == "__main__":
    if is_sanitized(BUILD):
        skips.skip("a sanitizer's build is not installed")
    unittest.main(verbosity=2)
