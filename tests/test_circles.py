#!/usr/bin/env python3
# ctest: labels=quick libs=base timeout=60
"""Finds circles of includes among the files of a tree and prints each as a chain of include lines.

The nodes are units: a source and the header of the same stem in the same folder are one unit,
because the one declares what the other defines; every other file, internal.h too, is a unit of its
own. A circle means that none of its units can be read, tested or replaced without all the others.

Usage: test_circles.py BUILD_FOLDER         tries the search on small trees, then on this tree
       test_circles.py BUILD_FOLDER TREE    only looks at TREE
"""
import collections
import os
import re
import sys
import tempfile

SOURCES = (".c", ".cpp", ".cu")
HEADERS = (".h", ".cuh")
# The second alternative keeps strings whole: "/*" in one does not begin a comment.
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|("(?:\\.|[^"\\\n])*")', re.DOTALL)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)

# The file `path` includes the file `header` in line `line`.
Include = collections.namedtuple("Include", "path line header")


def find_files(tree):
    """The paths of all C, C++ and CUDA files but those of build/ and of hidden folders."""
    for folder, folders, names in os.walk(tree):
        at_top = folder == tree
        folders[:] = sorted(n for n in folders if n[0] != "." and not (at_top and n == "build"))
        for name in sorted(names):
            if name.endswith(SOURCES + HEADERS):
                yield os.path.relpath(os.path.join(folder, name), tree)


def blank_comment(match):
    """A comment becomes its line ends, so that the lines keep their numbers."""
    return match.group(1) or "\n" * match.group(0).count("\n")


def read_includes(tree, path, files):
    """The includes of one file that name a file of the tree, from the file's folder or the root."""
    with open(os.path.join(tree, path), encoding="utf-8") as file:
        text = COMMENT.sub(blank_comment, file.read())
    for match in INCLUDE.finditer(text):
        beside = os.path.normpath(os.path.join(os.path.dirname(path), match.group(1)))
        from_root = os.path.normpath(match.group(1))
        header = beside if beside in files else from_root
        if header in files:
            yield Include(path, text.count("\n", 0, match.start()) + 1, header)


def unit_of(path, files):
    """The unit that a file belongs to: the stem if source and header are there, else the file."""
    stem = os.path.splitext(path)[0]
    has_source = any(stem + suffix in files for suffix in SOURCES)
    has_header = any(stem + suffix in files for suffix in HEADERS)
    return stem if has_source and has_header else path


def read_graph(tree):
    """For each unit, the units that it includes, each with the first Include that does so."""
    files = set(find_files(tree))
    graph = {unit_of(path, files): {} for path in sorted(files)}
    for path in sorted(files):
        for include in read_includes(tree, path, files):
            unit, other = unit_of(path, files), unit_of(include.header, files)
            if unit != other:
                graph[unit].setdefault(other, include)
    return graph


def shortest_path(graph, start, goal):
    """The Includes that lead from start to goal, or None."""
    came_by = {start: None}
    queue = collections.deque([start])
    while queue:
        unit = queue.popleft()
        for other in graph[unit]:
            if other not in came_by:
                came_by[other] = unit
                queue.append(other)
    if goal not in came_by:
        return None
    path = []
    while came_by[goal] is not None:
        path.append(graph[came_by[goal]][goal])
        goal = came_by[goal]
    return path[::-1]


def find_circles(graph):
    """One circle, the shortest, through every include that lies on one; each circle once."""
    circles = {}
    for unit in graph:
        for other, include in graph[unit].items():
            back = shortest_path(graph, other, unit)
            if back is not None:
                circle = [include] + back
                circles.setdefault(frozenset(circle), circle)
    return list(circles.values())


def check_tree(tree):
    """Prints every circle of the tree and returns how many there are."""
    circles = find_circles(read_graph(tree))
    for circle in circles:
        print(f"a circle of {len(circle)} units:")
        for include in circle:
            print(f"    {include.path}:{include.line} includes {include.header}")
    return len(circles)


# Each case: what it shows, the files of the tree, and the chain to be found (empty: no circle).
CASES = [
    ("a tree without a circle", {
        "a/x.h": "", "a/x.c": '#include "a/x.h"\n#include "b/y.h"\n',
        "b/y.h": '#include "b/z.h"\n', "b/z.h": ""}, []),
    ("two headers", {
        "a/x.h": '#include "b/y.h"\n', "b/y.h": '\n#include "a/x.h"\n'},
     ["a/x.h:1 b/y.h", "b/y.h:2 a/x.h"]),
    ("two sources that include each other's header", {
        "a/x.h": "", "a/x.c": '#include "a/x.h"\n#include "a/y.h"\n',
        "a/y.h": "", "a/y.c": '#include <stdio.h>\n\n#include "a/x.h"\n'},
     ["a/x.c:2 a/y.h", "a/y.c:3 a/x.h"]),
    ("three units, found from the file's own folder and in angle brackets", {
        "a/x.cuh": '#include "y.h"\n', "a/x.cu": "", "a/y.h": "", "a/y.cpp": "#include <b/z.h>\n",
        "b/z.h": '#  include "a/x.cuh"\n'},
     ["a/x.cuh:1 a/y.h", "a/y.cpp:1 b/z.h", "b/z.h:1 a/x.cuh"]),
    ("a circle through internal.h", {
        "a/internal.h": '#include "a/x.h"\n', "a/x.h": "", "a/x.c": '#include "a/internal.h"\n'},
     ["a/internal.h:1 a/x.h", "a/x.c:1 a/internal.h"]),
    ("the same stem in two folders is two units", {
        "a/x.h": '#include "b/x.h"\n', "a/x.c": "", "b/x.h": "", "b/x.c": '#include "a/x.h"\n'},
     ["a/x.h:1 b/x.h", "b/x.c:1 a/x.h"]),
    ("sources that share internal.h", {
        "a/internal.h": "", "a/x.c": '#include "a/internal.h"\n',
        "a/y.c": '#include "a/internal.h"\n'}, []),
    ("includes in comments, and a string that looks like the start of one", {
        "a/x.h": '/* then\n#include "a/y.h"\n*/\n// #include "a/y.h"\nchar *s = "/*";\n',
        "a/y.h": '#include "a/x.h"\n'}, []),
    ("an include behind a string that looks like the start of a comment", {
        "a/x.h": 'char *s = "/*";\n#include "a/y.h" /* why */\n', "a/y.h": '#include "a/x.h"\n'},
     ["a/x.h:2 a/y.h", "a/y.h:1 a/x.h"]),
    ("the build folder is not looked at", {
        "build/x.h": '#include "build/y.h"\n', "build/y.h": '#include "build/x.h"\n'}, []),
]


def try_case(what, files, expected):
    """Whether exactly the expected circle is found in a tree of these files."""
    with tempfile.TemporaryDirectory() as tree:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(tree, path)), exist_ok=True)
            with open(os.path.join(tree, path), "w", encoding="utf-8") as file:
                file.write(text)
        circles = find_circles(read_graph(tree))
    found = [[f"{i.path}:{i.line} {i.header}" for i in circle] for circle in circles]
    if sorted(map(sorted, found)) == ([sorted(expected)] if expected else []):
        return True
    print(f"{what}: expected {expected or 'no circle'}, found {found or 'none'}")
    return False


def main():
    if len(sys.argv) > 2:
        return 1 if check_tree(sys.argv[2]) else 0
    results = [try_case(*case) for case in CASES]
    if all(results):
        print("the search finds what it should")
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return 0 if check_tree(root) == 0 and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
