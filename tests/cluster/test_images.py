#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=600
"""The images of deploy/image: what is in them, and that they run as pods.

Usage: test_images.py BUILD_FOLDER [PART_OF_A_TEST'S_NAME]

The first half builds the images and looks at them. The second half runs them in network namespaces,
as Kubernetes would (tests/support/pods.py). Where the kernel refuses that, the test says so and
ends with 77 after the first half.
"""
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import pods
import skips
from containerfile import read_containerfile, words
from cluster import SOURCE, TALES, ClusterError, bound, is_sanitized, wait_until

BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
PART = sys.argv[2] if len(sys.argv) > 2 else ""
SCRIPT = os.path.join(SOURCE, "deploy", "image", "build")
OUT = os.path.join(BUILD, "images")
AGAIN = os.path.join(BUILD, "images-again")
CACHE = os.path.join(BUILD, "image-packages")
REFERENCE = os.path.join(SOURCE, "tests", "golden", "tales", "reference_target.json")
IMAGES = ["outrider-coordinator", "outrider-worker", "outrider-worker-ssh", "outrider"]
LARGEST_BYTES = 80_000_000
GRACE = 10
KEEPALIVE_S = 8  # until mpirun knows that a pod is gone to which it has nothing to say
LOST_S = 40  # until everybody knows that a pod is gone; ssh takes up to 20 s
BINDS = {"/models": TALES}
# Files that the build writes itself: everything else is a file of a package.
OWN_FILES = re.compile(
    r"usr/bin/outrider(-[a-z]+)?|usr/share/doc/outrider/.*|var/lib/dpkg/status\.d/.*"
    r"|etc/(passwd|group|nsswitch\.conf|os-release)|etc/openmpi/.*|etc/ssh/.*")
SHELLS = re.compile(r".*/(sh|bash|dash|busybox|perl|python[0-9.]*|ash|zsh)")


def build(*arguments, out=OUT):
    done = subprocess.run([SCRIPT, "--programs", os.path.join(BUILD, "bin"), "--out", out,
                           "--cache", CACHE, *arguments], stdin=subprocess.DEVNULL,
                          capture_output=True, encoding="utf-8", timeout=500, check=False)
    if done.returncode:
        raise ClusterError(f"deploy/image/build: status {done.returncode}\n{done.stderr}")
    return done.stdout


def image(name, out=OUT):
    return pods.Image(out, name)


def described(name):
    """deploy/image/build --describe as a map of lists."""
    fields = {}
    for line in build("--describe", name).splitlines():
        key, _, value = line.partition(" ")
        fields.setdefault(key, []).append(value)
    return fields


def files_of(name):
    """path -> (member, bytes or None) of everything in an image's layer."""
    found = {}
    for layer in image(name).layers():
        for member in layer:
            data = layer.extractfile(member).read() if member.isfile() else None
            found[member.name.removeprefix("./")] = member, data
    return found


def greedy_reference():
    with open(REFERENCE, encoding="utf-8") as file:
        first = json.load(file)["prompts"][0]
    return first["text"], first["greedy_text"], len(first["greedy_ids"])


# ---- what is in the images ----

def check_two_builds_are_the_same_bytes():
    build("outrider-coordinator", "outrider-worker", out=AGAIN)
    for name in ("outrider-coordinator", "outrider-worker"):
        digests = {image(name, out).digest() for out in (OUT, AGAIN)}
        assert len(digests) == 1, f"{name}: {digests}"
        archives = {hashlib.sha256(open(os.path.join(out, f"{name}.tar"), "rb").read()).hexdigest()
                    for out in (OUT, AGAIN)}
        assert len(archives) == 1, f"{name}.tar differs"


def check_umoci_makes_the_same_image():
    """Its layer and settings are buildah's; only the bytes around them differ."""
    folders = [OUT + "-umoci", AGAIN + "-umoci"]
    for out in folders:
        build("--with", "umoci", "outrider", out=out)
    one, two, other = [image("outrider", out) for out in (*folders, OUT)]
    assert one.digest() == two.digest(), "two builds with umoci differ"
    for key in ("User", "Entrypoint", "Env", "Labels", "WorkingDir", "StopSignal"):
        assert one.config["config"].get(key) == other.config["config"].get(key), key
    assert one.config["created"] == other.config["created"]
    members = [[(member.name.removeprefix("./"), member.mode & 0o7777, member.mtime, member.uid)
                for layer in made.layers() for member in layer if member.name not in (".", "./")]
               for made in (one, other)]
    assert sorted(members[0]) == sorted(members[1]), "the files differ"


