"""Python's jinja2 with the settings of transformers (transformers/utils/chat_template_utils.py).
Importing this ends the test where jinja2 is not installed (skips.py)."""
import copy
import datetime
import json
import os
import sys
from pathlib import Path

import skips

try:
    import jinja2
except ImportError:
    own = Path("/usr/bin/python3")  # Debian's, which has the package; PATH may lead to another
    if own.exists() and Path(sys.executable) != own:
        os.execv(own, [str(own), *sys.argv])
    skips.lacks("Python's jinja2", "python3-jinja2")
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    """{% generation %}: the text between the tags, in a scope of its own."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("call_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def call_body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment(now_s):
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                         extensions=[Generation, jinja2.ext.loopcontrols])
    now = datetime.datetime.fromtimestamp(now_s, datetime.timezone.utc)
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = now.strftime
    return made


class Reference:
    """Templates, each compiled once."""

    def __init__(self, now_s):
        self.environment = environment(now_s)
        self.compiled = {}

    def answer(self, template, values):
        """{"text": ...}, or {"refused": ..., "when": ...} whatever Python raises."""
        when = "read"
        try:
            if template not in self.compiled:
                self.compiled[template] = self.environment.from_string(template)
            when = "rendered"
            text = self.compiled[template].render(**copy.deepcopy(values))
            text.encode("utf-8")
            return {"text": text}
        except Exception as error:  # pylint: disable=broad-except
            return {"refused": f"{type(error).__name__}: {error}", "when": when}
