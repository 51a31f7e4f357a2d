#!/usr/bin/env python3
# ctest: labels=quick libs=base timeout=60
"""Finds circles of includes, and of calls, among the files of a tree.

The nodes are units: a source and the header of the same stem in the same folder are one unit,
because the one declares what the other defines; every other file, internal.h too, is a unit of its
own. A circle means that none of its units can be read, tested or replaced without all the others.

A circle of includes is printed as a chain of include lines. Two sources may also call each other by
way of a third header, which no include shows: so the calls of functions that another unit defines
are a graph, too, and the units of it that reach each other are a circle. Those in KNOWN_CIRCLES
stay, each with the reason; one that has gone has to leave that list. Calls through pointers, such
as those of a table of operations, do not count, because the caller does not name whom it calls.
Functions of which there are several by one name (kernels of machines, main) are left out, and tests
and benchmarks, which nobody calls.

Usage: test_circles.py BUILD_FOLDER         tries the search on small trees, then on this tree
       test_circles.py BUILD_FOLDER TREE    only looks at TREE
"""
import collections
import contextlib
import io
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
sys.dont_write_bytecode = True
from tree import (C_FILES, HEADERS, SOURCES, find_files, functions_of, line_of, read,
                  without_comments)

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)
CALL = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
NOT_CALLED = ("tests/", "bench/")

# Circles of calls that stay: the reason, and the units.
KNOWN_CIRCLES = {
    "Opening the device prepares its operations, which take scratch of it and wait for it.":
        ("model/backend/cuda/attention/attention.cu", "model/backend/cuda/matmul/matmul",
         "model/backend/cuda/matmul/matmul_many.cu", "model/backend/cuda/matmul/matmul_wgmma.cu",
         "model/backend/cuda/open.cu", "model/backend/cuda/record.cu",
         "model/backend/cuda/sum.cu"),
    "Values of templates hold values, and expressions call macros, which are templates again.":
        ("model/jinja/access.c", "model/jinja/call.c", "model/jinja/compare.c",
         "model/jinja/eval.c", "model/jinja/methods", "model/jinja/operators.c",
         "model/jinja/pystring", "model/jinja/render"),
    "The parser descends recursively: brackets hold an expression, and a block holds statements.":
        ("model/jinja/parse_operators.c", "model/jinja/parse_postfix.c",
         "model/jinja/parse_primary.c", "model/jinja/parse_statement.c", "model/jinja/parser"),
}

# The file `path` includes the file `header` in line `line`.
Include = collections.namedtuple("Include", "path line header")
# The file `path` calls a function of another unit in line `line`.
Call = collections.namedtuple("Call", "path line name")


def find_c_files(tree):
    """The paths of all C, C++ and CUDA files of a tree."""
    return set(find_files(tree, lambda name: name.endswith(C_FILES)))


def read_includes(tree, path, files):
    """The includes of one file that name a file of the tree, from the file's folder or the root."""
    text = without_comments(read(tree, path))
    for match in INCLUDE.finditer(text):
        beside = os.path.normpath(os.path.join(os.path.dirname(path), match.group(1)))
        from_root = os.path.normpath(match.group(1))
        header = beside if beside in files else from_root
        if header in files:
            yield Include(path, line_of(text, match.start()), header)


def unit_of(path, files):
    """The unit that a file belongs to: the stem if source and header are there, else the file."""
    stem = os.path.splitext(path)[0]
    has_source = any(stem + suffix in files for suffix in SOURCES)
    has_header = any(stem + suffix in files for suffix in HEADERS)
    return stem if has_source and has_header else path


def read_graph(tree):
    """For each unit, the units that it includes, each with the first Include that does so."""
    files = find_c_files(tree)
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


def read_calls(tree):
    """For each unit, the units whose functions it calls, each with the first Call that does so."""
    files = find_c_files(tree)
    functions = {path: list(functions_of(read(tree, path))) for path in sorted(files)
                 if not path.startswith(NOT_CALLED)}
    owners = collections.defaultdict(set)  # of functions that other files may call
    for path, found in functions.items():
        for function in found:
            if "static" not in function.type.split():
                owners[function.name].add(unit_of(path, files))
    graph = {unit_of(path, files): {} for path in functions}
    for path, found in functions.items():
        own = {function.name for function in found}
        for function in found:
            for match in CALL.finditer(function.body):
                name = match.group(1)
                if name in own or len(owners[name]) != 1:
                    continue
                unit, (other,) = unit_of(path, files), owners[name]
                if unit != other:
                    line = function.body_line + function.body.count("\n", 0, match.start())
                    call = Call(path, line, name)
                    graph[unit].setdefault(other, call)
    return graph


def reach(graph, start):
    """The units that lie on a way from start, without start itself if no way leads back."""
    seen, ends = set(), [start]
    while ends:
        for other in graph[ends.pop()]:
            if other not in seen:
                seen.add(other)
                ends.append(other)
    return seen


def find_call_circles(graph):
    """The largest sets of units that all reach each other, each as a frozenset."""
    reached = {unit: reach(graph, unit) for unit in graph}
    return {frozenset(other for other in reached[unit] if unit in reached[other])
            for unit in graph if unit in reached[unit]}


def check_includes(tree):
    """Prints every circle of includes and returns how many there are."""
    circles = find_circles(read_graph(tree))
    for circle in circles:
        print(f"a circle of {len(circle)} units:")
        for include in circle:
            print(f"    {include.path}:{include.line} includes {include.header}")
    return len(circles)


