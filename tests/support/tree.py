"""A tree of sources as text, for the tests and tools that read it: its files, code without comments
and strings, and the functions that a source of C, C++ or CUDA defines. It needs no git."""
import collections
import os
import re

SOURCES = (".c", ".cpp", ".cu")
HEADERS = (".h", ".cuh")
C_FILES = SOURCES + HEADERS

# The second alternative keeps strings whole: "/*" in one does not begin a comment.
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|("(?:\\.|[^"\\\n])*")', re.DOTALL)
# Comments, strings and characters, in which nothing is called.
NO_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
# A definition in the style that clang-format keeps: the braces of a function's body are alone in
# the first column.
FUNCTION = re.compile(r"^(?P<type>[A-Za-z_][^;{}()=]*?)\b(?P<name>\w+)\([^;{}]*?\)\s*\n\{\n"
                      r"(?P<body>.*?)^\}", re.MULTILINE | re.DOTALL)

# A definition: its type and body as code, and the lines of its head, body and end, from 1.
Function = collections.namedtuple("Function", "type name body first body_line last")


def find_files(tree, is_wanted=lambda name: True, hidden=()):
    """The paths of the files whose name is wanted, but those of build/, of caches of Python and of
    hidden folders; `hidden` names folders at the top that are looked at although they are."""
    for folder, folders, names in os.walk(tree):
        at_top = folder == tree
        folders[:] = sorted(name for name in folders
                            if (name[0] != "." or at_top and name in hidden) and
                            name != "__pycache__" and not (at_top and name == "build"))
        for name in sorted(names):
            path = os.path.join(folder, name)
            if name != ".git" and is_wanted(name) and os.path.isfile(path):
                yield os.path.relpath(path, tree)


def read(tree, path):
    with open(os.path.join(tree, path), encoding="utf-8") as file:
        return file.read()


def line_of(text, offset):
    """The number of the line, from 1, in which a character is."""
    return text.count("\n", 0, offset) + 1


def _blank(match):
    """A space and the line ends, so that lines keep their numbers."""
    return " " + "\n" * match.group().count("\n")


def without_comments(text):
    """The text with its strings and directives, and without its comments."""
    return COMMENT.sub(lambda match: match.group(1) or _blank(match), text)


def code_of(text):
    """The text without comments, strings, characters and directives."""
    return DIRECTIVE.sub(_blank, NO_CODE.sub(_blank, text))


def functions_of(text):
    """The functions that a source defines."""
    code = code_of(text)
    for match in FUNCTION.finditer(code):
        yield Function(match.group("type"), match.group("name"), match.group("body"),
                       line_of(code, match.start()), line_of(code, match.start("body")),
                       line_of(code, match.end()))