def broken_build(folder, old, new):
    """Builds the client with another recipe. The sentence with which that fails."""
    place = os.path.join(folder, "deploy", "image")
    os.makedirs(place)
    shutil.copy(SCRIPT, place)
    for name in ("CMakeLists.txt", "LICENSE"):
        shutil.copy(os.path.join(SOURCE, name), folder)
    with open(os.path.join(SOURCE, "deploy", "image", "recipe"), encoding="utf-8") as file:
        text = file.read()
    assert text.count(old) == 1, old
    with open(os.path.join(place, "recipe"), "w", encoding="utf-8") as file:
        file.write(text.replace(old, new))
    done = subprocess.run([os.path.join(place, "build"), "--programs", os.path.join(BUILD, "bin"),
                           "--cache", CACHE, "--out", folder, "--with", "none", "outrider"],
                          stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
                          timeout=bound(100), check=False,
                          env={**os.environ, "REVISION": "none", "SOURCE_DATE_EPOCH": "1"})
    assert done.returncode, "the build took a wrong recipe"
    return done.stderr


def check_wrong_recipes_are_refused():
    with tempfile.TemporaryDirectory() as folder:
        text = broken_build(os.path.join(folder, "a"), "libjansson4 ", "")
        assert "libjansson.so.4, which outrider needs, is in none of the packages" in text, text
        text = broken_build(os.path.join(folder, "b"), "libjansson4 ", "libjansson4 libcap2 ")
        assert "nothing is taken from the package libcap2" in text, text
        text = broken_build(os.path.join(folder, "c"), "libjansson4 ", "libjansson5 ")
        assert "apt does not know all of these packages" in text, text


def check_programs_do_not_hold_the_build_folder():
    for name in os.listdir(os.path.join(BUILD, "bin")):
        with open(os.path.join(BUILD, "bin", name), "rb") as file:
            assert SOURCE.encode() not in file.read(), f"{name} holds {SOURCE}"


def check_images_are_small():
    for name in IMAGES:
        unpacked = sum(len(data) for _, data in files_of(name).values() if data)
        print(f"        {name:21} {unpacked / 1e6:5.1f} MB unpacked, "
              f"{image(name).packed_bytes() / 1e6:5.1f} MB packed")
        assert unpacked <= LARGEST_BYTES, f"{name} has {unpacked} bytes"


def package_files(name):
    """SHA-256 -> packages, of all files of an image's packages as Debian ships them."""
    owners = {}
    with open(os.path.join(OUT, f"{name}.packages"), encoding="utf-8") as file:
        lines = [line.split() for line in file]
    for package, version, architecture, _ in lines:
        path = os.path.join(CACHE, f"{package}_{version.replace(':', '%3a')}_{architecture}.deb")
        data = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], capture_output=True,
                              check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            for member in tar:
                if member.isfile():
                    digest = hashlib.sha256(tar.extractfile(member).read()).hexdigest()
                    owners.setdefault(digest, set()).add(package)
    return [line[0] for line in lines], owners


def check_lists_of_packages_name_the_files():
    """Every file is one of a listed package, byte for byte, or the build's own; every listed
    package has a file beside its copyright; the three lists agree."""
    for name in IMAGES:
        listed, owners = package_files(name)
        found = files_of(name)
        used = set()
        for path, (_, data) in found.items():
            if data is None or OWN_FILES.fullmatch(path):
                continue
            package = owners.get(hashlib.sha256(data).hexdigest())
            assert package, f"{name}: /{path} is in no package of the list"
            if not path.endswith("/copyright") or path.split("/")[-2] == "gcc-12-base":
                used |= package
        assert set(listed) <= used, f"{name}: nothing of {set(listed) - used}"
        assert listed == sorted(described(name)["package"]), f"{name}: not the recipe's packages"
        inside = {path.rpartition("/")[2] for path in found
                  if path.startswith("var/lib/dpkg/status.d/")}
        assert inside - {""} - {"status.d"} == set(listed), f"{name}: status.d"
        with open(os.path.join(OUT, f"{name}.spdx.json"), encoding="utf-8") as file:
            text = file.read()
        bill = json.loads(text)
        assert {entry["name"] for entry in bill["packages"]} == {*listed, "outrider"}
        assert found["usr/share/doc/outrider/packages.spdx.json"][1] == text.encode()
        for package in listed:
            assert f"usr/share/doc/{package}/copyright" in found, f"{name}: no {package}/copyright"


