#!/usr/bin/env python3
# ctest: labels=quick libs=client timeout=60
"""docs/options.md has every option of every program, with its default, as --help prints it.

Usage: test_options_page.py BUILD_FOLDER [--write]

With --write it generates the page anew below its mark (what is above the mark is written by hand);
otherwise it compares and prints what differs. After a change of an option run it with --write.
"""
import difflib
import os
import re
import subprocess
import sys
import textwrap

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
PAGE = os.path.join(SOURCE, "docs", "options.md")
COMMANDS = ["serve", "list", "chat", "run", "demo", "generate", "score", "tokenize", "detokenize",
            "count", "export", "plan", "skip", "heads", "record", "replay", "datastore build",
            "datastore check", "bench", "link", "jobs submit", "jobs watch", "jobs list",
            "jobs cancel", "key add", "key list", "key remove", "health", "describe"]
SCRIPTS = ["deploy/local/run", "deploy/models/get", "deploy/mpirun/group", "deploy/mpirun/one",
           "deploy/tls/make-ca", "deploy/image/build"]
MARK = "<!-- Generated from here on: tests/cluster/test_options_page.py BUILD --write -->\n"
# A long line for each option, so that its text is in one piece.
ARGP_LAYOUT = "rmargin=10000"
ARGP_OPTION = re.compile(r"^ {2}(?:(-\S), | {4})--(\S+)\s+(.+)$")
SCRIPT_OPTION = re.compile(r'^ {2}(?:(-\S), | {4})--(\S+(?: ["[]?[A-Z]+["\]]?)?) {2,}(.+)$')
EVERYWHERE = ("help", "usage", "version")


def help_of(command):
    environment = {**os.environ, "ARGP_HELP_FMT": ARGP_LAYOUT, "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run([*command, "--help"], stdin=subprocess.DEVNULL, capture_output=True,
                          encoding="utf-8", env=environment, timeout=30, check=False)
    if done.returncode or not done.stdout:
        raise SystemExit(f"{' '.join(command)} --help: status {done.returncode}: {done.stderr}")
    return done.stdout.splitlines()


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def table(rows):
    """Rows are (short name or None, long name with its value, text)."""
    lines = ["| option | |", "|---|---|"]
    for short, name, text in rows:
        names = f"`{short}`, `--{name}`" if short else f"`--{name}`"
        lines.append(f"| {names} | {cell(text)} |")
    return lines


def paragraphs(lines):
    """The lines, with every paragraph filled anew that has a line of more than 100 columns."""
    texts = "\n".join(lines).strip().split("\n\n")
    filled = [textwrap.fill(text, 100) if max(map(len, text.split("\n"))) > 100 else text
              for text in texts]
    return "\n\n".join(filled).split("\n")


def argp_section(name, command):
    """Usage and sentence of a program, and a table for each group of its options."""
    lines = help_of(command)
    section = [f"## {name}", "", f"    {lines[0].removeprefix('Usage: ')}", "",
               *paragraphs(lines[1:2]), ""]
    rows = []
    example = next((line for line in lines if line.startswith("  Example: ")), None)
    if example:
        section += [f"    {example.removeprefix('  Example: ')}", ""]
    for line in lines[2:]:
        heading = re.match(r"^ (\S.*:)$", line)
        found = ARGP_OPTION.match(line)
        if heading:
            section += [*table(rows), ""] if rows else []
            section += [heading[1], ""]
            rows = []
        elif found and found[2] not in EVERYWHERE:
            rows.append(found.groups())
        elif not found and re.match(r"^ {2,6}-", line):
            raise SystemExit(f"{name} --help: an option without a text: {line}")
    section += table(rows) if rows else []
    return section


def script_section(name):
    """As argp_section, for a script, whose help is the comment at its top."""
    lines = help_of([os.path.join(SOURCE, name)])
    usage = next(i for i, line in enumerate(lines) if line.startswith(f"  {name} "))
    section = [f"## {name}", "", f"  {lines[usage]}", "", *paragraphs(lines[:usage]), ""]
    rows = []
    for line in lines[usage + 1:]:
        found = SCRIPT_OPTION.match(line)
        if found:
            rows.append(list(found.groups()))
        elif rows and line.startswith(" " * 10):
            rows[-1][2] += " " + line.strip()
        elif rows and line:
            break
    end = max(i for i, line in enumerate(lines) if line.startswith(" " * 6))
    section += table([row for row in rows if row[1] not in EVERYWHERE])
    return [*section, "", *paragraphs(lines[end + 1:])]


def generated(build):
    def program(name):
        return os.path.join(build, "bin", name)

    sections = [script_section(name) for name in SCRIPTS]
    sections += [argp_section(name, [program(name)])
                 for name in ("outrider-coordinator", "outrider-worker", "outrider-group")]
    sections += [argp_section(f"outrider {name}", [program("outrider"), *name.split()])
                 for name in COMMANDS]
    return "".join("\n" + "\n".join(section) + "\n" for section in sections)


def check_commands(build):
    """Every command that `outrider --help` and the --help of jobs, key and datastore list
    has its section."""
    def list_of(*command):
        lines = help_of([os.path.join(build, "bin", "outrider"), *command])
        lists = re.findall(r"(?ms)^(?:More c|C)ommands:$(.*?)^$", "\n".join(lines))
        return re.findall(r"(?m)^ {2}(\S+)", "".join(lists))

    listed = [name for name in list_of() if name not in EVERYWHERE]
    for group in ("jobs", "key", "datastore"):
        listed.remove(group)
        listed += [f"{group} {name}" for name in list_of(group)]
    if sorted(listed) != sorted(COMMANDS):
        raise SystemExit(f"outrider --help lists {listed}, this script knows {COMMANDS}")


def main():
    build = os.path.abspath(sys.argv[1])
    check_commands(build)
    with open(PAGE, encoding="utf-8") as file:
        written, mark, found = file.read().partition(MARK)
    if not mark:
        raise SystemExit(f"docs/options.md lacks the line {MARK}")
    wanted = generated(build)
    if sys.argv[2:] == ["--write"]:
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(written + MARK + wanted)
        return 0
    if found == wanted:
        return 0
    sys.stdout.writelines(difflib.unified_diff(
        found.splitlines(keepends=True), wanted.splitlines(keepends=True), "docs/options.md",
        "--help", n=0))
    print(f"docs/options.md differs from --help: run {sys.argv[0]} {sys.argv[1]} --write")
    return 1


if __name__ == "__main__":
    sys.exit(main())
