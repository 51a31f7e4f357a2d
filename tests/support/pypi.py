"""Packages from PyPI for tests that talk to us as users' programs do.

    import pypi
    pypi.enter(build)      # the first thing: goes on in a Python that has the packages

The packages of clients.txt, or of another list in this folder, are installed once into a virtual
environment beside the build folders, which all tests share. Where the index cannot be reached, the
test ends with 77 and says so; where it can and the packages are not to be had, the test fails.
"""
import fcntl
import hashlib
import os
import subprocess
import sys
import urllib.error
import urllib.request
import venv

import skips

SUPPORT = os.path.dirname(os.path.abspath(__file__))
INSTALL_SECONDS = 900


def _digest(requirements):
    with open(requirements, "rb") as file:
        return hashlib.sha256(file.read() + sys.version.encode()).hexdigest()[:16]


def is_there(python=sys.executable):
    """True if something answers where pip looks for packages."""
    found = subprocess.run([python, "-m", "pip", "config", "get", "global.index-url"],
                           capture_output=True, text=True, check=False).stdout.strip()
    url = os.environ.get("PIP_INDEX_URL") or found or "https://pypi.org/simple"
    try:
        urllib.request.urlopen(url.rstrip("/") + "/pip/", timeout=20).close()
    except urllib.error.HTTPError:
        return True  # it answers, if only with a refusal
    except OSError:
        return False
    return True


def _install(folder, requirements, flags):
    venv.create(folder, with_pip=True, clear=True)
    python = os.path.join(folder, "bin", "python3")
    run = subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                          "--only-binary", ":all:", *flags, "-r", requirements],
                         capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if run.returncode:
        print(f"cannot install {requirements}:\n{run.stderr}", file=sys.stderr)
        if is_there(python):
            sys.exit(1)
        skips.skip(f"the packages of {os.path.basename(requirements)} cannot be installed, because "
                   "nothing answers where pip looks for them")


def enter(build, packages="clients.txt", flags=()):
    """Runs this script again in the environment; returns there. flags: more words for pip."""
    requirements = os.path.join(SUPPORT, packages)
    name = f"{os.path.splitext(packages)[0]}-{_digest(requirements)}"
    folder = os.path.join(os.path.dirname(os.path.abspath(build)), name)
    python = os.path.join(folder, "bin", "python3")
    if os.path.abspath(sys.executable) == python:
        return
    done = os.path.join(folder, "installed")
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with open(folder + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(done):
            _install(folder, requirements, flags)
            with open(done, "w", encoding="utf-8"):
                pass
    os.execv(python, [python, *sys.argv])