def check_files_are_plain():
    """Root's, readable by the user and writable by nobody else, no shell where none is needed, no
    logs, no caches, no setuid."""
    for name in IMAGES:
        shells = []
        for path, (member, _) in files_of(name).items():
            assert member.uid == member.gid == 0, f"{name}: /{path} is {member.uid}'s"
            assert path.rstrip("/") == "tmp" or not member.mode & 0o6022 or member.issym(), \
                f"{name}: /{path} has the mode {member.mode:o}"
            assert not re.match(r"var/(log|cache)|etc/ld\.so\.cache", path), f"{name}: /{path}"
            if SHELLS.fullmatch(path) and not path.startswith(("usr/share/", "var/lib/")):
                shells.append(path)
        expected = ["usr/bin/dash", "usr/bin/sh"] if name == "outrider-worker-ssh" else []
        assert sorted(shells) == expected, f"{name} has {shells}"


def check_containerfile_makes_the_same_images():
    """Its roots come from the same script; what it says beside is what the images have."""
    stages = read_containerfile()
    listed = build("--list").split()
    for name in listed:
        stage, recipe = stages[name], described(name)
        source = re.fullmatch(rf"--from=(\S+) /out/{name}\.root /", stage["COPY"][0])
        assert stage["FROM"] == ["scratch"] and len(stage["COPY"]) == 1 and source, stage["COPY"]
        made = stages[source[1]]["RUN"][0].split()
        assert made[:3] == ["deploy/image/build", "--with", "none"] and made[-1] == name, made
        assert stage["USER"] == recipe["user"]
        assert json.loads(stage["ENTRYPOINT"][0]) == recipe["entry"]
        assert stage.get("EXPOSE", [""]) == recipe["ports"]
        assert stage["ENV"][0].split() == recipe["environment"][0].split()
        health = recipe["health"][0]
        wanted = [["/usr/bin/outrider", "health", "--address", health]] if health else []
        assert [json.loads(line.removeprefix("CMD ")) for line in stage.get("HEALTHCHECK", [])] \
            == wanted, name
        arguments = dict(line.partition("=")[::2] for line in stage["ARG"])
        labels = {key: value.strip('"') for key, value in words(stage["LABEL"][0]).items()}
        for line in recipe["label"]:
            key, _, value = line.partition("=")
            variable = {"version": "$VERSION", "revision": "$REVISION", "created": "$CREATED"}.get(
                key.rpartition(".")[2])
            assert labels.pop(key) == (variable or value), f"{name}: {key}"
            assert key.rpartition(".")[2] != "version" or arguments["VERSION"] == value
        assert not labels, labels
    assert stages["build"]["FROM"] == ["debian:12-slim"]
    assert set(stages) >= set(listed)


def check_settings_are_the_recipes():
    for name in IMAGES:
        config, recipe = image(name).config["config"], described(name)
        assert config["User"] == recipe["user"][0] == "65532:65532"
        assert config["Entrypoint"] == recipe["entry"]
        assert config["Labels"] == dict(line.split("=", 1) for line in recipe["label"])
        assert sorted(config.get("ExposedPorts", {})) == sorted(
            f"{port}/tcp" for port in recipe["ports"][0].split())
        assert f"usr/bin/{os.path.basename(recipe['entry'][0])}" in files_of(name)
        assert "usr/bin/outrider" in files_of(name), f"{name} has no health command"


# ---- pods ----

WORKER = ["--model", "/models/target", "--listen", "0.0.0.0:7071", "--metrics", "0.0.0.0:9400",
          "--threads", "1", "--insecure"]


def start_worker(node, *more, ranks=1):
    if ranks == 1:
        return node.start(image("outrider-worker"), *WORKER, *more, binds=BINDS)
    return node.start(image("outrider-worker"), "--ranks", str(ranks), *WORKER, *more,
                      entry=["/usr/bin/outrider-group"], binds=BINDS)


def start_coordinator(node, target, *more):
    return node.start(image("outrider-coordinator"), "--target", target, "--draft", "/models/draft",
                      "--listen", "0.0.0.0:7070", "--http", "0.0.0.0:8000", "--insecure", *more,
                      binds=BINDS)


def assert_answers(node, coordinator):
    """The text that other code computed, asked for from a pod of the client's image."""
    prompt, text, n = greedy_reference()
    client = node.start(image("outrider"), "generate", "--address", f"{coordinator.ip}:7070",
                        prompt, "-n", str(n), "--temperature", "0", "--quiet")
    assert client.process.wait(bound(20)) == 0, client.log()
    assert client.log() == text, client.log()


