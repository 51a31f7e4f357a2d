#!/usr/bin/env python3
# ctest: labels=quick libs=base timeout=60
"""tests/house finds functions, rooms and words in small texts, prints its tables for this tree, and
finds no words here that docs/style.md does not want.
Usage: test_house.py BUILD_FOLDER
"""
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "house")
sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("house", PATH)
house = importlib.util.module_from_spec(importlib.util.spec_from_loader("house", LOADER))
LOADER.exec_module(house)


def copy_house(folder):
    """Makes a tree of tests/house and the files that it needs."""
    for path in ("tests/house", "tests/support/tree.py", "docs/architecture.md"):
        os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
        shutil.copy(os.path.join(os.path.dirname(PATH), "..", path), os.path.join(folder, path))


class House(unittest.TestCase):
    def test_functions_have_their_lines_with_the_head(self):
        text = ("#include <a.h>\n\nint a;\n/* Adds. */\nstatic int add_all(int b,\n"
                "                   int c)\n{\n    return b + c;\n}\n\nvoid f(void)\n{\n}\n")
        self.assertEqual([(found.first, found.last, found.name)
                          for found in house.functions_of(text)],
                         [(5, 9, "add_all"), (11, 13, "f")])

    def test_the_longest_name_of_a_room_counts(self):
        rooms = house.read_rooms("| room | holds | may include |\n|---|---|---|\n"
                                 "| model | a | base |\n| model/jinja | b | base |\n")
        self.assertEqual(house.room_of("model/jinja/a.c", rooms), "model/jinja")
        self.assertEqual(house.room_of("model/forward.c", rooms), "model")
        self.assertEqual(house.room_of("tests/unit/base/test_a.c", rooms), "tests/unit")

    def check(self, name, text, *words):
        self.assertEqual([(kind, where) for kind, where, _ in house.words_of(name, text)],
                         [(kind, f"{name}:{line}") for kind, line in words])

    def test_openings_are_found_in_comments_and_not_in_code(self):
        self.check("a.c", 'int of;\n/* What it is for. */\nchar *a = "/* Of */";\n/* Some\n'
                   " * weather. */\n", ("begins with What", 2), ("weather", 5))
        self.check("a.c", "int a; // Those that stay\n/* Often the same one */\n",
                   ("begins with Those", 1))

    def test_each_opening_of_the_style_guide_is_found(self):
        for opening in ("What", "Of", "Whether", "Who", "Those", "The same"):
            self.check("a.c", f"/* {opening} it is. */\n", (f"begins with {opening}", 1))
        self.check("a.c", "int a; // Rows behind it\n", ("behind", 1))

    def test_words_are_found_in_texts_and_names(self):
        self.check("a.c", 'puts("guesses "\n     "behind it");\nint n_behind, behindhand;\n'
                   "bool stands_alone(void);\nint olives;\n",
                   ("behind", 2), ("behind", 3), ("stands", 4))
        self.check("a.py", '# Rows.\nprint("It lives here")\n', ("lives", 2))
        self.check("tests/a.c", 'char *a = "weather";\nint is_behind;\n', ("behind", 2))

    def test_hidden_things_may_be_behind_others(self):
        self.check("a.c", "/* Ranks behind a\n * proxy, and behind NAT. */\n")
        self.check("a.py", "# A rank behind the drafter's interface.\n# Rows behind a rank.\n",
                   ("behind", 2))

    def test_words_are_found_in_scripts_and_documents(self):
        self.check("a.py", '#!/usr/bin/python3\n"""Of a script."""\nwhoever = 1\n# The same\n',
                   ("begins with The same", 4), ("begins with Of", 2))
        self.check("a.md", "A line\nWhat follows\n\nWhat begins\n", ("begins with What", 4))

    def test_this_tree_has_its_tables(self):
        done = subprocess.run([PATH], capture_output=True, encoding="utf-8", check=True)
        for words in ("by room", "Longest functions", "most C files", "does not want"):
            self.assertIn(words, done.stdout)
        self.assertRegex(done.stdout, r"(?m)^ +\d+ +\d+  speculation/planner$")

    def test_this_tree_has_no_such_words(self):
        done = subprocess.run([PATH, "--check"], capture_output=True, encoding="utf-8",
                              check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_a_new_word_is_refused_with_its_place_and_what_to_write(self):
        with tempfile.TemporaryDirectory() as copy:
            copy_house(copy)
            os.mkdir(os.path.join(copy, "comm"))
            with open(os.path.join(copy, "comm/new.c"), "w", encoding="utf-8") as file:
                file.write("int a;\n\n/* Whether it is new. */\nint b;\n")
            done = subprocess.run([os.path.join(copy, "tests/house"), "--check"],
                                  capture_output=True, encoding="utf-8", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("comm/new.c:3: begins with Whether: begin with \"True if\"", done.stdout)

    def test_it_needs_no_git(self):
        with tempfile.TemporaryDirectory() as copy:
            copy_house(copy)
            done = subprocess.run([os.path.join(copy, "tests/house")], capture_output=True,
                                  encoding="utf-8", check=True, env={"PATH": "/usr/bin:/bin"})
        self.assertRegex(done.stdout, r"(?m)^ +3 +\d+  all$")

    def test_other_arguments_are_refused(self):
        done = subprocess.run([PATH, "--all"], capture_output=True, encoding="utf-8", check=False)
        self.assertEqual((done.returncode, "--where" in done.stderr), (2, True))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
