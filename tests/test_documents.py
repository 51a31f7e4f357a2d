#!/usr/bin/env python3
# ctest: labels=quick libs=base timeout=60
"""Holds the documents of a tree to what they name, and prints each fault as FILE:LINE: TEXT.

  link      each link of a .md file leads to a file, and its #anchor to a heading there
  path      each file of the tree that README.md, CONTRIBUTING.md or a page of docs/ names is there
            (docs/journal/ is history and may name files that have gone), and each page of docs/
            that a source names
  function  each function of docs/architecture.md, "Reading order", is in the file beside it
  figure    each row of docs/results.md has a date, and a machine of the page's first table

Usage: test_documents.py BUILD_FOLDER         tries the rules on small trees, then on this tree
       test_documents.py BUILD_FOLDER TREE    only looks at TREE
"""
import os
import re
import sys
import tempfile

SOURCES = (".c", ".h", ".cu", ".cuh", ".cpp", ".py", ".sh", ".cmake", ".proto", ".md", ".txt")
LINK = re.compile(r"\]\(([^)\s]+)\)")
ENDINGS = "c|h|cu|cuh|py|sh|md|proto|conf"
PATH = re.compile(rf"(?<![\w./{{*<-])[a-z]\w*(?:/[\w.-]+)+\.(?:{ENDINGS})\b(?![*<{{])")
PAGE = re.compile(r"(?<![\w./-])docs/[\w/-]+\.md\b")
FUNCTION = re.compile(r"^\| `(\w+)` \| ([\w/.]+) \|", re.MULTILINE)
FIGURES = "| figure | value | bar | machine | date | command |"
DATE = re.compile(r"20\d\d-\d\d-\d\d")
ANYWHERE = ("any", "not recorded")


def find_files(tree):
    """The paths of all files but those of build/ and of hidden folders."""
    for folder, folders, names in os.walk(tree):
        at_top = folder == tree
        folders[:] = sorted(n for n in folders if n[0] != "." and not (at_top and n == "build"))
        for name in sorted(names):
            if name.endswith(SOURCES) and os.path.isfile(os.path.join(folder, name)):
                yield os.path.relpath(os.path.join(folder, name), tree)


def read(tree, path):
    with open(os.path.join(tree, path), encoding="utf-8") as file:
        return file.read()


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    for line in text.splitlines():
        if line.startswith("#"):
            words = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
            yield words.replace(" ", "-")


def find_links(tree, path, text):
    """Links that lead nowhere, with their offsets."""
    for match in LINK.finditer(text):
        target, _, anchor = match.group(1).partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        other = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
        if not os.path.exists(os.path.join(tree, other)):
            yield match.start(), f"there is no {other}"
        elif anchor and other.endswith(".md") and anchor not in anchors(read(tree, other)):
            yield match.start(), f"{other} has no heading for #{anchor}"


def find_paths(tree, text, pattern):
    """Files of the tree's folders that are named and not there, with their offsets."""
    for match in pattern.finditer(text):
        name = match.group(0)
        if os.path.isdir(os.path.join(tree, name.split("/")[0])) and \
                not os.path.exists(os.path.join(tree, name)):
            yield match.start(), f"there is no {name}"


def find_functions(tree, text):
    """Functions of the reading order that are not in their files, with their offsets."""
    order = text.find("\n## Reading order\n")
    end = text.find("\n## ", order + 1)
    for match in FUNCTION.finditer(text, max(order, 0), end if end > 0 else len(text)):
        name, path = match.groups()
        if not os.path.exists(os.path.join(tree, path)) or f"{name}(" not in read(tree, path):
            yield match.start(), f"there is no {name} in {path}"