def assert_probes(node, pod, port, grpc):
    """As the manifests write them."""
    status, text = node.get(pod, port, "/live")
    assert status == 200, f"{pod.name}:{port}/live: {status} {text}"
    status, text = node.get(pod, port, "/ready")
    assert status == 200, f"{pod.name}:{port}/ready: {status} {text}"
    for service in ([], ["--service", "live"]):
        done = pod.run("/usr/bin/outrider", "health", "--address", f"127.0.0.1:{grpc}", *service)
        assert done.returncode == 0, f"{pod.name}: {done.stdout}{done.stderr}"


def assert_powerless(pod):
    """The restricted profile is what these programs need; nothing can be written but /tmp."""
    status = pod.status()
    assert status["CapBnd"] == status["CapPrm"] == "0000000000000000", status
    assert status["NoNewPrivs"] == "1" and status["NSpid"].split()[-1] == "1", status
    assert status["Uid"].split()[0] == "65532"
    with open(f"/proc/{pod.pid}/mounts", encoding="utf-8") as file:
        mounts = dict((line.split()[1], line.split()[3].split(",")) for line in file)
    assert "ro" in mounts["/"] and "ro" in mounts["/models"] and "rw" in mounts["/tmp"], mounts


def assert_ends(pod, expected=0):
    status, seconds = pod.stop(GRACE)
    print(f"        {pod.name} ended {seconds:.2f} s after SIGTERM")
    assert status == expected, f"{pod.name} ended with {status}"


def pods_are_ready(node):
    """The tales pair, and how long it takes from the start of both images until a request would be
    served; the first time unpacks the images, too."""
    times = []
    for _ in range(3):
        begun = time.monotonic()
        worker = start_worker(node)
        coordinator = start_coordinator(node, f"{worker.ip}:7071")
        node.wait_ready(coordinator, 8000)
        times.append(time.monotonic() - begun)
        coordinator.kill()
        worker.kill()
    print(f"        ready after {', '.join(f'{seconds:.2f}' for seconds in times)} s")


def pods_of_three_groups(node):
    """A group of two ranks in one pod, and two of one rank, behind one coordinator."""
    workers = [start_worker(node, ranks=2), start_worker(node), start_worker(node)]
    two, *ones = [worker.ip for worker in workers]
    target = ",".join([f"{two}:7071", f"{two}:7072", *[f"{ip}:7071" for ip in ones]])
    coordinator = start_coordinator(node, target)
    node.wait_ready(coordinator, 8000)
    wait_until(lambda: coordinator.log().count(" target_ready ") == 3, 20, "all groups are used")
    for pod in (*workers, coordinator):
        assert_powerless(pod)
    assert_answers(node, coordinator)
    assert_probes(node, coordinator, 8000, 7070)
    for worker in workers:
        assert_probes(node, worker, 9400, 7071)
    assert_probes(node, workers[0], 9401, 7072)
    for pod in (coordinator, *workers):
        assert_ends(pod)


def pods_that_come_back_under_other_addresses(node):
    """Two workers share a name. One is lost and comes back elsewhere, and then the other one, so
    that the worker that answers at last is one that was found by the name."""
    workers = [start_worker(node), start_worker(node)]
    node.name("workers.test", *[worker.ip for worker in workers])
    coordinator = start_coordinator(node, "dns:workers.test:7071", "--log-level", "debug")
    node.wait_ready(coordinator, 8000)
    assert_answers(node, coordinator)
    for at in (0, 1):
        workers[at].kill()
        begun = time.monotonic()
        workers[at] = start_worker(node)
        node.name("workers.test", *[worker.ip for worker in workers])
        node.wait_ready(workers[at], 9400)
        ready = time.monotonic()
        wait_until(lambda: f"{workers[at].ip}:7071" in coordinator.log(), 20,
                   f"the coordinator finds {workers[at].ip}")
        node.wait_ready(coordinator, 8000)
        print(f"        a new pod was ready {ready - begun:.2f} s after the old one was killed, "
              f"and was found {time.monotonic() - ready:.2f} s later")
        assert_answers(node, coordinator)
    for pod in (coordinator, *workers):
        assert_ends(pod)


