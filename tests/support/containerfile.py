"""deploy/image/Containerfile as its stages and instructions."""
import os
import re

from cluster import SOURCE


def read_containerfile():
    """stage -> map of its instructions, with the lines that go on joined."""
    path = os.path.join(SOURCE, "deploy", "image", "Containerfile")
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"^#.*\n", "", file.read(), flags=re.M).replace("\\\n", " ")
    stages = {}
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            stage = stages.setdefault(rest.rpartition(" AS ")[2], {"FROM": [rest.split()[0]]})
        elif word:
            stage.setdefault(word, []).append(rest.strip())
    return stages


def words(line):
    return dict(re.findall(r'(\S+?)=("[^"]*"|\S+)', line))