def check_calls(tree, known):
    """Prints every circle of calls that is not known, and every known one that is not there;
    returns how many these are."""
    graph = read_calls(tree)
    circles, expected = find_call_circles(graph), {frozenset(units) for units in known.values()}
    for circle in sorted(circles - expected, key=sorted):
        print(f"a circle of calls among {len(circle)} units:")
        for unit in sorted(circle):
            for other in sorted(circle & graph[unit].keys()):
                call = graph[unit][other]
                print(f"    {call.path}:{call.line} calls {call.name} of {other}")
    for circle in sorted(expected - circles, key=sorted):
        print(f"KNOWN_CIRCLES has a circle that is none: {', '.join(sorted(circle))}")
    return len(circles ^ expected)


def check_tree(tree, known):
    """Prints what is wrong with the tree and returns how much that is."""
    return check_includes(tree) + check_calls(tree, known)


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
    ("an include after a string that looks like the start of a comment", {
        "a/x.h": 'char *s = "/*";\n#include "a/y.h" /* why */\n', "a/y.h": '#include "a/x.h"\n'},
     ["a/x.h:2 a/y.h", "a/y.h:1 a/x.h"]),
    ("the build folder is not looked at", {
        "build/x.h": '#include "build/y.h"\n', "build/y.h": '#include "build/x.h"\n'}, []),
]


# Each case of calls: what it shows, the files of the tree, and the units of the circle, if there is
# one.
A_CALLS_B = "int a(void)\n{\n    return b(1);\n}\n"
B_CALLS_A = ("static int s(int x)\n{\n    return x;\n}\n\n"
             "int b(int x)\n{\n    return a() + s(x);\n}\n")
B_ALONE = "int b(int x)\n{\n    return x;\n}\n"
CALL_CASES = [
    ("two sources that share a header and call each other", {
        "m/all.h": "int a(void);\nint b(int x);\n", "m/a.c": A_CALLS_B, "m/b.c": B_CALLS_A},
     ["m/a.c", "m/b.c"]),
    ("a call in one direction", {"m/a.c": A_CALLS_B, "m/b.c": B_ALONE}, []),
    ("a circle of three, one of them by a function in a header, with parameters in two lines", {
        "m/a.c": A_CALLS_B, "m/b.c": "int b(int x,\n      int y)\n{\n    return c(x);\n}\n",
        "m/c.h": "static inline int c(int x)\n{\n    return x + d();\n}\n",
        "m/c.c": "int c(int x)\n{\n    if (x) {\n        a();\n    }\n    return 0;\n}\n"},
     ["m/a.c", "m/b.c", "m/c"]),
    ("calls in comments and strings, and macros that look like calls", {
        "m/a.c": A_CALLS_B, "m/b.c": "int b(int x)\n{\n    /* a() */\n    puts(\"a()\"); // a()\n"
                                     "#define CALL a()\n    return x;\n}\n"}, []),
    ("a static function by the name of another file's", {
        "m/a.c": A_CALLS_B, "m/b.c": "static int a(void)\n{\n    return 0;\n}\n\n" + B_ALONE +
                                     "int c(void)\n{\n    return a();\n}\n"}, []),
    ("a function that two files define belongs to none", {
        "m/a.c": A_CALLS_B, "m/b.c": B_CALLS_A, "n/a.c": A_CALLS_B}, []),
    ("a function of a table, named without a call", {
        "m/a.c": A_CALLS_B, "m/b.c": "struct ops b_ops = {.open = a};\n\n" + B_ALONE}, []),
    ("tests are not looked at", {"tests/a.c": A_CALLS_B, "m/b.c": B_CALLS_A}, []),
]


def make_tree(tree, files):
    """Writes the files of a case."""
    for path, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(tree, path)), exist_ok=True)
        with open(os.path.join(tree, path), "w", encoding="utf-8") as file:
            file.write(text)


def try_call_case(what, files, expected):
    """Returns True if exactly the expected circle of calls is found in a tree of these files, and
    if a list of known circles that differs from it is refused."""
    with tempfile.TemporaryDirectory() as tree:
        make_tree(tree, files)
        found = [sorted(circle) for circle in find_call_circles(read_calls(tree))]
        with contextlib.redirect_stdout(io.StringIO()):
            n_new = check_calls(tree, {})
            n_known = check_calls(tree, {"a reason": expected} if expected else {})
            n_gone = check_calls(tree, {"a reason": ["m/x.c", "m/y.c"]})
    n = 1 if expected else 0
    if found == [expected][:n] and (n_new, n_known, n_gone) == (n, 0, n + 1):
        return True
    print(f"{what}: expected {expected or 'no circle'}, found {found or 'none'}; {n_new} are new, "
          f"{n_known} with it in the list, {n_gone} with another one in the list")
    return False


def try_case(what, files, expected):
    """Returns True if exactly the expected circle is found in a tree of these files."""
    with tempfile.TemporaryDirectory() as tree:
        make_tree(tree, files)
        circles = find_circles(read_graph(tree))
    found = [[f"{i.path}:{i.line} {i.header}" for i in circle] for circle in circles]
    if sorted(map(sorted, found)) == ([sorted(expected)] if expected else []):
        return True
    print(f"{what}: expected {expected or 'no circle'}, found {found or 'none'}")
    return False


def main():
    if len(sys.argv) > 2:
        return 1 if check_tree(sys.argv[2], KNOWN_CIRCLES) else 0
    results = [try_case(*case) for case in CASES] + [try_call_case(*case) for case in CALL_CASES]
    if all(results):
        print("the search finds what it should")
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return 0 if check_tree(root, KNOWN_CIRCLES) == 0 and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