def assert_lost_pods_end_group(node, launcher, workers, lost):
    """The launcher ends, so that the kubelet starts it again, and every rank that it can reach. The
    others end when their pods are back."""
    begun = time.monotonic()
    status = launcher.process.wait(bound(LOST_S))
    print(f"        the launcher ended {time.monotonic() - begun:.2f} s after {len(lost)} of "
          f"{len(workers)} pods were cut off")
    assert status not in (0, 143), f"the launcher ended with {status}"
    for worker in workers:
        if worker in lost:
            node.cut(worker, "up")
        wait_until(lambda pod=worker: not pod.is_live(7071), LOST_S, "no rank is left")


def pods_of_an_mpi_job(node):
    """Two pods with sshd, and a third in which mpirun starts a rank in each of them. A launcher
    that is told to end does not end with 0, which Kubernetes would take for the end of the whole
    job; the next one starts the ranks again in the same pods."""
    made = image("outrider-worker-ssh")
    binds = {**BINDS, "/home/outrider/.ssh": pods.make_ssh_secret(os.path.join(node.folder, "ssh"))}
    workers = [node.start(made, "-De", entry=["/usr/sbin/sshd"], binds=binds) for _ in range(2)]
    hosts = os.path.join(node.folder, "mpi")
    os.makedirs(hosts)
    with open(os.path.join(hosts, "hostfile"), "w", encoding="ascii") as file:
        for number, worker in enumerate(workers):
            node.name(f"rank-{number}.test", worker.ip)
            file.write(f"rank-{number}.test slots=1\n")

    def launch():
        started = node.start(made, "--ranks", "2", *WORKER, "--same-port",
                             entry=["/usr/bin/outrider-group"],
                             binds={**binds, "/etc/mpi": hosts},
                             environment={"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile"})
        for worker in workers:
            node.wait_ready(worker, 9400)
        return started

    launcher = launch()
    coordinator = start_coordinator(node, ",".join(f"{worker.ip}:7071" for worker in workers))
    node.wait_ready(coordinator, 8000)
    for pod in (*workers, launcher):
        assert_powerless(pod)
    for worker in workers:
        assert_probes(node, worker, 9400, 7071)
    assert_answers(node, coordinator)
    assert_ends(launcher, 143)
    for worker in workers:
        assert not worker.is_live(7071), "a rank has not ended"
    launcher = launch()
    node.wait_ready(coordinator, 8000)
    assert_answers(node, coordinator)
    # When mpirun tells the other pod of the first one's end, that cannot confirm it.
    node.cut(workers[1])
    time.sleep(KEEPALIVE_S / 2)
    node.cut(workers[0])
    assert_lost_pods_end_group(node, launcher, workers, workers)
    launcher = launch()
    # mpirun tells both pods of a rank's end, and one of them cannot confirm it.
    node.cut(workers[1])
    os.kill(workers[0].find("outrider-worker"), signal.SIGKILL)
    assert_lost_pods_end_group(node, launcher, workers, workers[1:])
    assert_ends(coordinator)
    for worker in workers:
        worker.stop(GRACE)


# ---- all of it ----

def has_failed(function, *arguments):
    name = function.__name__
    start = time.monotonic()
    try:
        function(*arguments)
        print(f"ok      {name} ({time.monotonic() - start:.1f} s)", flush=True)
        return False
    except (AssertionError, ClusterError, OSError, ValueError, LookupError, TypeError,
            subprocess.SubprocessError):
        print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
        return True


def parts(prefix):
    return [f for name, f in globals().items() if name.startswith(prefix) and PART in name]


def run_pods():
    failed = 0
    for function in parts("pods_"):
        with pods.Node() as node:
            failed += has_failed(function, node)
            if failed:
                node.print_logs()
    return failed


def main():
    if is_sanitized(BUILD):
        skips.skip("the images are of the release build")
    pods_only = bool(os.environ.get(pods.INSIDE))
    if not pods_only:
        installed = subprocess.run([os.path.join(SOURCE, "deploy", "packages"), "install", "image"],
                                   check=False)
        if installed.returncode:
            return 1
        start = time.monotonic()
        print(build(*IMAGES), end="")
        print(f"        built in {time.monotonic() - start:.0f} s", flush=True)
        with ThreadPoolExecutor(2) as pool: # each writes to a folder of its own
            if any(list(pool.map(has_failed, parts("check_")))):
                return 1
        refusal = pods.refusal()
        if refusal:
            skips.skip(f"the images were built and looked at, but they did not run: {refusal}")
        sys.stdout.flush()
        pods.enter()
    return 1 if run_pods() else 0


if __name__ == "__main__":
    sys.exit(main())
