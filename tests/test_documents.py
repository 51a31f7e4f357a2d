#!/usr/bin/env python3
# ctest: labels=quick libs=base timeout=60
"""Holds the documents of a tree to what they name, and prints each fault as FILE:LINE: TEXT.

  link      each link of a .md file leads to a file, and its #anchor to a heading there
  heading   where README.md, CONTRIBUTING.md or a page of docs/ names a page and a quoted heading of
            it, the page has such a heading, or a paragraph that begins with it in bold letters
  path      each file or folder of the tree that README.md, CONTRIBUTING.md or a page of docs/ names
            is there, whatever its suffix (docs/journal/ is history and may name files that have
            gone), and each page of docs/ that a source names
  function  docs/architecture.md, "Reading order", has twelve functions, each of which is defined in
            the file beside it
  example   each declaration or function in a ```c block of these pages is, word for word, in a
            source that the page names
  figure    docs/results.md has tables of figures, all with the same columns, and each row has a
            date, and a machine of the page's first table

Usage: test_documents.py BUILD_FOLDER         tries the rules on small trees, then on this tree
       test_documents.py BUILD_FOLDER TREE    only looks at TREE
"""
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
sys.dont_write_bytecode = True
from tree import C_FILES, find_files, functions_of, line_of, read

TEXTS = (".c", ".h", ".cu", ".cuh", ".cpp", ".py", ".sh", ".cmake", ".proto", ".md", ".txt")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"(?<![\w./{*<$=-])[a-z]\w*(?:/[\w-]+(?:\.[\w-]+)*)+(?![\w*<{/])")
PLACEHOLDER = re.compile(r"/[A-Z]+(?:/|$)")  # as in tests/unit/FOLDER
QUOTED = re.compile(r"(?<![\w/])(docs/[\w/-]+\.md|\w+\.md)(?:\]\([^)]*\))?,\s+\"([^\"]+)\"")
PAGE = re.compile(r"(?<![\w./-])docs/[\w/-]+\.md\b")
EXAMPLE = re.compile(r"^```c\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PIECE = re.compile(r"(?:[^\n]+\n)+")  # up to an empty line
ROW = re.compile(r"^\| `(\w+)` \| ([\w/.]+) \|", re.MULTILINE)
N_FUNCTIONS = 12
MACHINES = "| machine | what it is |"
FIGURES = "| figure | value | bar | machine | date | command |"
DATE = re.compile(r"20\d\d-\d\d-\d\d")
ANYWHERE = ("any", "not recorded")


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
        top = name.split("/")[0]
        if top != "build" and os.path.isdir(os.path.join(tree, top)) and \
                not PLACEHOLDER.search(name) and not os.path.exists(os.path.join(tree, name)):
            yield match.start(), f"there is no {name}"


def find_headings(tree, path, text):
    """Quoted headings that their pages do not have, with their offsets."""
    for match in QUOTED.finditer(text):
        name, heading = match.group(1), " ".join(match.group(2).split()).rstrip(",.")
        page = name if "/" in name else os.path.join(os.path.dirname(path), name)
        if os.path.exists(os.path.join(tree, page)) and \
                not re.search(rf"^(?:#+ (?:\d+\. )?{re.escape(heading)}$|"
                              rf"\*\*{re.escape(heading)}\.\*\*)", read(tree, page), re.M):
            yield match.start(), f"{page} has no heading \"{heading}\""


def find_functions(tree, text):
    """Functions of the reading order that are not defined in their files, with their offsets."""
    order = text.find("\n## Reading order\n") + 1
    end = text.find("\n## ", order)
    rows = list(ROW.finditer(text, order, end if end > 0 else len(text))) if order else []
    if len(rows) != N_FUNCTIONS:
        yield order, f"the reading order has {len(rows)} functions and not {N_FUNCTIONS}"
    for match in rows:
        name, path = match.groups()
        if not os.path.exists(os.path.join(tree, path)) or \
                name not in (function.name for function in functions_of(read(tree, path))):
            yield match.start(), f"{name} is not defined in {path}"


def find_examples(tree, text):
    """Pieces of ```c blocks that are in no source that the page names, with their offsets."""
    paths = {path for path in PATH.findall(text)
             if path.endswith(C_FILES) and os.path.exists(os.path.join(tree, path))}
    sources = [read(tree, path) for path in paths]
    for block in EXAMPLE.finditer(text):
        for piece in PIECE.finditer(text, *block.span(1)):
            if not any(piece.group() in source for source in sources):
                yield piece.start(), "this code is in no source that the page names"


def find_figures(text):
    """Tables of figures with other columns, and rows without a date or with an unknown machine."""
    machines = set(ANYWHERE) | set(re.findall(r"^\| ([A-Z]\d?) \|", text, re.MULTILINE))
    at, head, n_figures = 0, None, 0
    for line in text.splitlines(keepends=True):
        if not line.startswith("|"):
            head = None
        elif head is None:
            head = line.strip()
            if head not in (MACHINES, FIGURES):
                yield at, f"the columns of a table of figures are {FIGURES}"
        elif head == FIGURES and not line.startswith("|---"):
            n_figures += 1
            # A | within code is no border of a cell.
            cells = [c.strip() for c in re.sub(r"`[^`]*`", "`", line).strip().strip("|").split("|")]
            if len(cells) != 6 or not all(cells[i] for i in (0, 1, 3, 4, 5)):
                yield at, "a figure needs a value, a machine, a date and a command"
            elif not DATE.fullmatch(cells[4]):
                yield at, f"{cells[4]} is no date"
            elif not all(part.strip() in machines for part in cells[3].split(",")):
                yield at, f"{cells[3]} is no machine of this page"
        at += len(line)
    if not n_figures:
        yield 0, "the page has no figure"


def find_faults(tree):
    for path in find_files(tree, lambda name: name.endswith(TEXTS)):
        text = read(tree, path)
        found = []
        if path.endswith(".md"):
            found += find_links(tree, path, text)
        if re.match(r"(README|CONTRIBUTING|docs/[\w-]+)\.md$", path):
            found += find_paths(tree, text, PATH)
            found += find_headings(tree, path, text)
            found += find_examples(tree, text)
        elif not path.startswith(("docs/journal/", "tests/test_")):
            found += find_paths(tree, text, PAGE)
        if path == "docs/architecture.md":
            found += find_functions(tree, text)
        if path == "docs/results.md":
            found += find_figures(text)
        for line, what in sorted({(line_of(text, at), what) for at, what in found}):
            yield f"{path}:{line}: {what}"


def try_rules():
    """Each small tree has the faults that are listed, and no others."""
    good = {"docs/a.md": "# A b, c\n[x](b.md#one) [y](#a-b-c) base/x.c base/*.c other/gone.c\n"
                         "base/run, base/FOLDER, base/test_*.c, build/gone and base/.\n",
            "docs/b.md": "## One\n", "base/x.c": "/* docs/a.md */\nint f(void)\n{\n    g();\n}\n",
            "base/run": "", "build/x": ""}
    order = "\n## Reading order\n" + 11 * "| `f` | base/x.c | a |\n"
    row = "| speed | 2 | 1 | {} | {} | `a | b` |\n"
    machines = MACHINES + "\n|---|---|\n| Z | two cores |\n\n"
    page = machines + FIGURES + "\n|---|---|---|---|---|---|\n"
    cases = [
        ({}, []),
        ({"README.md": "[x](docs/c.md)\n"}, ["README.md:1: there is no docs/c.md"]),
        ({"docs/c.md": "\n[x](a.md#two)\n"}, ["docs/c.md:2: docs/a.md has no heading for #two"]),
        ({"docs/c.md": "see base/gone.c\n"}, ["docs/c.md:1: there is no base/gone.c"]),
        ({"docs/c.md": "see base/gone/run, `base/gone`.\nbase/g.yaml, base/g.json (base/g.cpp)\n"},
         ["docs/c.md:1: there is no base/gone", "docs/c.md:1: there is no base/gone/run",
          "docs/c.md:2: there is no base/g.cpp", "docs/c.md:2: there is no base/g.json",
          "docs/c.md:2: there is no base/g.yaml"]),
        ({"docs/c.md": "docs/b.md, \"One\", [d](d.md), \"Bold\", d.md, \"Two\"",
          "docs/d.md": "# 1. Two\n**Bold.** x\n"}, []),
        ({"docs/c.md": "\ndocs/b.md, \"Two\", b.md,\n\"O\""},
         ["docs/c.md:2: docs/b.md has no heading \"O\"",
          "docs/c.md:2: docs/b.md has no heading \"Two\""]),
        ({"docs/journal/c.md": "see base/gone.c\n"}, []),
        ({"base/y.h": "\n/* docs/gone.md */\n"}, ["base/y.h:2: there is no docs/gone.md"]),
        ({"docs/architecture.md": order + "| `f` | base/x.c | a |\n"}, []),
        ({"docs/architecture.md": order + "| `h` | base/x.c | a |\n"},
         ["docs/architecture.md:14: h is not defined in base/x.c"]),
        ({"docs/architecture.md": order + "| `g` | base/x.c | it is only called there |\n"},
         ["docs/architecture.md:14: g is not defined in base/x.c"]),
        ({"docs/architecture.md": order + "| `h` | base/y.h | it is only declared there |\n",
          "base/y.h": "int h(void);\n/*\nint h(void)\n{\n}\n*/\n"},
         ["docs/architecture.md:14: h is not defined in base/y.h"]),
        ({"docs/architecture.md": order},
         ["docs/architecture.md:2: the reading order has 11 functions and not 12"]),
        ({"docs/architecture.md": "\n## Reading order\n- f: base/x.c\n\n## More\n" + order[18:]},
         ["docs/architecture.md:2: the reading order has 0 functions and not 12"]),
        ({"docs/architecture.md": "# Architecture\n"},
         ["docs/architecture.md:1: the reading order has 0 functions and not 12"]),
        ({"docs/c.md": "base/x.c:\n```c\nint f(void)\n{\n    g();\n}\n```\n"}, []),
        ({"docs/c.md": "base/x.c:\n```c\n/* docs/a.md */\n\nint f(void)\n{\n    h();\n}\n```\n"},
         ["docs/c.md:5: this code is in no source that the page names"]),
        ({"docs/c.md": "```c\nint f(void)\n```\n"},
         ["docs/c.md:2: this code is in no source that the page names"]),
        ({"docs/results.md": page + row.format("Z", "2026-11-27")}, []),
        ({"docs/results.md": page + row.format("Y", "2026-11-27")},
         ["docs/results.md:7: Y is no machine of this page"]),
        ({"docs/results.md": page + row.format("Z", "today")},
         ["docs/results.md:7: today is no date"]),
        ({"docs/results.md": page + "| speed | 2 | 1 | Z | 2026-11-27 |\n"},
         ["docs/results.md:7: a figure needs a value, a machine, a date and a command"]),
        ({"docs/results.md": machines}, ["docs/results.md:1: the page has no figure"]),
        ({"docs/results.md": page + row.format("Z", "2026-11-27") + "\n| figure | value |\n"},
         [f"docs/results.md:9: the columns of a table of figures are {FIGURES}"]),
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
