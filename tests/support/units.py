"""Reads units of an installation, for tests that start their programs in place of systemd."""
import os
import re


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
