"""Random templates over the values below. They leave out by construction what model/jinja refuses
("%" on texts, methods and ranges as values), what depends on how jinja2 folds constants (slices of
what is no text or list, filters of blocks that give no text), and the differences that
model/jinja/jinja.h lists: generators, methods of texts that are marked as safe, and given values
whose names are set later."""

VALUES = {
    "a": 5, "b": -3, "f": 2.5, "s": "Hello World", "e": "", "n": None, "t": True, "l": [3, 1, 2],
    "w": ["b", "A", "c", "a"], "d": {"x": 1, "y": {"z": [1, 2, {"k": "v"}]}, "items": 9},
    "u": "äöü ß 你好 \U0001f600 <&>\"'", "ml": "one\n two\n\nthree\n",
    "people": [{"name": "Bob", "age": 30}, {"name": "alice", "age": 25}, {"name": "Carl"}],
    "nested": [[1, 2], [3]],
}
NAMES = ["x", "y", "z"]  # that templates set; none of them is given
FILTERS = """upper lower title capitalize trim length first last list string int float abs round
sort reverse|list unique|list tojson join join(',') default('D') default('D',true) min max sum
replace('o','0') indent indent(2) map('string')|list select|list reject('none')|list items|list
dictsort batch(2)|list tojson(indent=2) map(attribute='x')|list selectattr('x')|list
map('length')|list int(3) round(1) sort(reverse=true) trim('a') replace('','.')""".split()
TEXT_FILTERS = ["upper", "lower", "trim", "indent", "title", "replace('a', 'b')"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean",
         "mapping", "sequence", "iterable", "true", "false", "odd", "even", "divisibleby 2",
         "in [1,'a']", "eq 1", "ne 'a'", "lt 3", "gt 1", "lower", "upper", "sameas none",
         "callable"]
METHODS = """.upper() .lower() .strip() .split() .split('o') .split(' ',1) .rsplit('l',1) .title()
.capitalize() .replace('l','LL') .startswith('H') .endswith('d') .find('l') .count('l')
.items()|list .keys()|list .values()|list .get('x') .get('q',0) .isdigit() .isalpha()
.splitlines() .lstrip() .rstrip('d') .join(['a','b']) .index(1) .x .y .name [0] [-1]
['x']""".split()
SLICES = ["[1:]", "[:2]", "[::-1]", "[1:3]", "[-2:]", "[::2]"]
SEQUENCES = ["s", "e", "l", "w", "u", "ml", "people", "nested"]
ATOMS = ["a", "b", "f", "t", "n", "d", "missing", "1", "0", "-1", "2.5", "'a'", "'Hello'",
         "\"it's\"", "[]", "{}", "()", "[1, 2]", "{'x': 1}", "(1, 'a')", "true", "false", "none",
         "'  x '", "3", "'3'", "'2.5'", "[1, 'a', none]", "['b','a']", "range(3)|list",
         "dict(x=1)", "namespace(x=1).x", "a % 3", *NAMES, "strftime_now('%d %b %Y')"] + SEQUENCES
OPERATORS = ["+", "-", "*", "/", "//", "~", "==", "!=", "<", ">", "<=", ">=", "and", "or", "in",
             "not in"]
PIECES = ["a", " ", "\n", "  ", "\n\n", "x\n", "\t", "{# c #}", "{#- c -#}", "ü", "\r\n", "\u00a0"]


class Writer:
    """Writes templates; `random` decides."""

    def __init__(self, random):
        self.random = random

    def pick(self, *weighted):
        """One of (weight, function) pairs, called."""
        weights = [weight for weight, _ in weighted]
        return self.random.choices([make for _, make in weighted], weights)[0]()

    def among(self, *choices):
        return self.random.choice(choices)

    def expression(self, depth):
        def part():
            return f"({self.expression(depth - 1)})"

        def atom():
            return self.among(*ATOMS)
        if depth <= 0:
            return atom()
        return self.pick(
            (20, atom),
            (20, lambda: f"{part()} {self.among(*OPERATORS)} {part()}"),
            (20, lambda: f"{part()}|{self.among(*FILTERS)}"),
            (12, lambda: f"{part()}{self.among(*METHODS)}"),
            (5, lambda: f"{self.among(*SEQUENCES)}{self.among(*SLICES)}"),
            (8, lambda: f"{part()} is {self.among('', 'not ')}{self.among(*TESTS)}"),
            (5, lambda: f"{part()} if {part()} else {part()}"),
            (4, lambda: f"[{part()}, {part()}]"),
            (3, lambda: f"{{'k': {part()}, 'x': {part()}}}"),
            (2, lambda: f"not {part()}"),
            (1, lambda: f"-{part()}"))

    def tag(self, body):
        begin = self.among("{%", "{%", "{%-", "{%+")
        return f"{begin} {body} {self.among('%}', '%}', '-%}', '+%}')}"

    def text(self):
        return "".join(self.among(*PIECES) for _ in range(self.random.randrange(5)))

    def block(self, name, body, content):
        return self.tag(f"{name} {body}") + content + self.tag(f"end{name}")

    def branches(self, depth):
        content = self.statements(depth)
        if self.random.random() < .3:
            content += self.tag("elif " + self.expression(1)) + self.statements(depth)
        if self.random.random() < .5:
            content += self.tag("else") + self.statements(depth)
        return self.block("if", self.expression(2), content)

    def loop(self, depth):
        name = self.among(*NAMES)
        condition = " if " + self.expression(1) if self.random.random() < .2 else ""
        part = self.among("index", "last", "first", "revindex", "length", "previtem", "nextitem")
        content = f"{{{{ {name} }}}}{{{{ loop.{part} }}}}"
        if self.random.random() < .3:
            jump = self.tag(self.among("break", "continue"))
            content += self.block("if", self.expression(1), jump)
        content += self.statements(depth)
        if self.random.random() < .3:
            content += self.tag("else") + "E"
        return self.block("for", f"{name} in ({self.expression(1)}){condition}", content)

    def macro(self, depth):
        content = "{{ x }}{{ y }}" + self.statements(depth)
        made = self.block("macro", f"m(x, y={self.expression(1)})", content)
        return made + f"{{{{ m({self.expression(1)}) }}}}"

    def statement(self, depth):
        def printed():
            begin, end = self.among("{{", "{{-"), self.among("}}", "-}}")
            return f"{begin} {self.expression(self.random.randrange(3))} {end}"
        name = self.among(*NAMES)
        made = self.pick(
            (40, printed),
            (15 if depth > 0 else 0, lambda: self.branches(depth - 1)),
            (17 if depth > 0 else 0, lambda: self.loop(depth - 1)),
            (10, lambda: self.tag(f"set {name} = {self.expression(2)}")),
            (5 if depth > 0 else 0, lambda: self.block("set", name, self.statements(depth - 1))),
            (5 if depth > 0 else 0, lambda: self.macro(depth - 1)),
            (3 if depth > 0 else 0, lambda: self.block("with", f"x = {self.expression(1)}",
                                                       self.statements(depth - 1))),
            (2 if depth > 0 else 0, lambda: self.block("filter", self.among(*TEXT_FILTERS),
                                                       self.statements(depth - 1))),
            (1 if depth > 0 else 0, lambda: self.block("generation", "",
                                                       self.statements(depth - 1))),
            (2, lambda: self.block("raw", "", "{{ x }} ")))
        return self.text() + made + self.text()

    def statements(self, depth):
        return "".join(self.statement(depth) for _ in range(self.random.randrange(1, 4)))