def find_figures(text):
    """Rows of the tables of figures without a date or with an unknown machine."""
    machines = set(ANYWHERE) | set(re.findall(r"^\| ([A-Z]\d?) \|", text, re.MULTILINE))
    at, is_table = 0, False
    for line in text.splitlines(keepends=True):
        is_table = is_table and line.startswith("|") or line.strip() == FIGURES
        if is_table and line.strip() != FIGURES and not line.startswith("|---"):
            # A | within code is no border of a cell.
            cells = [c.strip() for c in re.sub(r"`[^`]*`", "`", line).strip().strip("|").split("|")]
            if len(cells) != 6 or not all(cells[i] for i in (0, 1, 3, 4, 5)):
                yield at, "a figure needs a value, a machine, a date and a command"
            elif not DATE.fullmatch(cells[4]):
                yield at, f"{cells[4]} is no date"
            elif not all(part.strip() in machines for part in cells[3].split(",")):
                yield at, f"{cells[3]} is no machine of this page"
        at += len(line)


def find_faults(tree):
    for path in find_files(tree):
        text = read(tree, path)
        found = []
        if path.endswith(".md"):
            found += find_links(tree, path, text)
        if re.match(r"(README|CONTRIBUTING|docs/[\w-]+)\.md$", path):
            found += find_paths(tree, text, PATH)
        elif not path.startswith(("docs/journal/", "tests/test_")):
            found += find_paths(tree, text, PAGE)
        if path == "docs/architecture.md":
            found += find_functions(tree, text)
        if path == "docs/results.md":
            found += find_figures(text)
        for line, what in sorted({(text.count("\n", 0, at) + 1, what) for at, what in found}):
            yield f"{path}:{line}: {what}"


def try_rules():
    """Each small tree has the faults that are listed, and no others."""
    good = {"docs/a.md": "# A b, c\n[x](b.md#one) [y](#a-b-c) base/x.c base/*.c other/gone.c\n",
            "docs/b.md": "## One\n", "base/x.c": "/* docs/a.md */\nint f(void) { return 0; }\n"}
    row = "| speed | 2 | 1 | {} | {} | `a | b` |\n"
    page = "| Z | two cores |\n\n" + FIGURES + "\n|---|---|---|---|---|---|\n"
    cases = [
        ({}, []),
        ({"README.md": "[x](docs/c.md)\n"}, ["README.md:1: there is no docs/c.md"]),
        ({"docs/c.md": "\n[x](a.md#two)\n"}, ["docs/c.md:2: docs/a.md has no heading for #two"]),
        ({"docs/c.md": "see base/gone.c\n"}, ["docs/c.md:1: there is no base/gone.c"]),
        ({"docs/journal/c.md": "see base/gone.c\n"}, []),
        ({"base/y.h": "\n/* docs/gone.md */\n"}, ["base/y.h:2: there is no docs/gone.md"]),
        ({"docs/architecture.md": "\n## Reading order\n| `f` | base/x.c | a |\n"}, []),
        ({"docs/architecture.md": "\n## Reading order\n| `g` | base/x.c | a |\n"},
         ["docs/architecture.md:3: there is no g in base/x.c"]),
        ({"docs/results.md": page + row.format("Z", "2026-11-27")}, []),
        ({"docs/results.md": page + row.format("Y", "2026-11-27")},
         ["docs/results.md:5: Y is no machine of this page"]),
        ({"docs/results.md": page + row.format("Z", "today")},
         ["docs/results.md:5: today is no date"]),
        ({"docs/results.md": page + "| speed | 2 | 1 | Z | 2026-11-27 |\n"},
         ["docs/results.md:5: a figure needs a value, a machine, a date and a command"]),
    ]
    for more, wanted in cases:
        with tempfile.TemporaryDirectory() as tree:
            for path, text in {**good, **more}.items():
                os.makedirs(os.path.join(tree, os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(tree, path), "w", encoding="utf-8") as file:
                    file.write(text)
            found = list(find_faults(tree))
        if found != wanted:
            sys.exit(f"with {more}\nthe search found {found}\nand not {wanted}")
    print("the search finds what it should")


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    tree = sys.argv[2] if len(sys.argv) == 3 else os.path.join(os.path.dirname(__file__), "..")
    if len(sys.argv) == 2:
        try_rules()
    faults = list(find_faults(os.path.abspath(tree)))
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
