#!/usr/bin/env python3
# ctest: labels=full,brief libs=client beside=yes timeout=120
"""Clients are told a model's name and nothing of the server's disk: the last part of its folder, or
what --served-name says. Usage: test_served_name_cluster.py BUILD_FOLDER"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import TALES, Cluster


def describe(cluster):
    done = cluster.outrider("describe", "--json")
    assert done.returncode == 0, done.stderr
    assert cluster.target not in done.stdout and TALES not in done.stdout, done.stdout
    table = cluster.outrider("describe").stdout
    assert cluster.target not in table and TALES not in table, table
    return json.loads(done.stdout)


def check_default(build):
    with Cluster(build) as cluster:
        said = describe(cluster)
        assert said["target_model"] == "target" and said["draft_model"] == "draft", said


def check_option(build):
    """The option renames the target alone; a slash in the name is no path."""
    flags = ["--served-name", "tales/two ü"]
    with Cluster(build, draft=None, coordinator_flags=flags) as cluster:
        said = describe(cluster)
        assert said["target_model"] == "tales/two ü" and said["draft_model"] == "", said


def check_refusal(build):
    for name in ("", "x" * 256):
        program = os.path.join(build, "bin", "outrider-coordinator")
        done = subprocess.run([program, "--served-name", name], capture_output=True,
                              encoding="utf-8", timeout=20)
        assert done.returncode == 2 and "--served-name" in done.stderr, done


def main(build):
    check_default(build)
    check_option(build)
    check_refusal(build)


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
