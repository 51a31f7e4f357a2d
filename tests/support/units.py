"""Reads units of an installation, for tests that start their programs in place of systemd, and says
which text these have to write."""
import json
import os
import re

from cluster import SOURCE

REFERENCE = os.path.join(SOURCE, "tests", "golden", "tales", "reference_target.json")


def reference():
    """A call of `outrider generate`, and what it has to print where the tales target is served."""
    with open(REFERENCE, encoding="utf-8") as file:
        wanted = json.load(file)["prompts"][0]
    return (["generate", "--quiet", "-n", str(len(wanted["greedy_ids"])), "--temperature", "0",
             wanted["text"]], wanted["greedy_text"])


def end(started):
    """Ends programs (cluster.Program), the last one first; each has to end well."""
    for program in reversed(started):
        program.process.terminate()
        status = program.wait(20)
        assert status == 0, f"{program.name} ended with status {status}: {program.log()}"


class Unit:
    """A unit as it is installed.

    root     the folder that is / for the unit
    command  its ExecStart
    options  the variables of its EnvironmentFile
    """

    def __init__(self, root, name, folder="usr/lib/systemd/system"):
        with open(os.path.join(root, folder, name), encoding="utf-8") as file:
            self.text = file.read()
        self.command = re.search(r"(?m)^ExecStart=(.*)$", self.text)[1].split()
        path = re.search(r"(?m)^EnvironmentFile=/(.*)$", self.text)[1]
        with open(os.path.join(root, path), encoding="utf-8") as file:
            self.options = dict(re.findall(r"(?m)^(\w+)=(.*)$", file.read()))
