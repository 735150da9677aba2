#!/usr/bin/env python3
"""Chat templates rendered by libbanyan against transformers: recorded templates with random conversations, and random
template code.

    tools/chats_equal.py --library build/libbanyan.so --data ../shared/data [--conversations N] [--code N] [--seed S]

Every template of DATA/chat/templates renders N random conversations (Unicode, empty and missing contents, tool calls, with
and without system messages); text, spans of {% generation %} and messages of raise_exception must be equal, and what fails
there must fail here. --code N renders N random templates made of expressions, filters, methods and statements. Needs
transformers and jinja2 from PyPI. Prints what differs, and one line of counts. Exit status 1 when anything differs.
"""
import argparse
import ctypes
import glob
import json
import os
import random
import sys
import traceback

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


class Input(ctypes.Structure):
    _fields_ = [("messages", ctypes.c_char_p), ("messages_size", ctypes.c_size_t), ("tools", ctypes.c_char_p),
                ("documents", ctypes.c_char_p), ("variables", ctypes.c_char_p), ("add_generation_prompt", ctypes.c_bool),
                ("template_name", ctypes.c_char_p), ("now", ctypes.c_char_p), ("max_steps", ctypes.c_int64),
                ("max_bytes", ctypes.c_size_t)]


class Span(ctypes.Structure):
    _fields_ = [("start", ctypes.c_size_t), ("end", ctypes.c_size_t)]


class Text(ctypes.Structure):
    _fields_ = [("text", ctypes.POINTER(ctypes.c_char)), ("size", ctypes.c_size_t), ("spans", ctypes.POINTER(Span)),
                ("span_count", ctypes.c_size_t), ("exception", ctypes.c_char_p)]


class Banyan:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.by_chat_new.restype = ctypes.c_void_p
        self.lib.by_chat_new.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p]
        self.lib.by_chat_free.argtypes = [ctypes.c_void_p]
        self.lib.by_chat_render.argtypes = [ctypes.c_void_p, ctypes.POINTER(Input), ctypes.POINTER(Text)]
        self.lib.by_error_message.restype = ctypes.c_char_p

    def error(self):
        return self.lib.by_error_message().decode("utf-8", "replace")

    def open(self, template):
        source = template.encode()
        return self.lib.by_chat_new(source, len(source), b"template")

    def render(self, chat, case):
        """(text, spans, None), or (None, None, (message of raise_exception or None, message))."""
        def dump(value):
            return None if value is None else json.dumps(value).encode()
        messages, out = dump(case["messages"]), Text()
        given = Input(messages, len(messages), dump(case["tools"]), dump(case["documents"]), dump(case["kwargs"]),
                      case["prompt"], None, b"2026-01-05 09:07:03", 0, 0)
        status = self.lib.by_chat_render(chat, ctypes.byref(given), ctypes.byref(out))
        if status == 0:
            raw = ctypes.string_at(out.text, out.size)
            spans = [(len(raw[:s.start].decode()), len(raw[:s.end].decode())) for s in out.spans[:out.span_count]]
            result = raw.decode(), spans, None
        else:
            raised = out.exception.decode() if out.exception is not None else None
            result = None, None, (raised, self.error())
        self.lib.by_chat_text_free(ctypes.byref(out))
        return result


class Reference:
    def __init__(self):
        import datetime

        import jinja2
        from transformers.utils import chat_template_utils

        class Clock(datetime.datetime):
            @classmethod
            def now(cls, tz=None):
                return cls(2026, 1, 5, 9, 7, 3)

        chat_template_utils.datetime = Clock
        self.utils, self.jinja2 = chat_template_utils, jinja2

    def render(self, template, case):
        try:
            texts, spans = self.utils.render_jinja_template(
                [case["messages"]], tools=case["tools"], documents=case["documents"], chat_template=template,
                return_assistant_tokens_mask=True, add_generation_prompt=case["prompt"], **case["kwargs"])
            texts[0].encode()
            return texts[0], spans[0], None
        except Exception as error:
            raised = str(error) if type(error) is self.jinja2.exceptions.TemplateError else None
            return None, None, (raised, f"{type(error).__name__}: {error}")


def agree(here, there):
    if there[2] or here[2]:
        return bool(there[2]) == bool(here[2]) and (not there[2] or there[2][0] == here[2][0])
    # A block inside captured text may end after the text there.
    return here[0] == there[0] and [tuple(min(at, len(here[0])) for at in s) for s in there[1]] == here[1]


# ---- conversations ----------------------------------------------------------------------------------------------

PIECES = ["Hello", " ", "\n", "\n\n", "  two  ", "\t", "é", "日本語", "🤖", "👩\u200d🚀", "e\u0301", "\u00a0", "\u2028", "<think>",
          "</think>", "<|im_end|>", "</s>", "{{ 1 }}", "{% x %}", "'", '"', "\\", "\\n", "<b>&amp;</b>", "\x00", "\x1b", "ß",
          "[INST]", "/no_think", "/think", "<tool_response>", "</tool_response>", "%s", "a" * 70, "1.5", "None", "\r\n", "\x7f"]


def text(rng):
    return "".join(rng.choice(PIECES) for _ in range(rng.choice([0, 1, 1, 2, 3, 6])))


def number(rng):
    return rng.choice([0, 1, -3, 2.5, 1e20, 1e-7, 123456789012345678901234567890, True, False, None, -0.0, 1.0, 100000.0])


def value(rng, depth=0):
    kind = rng.random()
    if kind < 0.4 or depth > 3:
        return text(rng)
    if kind < 0.6:
        return number(rng)
    if kind < 0.8:
        return [value(rng, depth + 1) for _ in range(rng.randrange(3))]
    return {rng.choice(["a", "b", "items", "keys", "é", "type", "x y"]): value(rng, depth + 1) for _ in range(rng.randrange(4))}


def schema(rng, depth=0):
    kind = rng.choice(["string", "number", "integer", "boolean", "array", "object", ["string", "null"]])
    made = {"type": kind}
    if rng.random() < 0.7:
        made["description"] = text(rng)
    if rng.random() < 0.2:
        made["enum"] = [text(rng) for _ in range(rng.randrange(1, 3))]
    if rng.random() < 0.2:
        made["default"] = value(rng, 3)
    if kind == "array" and depth < 3 and rng.random() < 0.8:
        made["items"] = schema(rng, depth + 1)
    if kind == "object" and depth < 3:
        made["properties"] = {rng.choice(["city", "unit", "n", "naïve"]): schema(rng, depth + 1) for _ in range(rng.randrange(3))}
        if rng.random() < 0.5:
            made["required"] = list(made["properties"])[:1]
    if rng.random() < 0.1:
        made["oneOf"] = [schema(rng, depth + 2)]
    return made


def tool(rng):
    made = {"type": "function", "function": {"name": rng.choice(["get_weather", "calc", "f"]), "description": text(rng)}}
    if rng.random() < 0.9:
        made["function"]["parameters"] = {"type": "object", "properties": {
            rng.choice(["city", "days", "opts", "x"]): schema(rng) for _ in range(rng.randrange(4))}}
        if rng.random() < 0.7:
            made["function"]["parameters"]["required"] = ["city"]
    if rng.random() < 0.2:
        made["function"]["return"] = schema(rng)
    return made


def call(rng):
    arguments = {rng.choice(["city", "days", "x"]): value(rng, 1) for _ in range(rng.randrange(3))}
    made = {"id": rng.choice(["call00001", "abcdefghi", "x"]), "type": "function", "function": {
        "name": rng.choice(["get_weather", "calc"]), "arguments": json.dumps(arguments) if rng.random() < 0.2 else arguments}}
    return made if rng.random() < 0.9 else made["function"]


def content(rng):
    kind = rng.random()
    if kind < 0.85:
        return text(rng)
    if kind < 0.93:
        return [{"type": rng.choice(["text", "text", "image"]), "text": text(rng)} for _ in range(rng.randrange(3))]
    return rng.choice([None, 3, {"text": "x"}])


def conversation(rng):
    messages = []
    if rng.random() < 0.5:
        messages.append({"role": rng.choice(["system", "system", "developer"]), "content": content(rng)})
    orderly = rng.random() < 0.7
    for turn in range(rng.randrange(6)):
        role = ["user", "assistant"][turn % 2] if orderly else rng.choice(["user", "assistant", "tool", "system", "critic"])
        message = {"role": role, "content": content(rng)}
        if rng.random() < 0.02:
            del message["content"]
        if role == "assistant" and rng.random() < 0.3:
            message["tool_calls"] = [call(rng) for _ in range(rng.randrange(1, 3))]
        if role == "assistant" and rng.random() < 0.2:
            message[rng.choice(["reasoning_content", "thinking", "reasoning"])] = text(rng)
        messages.append(message)
        if message.get("tool_calls") and rng.random() < 0.8:
            for made in message["tool_calls"]:
                messages.append({"role": "tool", "name": "calc", "tool_call_id": made.get("id", "x"), "content": content(rng)})
    kwargs = {}
    for name, choices in (("enable_thinking", [True, False]), ("thinking", [True, False]), ("reasoning_effort", ["low", "high"]),
                          ("date_string", ["1 Feb 2030"]), ("tools_in_user_message", [True, False]), ("thinking_budget", [0, 512]),
                          ("bos_token", ["<s>"]), ("eos_token", ["</s>"]), ("keep_past_thinking", [True, False])):
        if rng.random() < (0.9 if name.endswith("_token") else 0.15):
            kwargs[name] = rng.choice(choices)
    return {"messages": messages, "tools": rng.choice([None, None, [tool(rng) for _ in range(rng.randrange(3))]]),
            "documents": [{"title": text(rng), "text": text(rng)}] if rng.random() < 0.1 else None, "kwargs": kwargs,
            "prompt": rng.random() < 0.5}


# ---- code ---------------------------------------------------------------------------------------------------------

NAMES = ["messages", "tools", "m", "d", "l", "s", "n", "f", "u", "e", "none_here", "loop", "range(3)", "t", "ns"]
FILTERS = ["trim", "upper", "lower", "title", "capitalize", "length", "string", "safe", "tojson", "list", "first", "last", "sort",
           "join", "join(', ')", "join(1)", "items", "dictsort", "default('x')", "default('x', true)", "d", "int", "float", "abs",
           "round", "round(1)", "round(2, 'floor')", "reverse", "unique|list", "map('upper')|list", "map(attribute='a')|list",
           "map(attribute='a', default=1)|list", "select|list", "reject|list", "selectattr('a')|list", "rejectattr('a')|list",
           "selectattr('a', 'defined')|list", "selectattr('role', 'equalto', 'user')|list", "select('string')|list",
           "select('in', [1, 'a'])|list", "sum", "min", "max", "count", "replace('a', 'b')", "replace('', '-', 2)", "indent",
           "indent(2, true)", "indent('> ', blank=true)", "tojson(indent=2)", "tojson(ensure_ascii=true)", "tojson(indent='--')",
           "tojson(sort_keys=true)", "tojson(separators=(',', ':'))", "truncate(5)", "truncate(9, true, '..')", "batch(2)|list",
           "slice(2)|list", "slice(3, 'f')|list", "center(9)", "wordcount", "e", "forceescape", "attr('upper')", "sort(reverse=true)",
           "sort(attribute='a')", "sort(case_sensitive=true)", "dictsort(by='value')", "dictsort(reverse=true)", "trim('ab ')",
           "format(1, 2)", "int(7)", "int(base=16)", "float(1.5)", "nothing", "items|list", "tojson|safe", "string|length"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "sequence", "iterable", "number", "integer", "float", "boolean", "true",
         "false", "odd", "even", "divisibleby(2)", "divisibleby 3", "in [1, 'a']", "sameas none", "eq(1)", "ne 'a'", "gt 0", "lt(3)",
         "callable", "upper", "lower", "escaped", "filter", "not defined", "not none", "not string"]
METHODS = ["strip()", "lstrip('a ')", "rstrip()", "split()", "split('a')", "split(' ', 1)", "split(maxsplit=1)", "rsplit('a', 1)",
           "rsplit(None, 1)", "upper()", "lower()", "title()", "capitalize()", "swapcase()", "replace('a', 'b')", "replace('', '.', 3)",
           "startswith('a')", "endswith(('b', 'c'))", "startswith('b', 1)", "find('b')", "rfind('a')", "index('a')", "count('a')",
           "join(['x', 'y'])", "splitlines()", "splitlines(true)", "partition('a')", "rpartition('a')", "zfill(8)", "ljust(8, '*')",
           "rjust(8)", "center(9, '-')", "isdigit()", "isalpha()", "isalnum()", "isspace()", "isupper()", "islower()", "isnumeric()",
           "isdecimal()", "isascii()", "removeprefix('a')", "removesuffix('b')", "format(1, a=2)", "items()", "keys()", "values()",
           "get('a')", "get('zz', 5)", "get('a').b", "copy()", "index(1)", "count(1)", "items", "keys", "nothing", "nothing()", "append(1)",
           "a", "b", "a.b", "0", "__class__", "find('b', 1, 3)", "count('')", "real", "values()|list"]
STRINGS = ["'a'", "'abc aBc'", "' x '", "''", "'%s-%d'", "'{}{0}'", "'é日🤖ß'", "'12'", "' 3.5 '", "'<b>&'", "'a\\n\\nb\\tc'", "\"it's\"",
           "'\\u00e9\\x41\\\\'", "'%5.2f|%-4s|'", "'{:>5}|{:05d}'", "'ǆ ŉ ﬁ İ Σς ΑΣ'", "'\\x1f a\\u2028b'", "'0x1f'", "'1_000'"]
OTHERS = ["1", "0", "-2", "2.5", "1e3", "1e-7", "100000000000000000.0", "true", "false", "none", "[]", "[1, 2, 3]", "['b', 'a', 'B']",
          "{}", "{'a': 1, 'b': [2]}", "{1: 2, 'x': none}", "(1,)", "()", "('a', 2)", "[{'a': 1}, {'a': none}, {'b': 2}]", "[[1], [2, 3]]",
          "range(5)", "range(5, 0, -2)", "dict(a=1)", "namespace(a=1)", "[1, 'a', none, 2.5]", "{'b': 'x', 'A': 'Y', 'c': 'z'}",
          "1_000", "0x1f", "[3, 1, 2]", "[true, false]", "0.1", "[1, [2, ['x', {'y': \"q'\"}]]]"]
SLICES = ["[0]", "[-1]", "[1:]", "[:2]", "[::-1]", "[::2]", "[-2:]", "[5]", "['a']", "['items']", "[1:3]", "[:-1]", "[none:]", "[3:0:-1]", "['b'][0]"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "and", "or", "==", "!=", "<", ">", "<=", ">=", "in", "not in", "**"]


def expression(rng, depth=0):
    kind = rng.random()
    if depth > 3 or kind < 0.3:
        return rng.choice(rng.choice([STRINGS, STRINGS, OTHERS, OTHERS, NAMES]))
    inner = expression(rng, depth + 1)
    if kind < 0.45:
        return f"({inner})|{rng.choice(FILTERS)}"
    if kind < 0.55:
        return f"({inner}) is {rng.choice(TESTS)}"
    if kind < 0.7:
        return f"({inner}).{rng.choice(METHODS)}"
    if kind < 0.78:
        return f"({inner}){rng.choice(SLICES)}"
    if kind < 0.93:
        return f"({inner}) {rng.choice(BINARY)} ({expression(rng, depth + 1)})"
    if kind < 0.97:
        return f"({inner}) if ({expression(rng, depth + 1)}) else ({expression(rng, depth + 1)})"
    return rng.choice([f"not ({inner})", f"-({inner})", f"[{inner}, {inner}]", f"({inner}) if none"])


def space(rng):
    return rng.choice(["", "", "", " ", "\n", "\n  ", "  \n", "text", " x\n"])


def statement(rng, depth=0):
    def body():
        return "".join(statement(rng, depth + 1) for _ in range(rng.randrange(1, 3)))
    left, right = rng.choice(["{%", "{%", "{%-", "{%+"]), rng.choice(["%}", "%}", "-%}", "+%}"])

    def tag(inside):
        return f"{space(rng)}{left} {inside} {right}{space(rng)}"
    kind = rng.random()
    e = expression(rng, 1)
    if depth > 3 or kind < 0.4:
        return f"{space(rng)}{rng.choice(['{{', '{{-'])} {e} {rng.choice(['}}', '-}}'])}{space(rng)}"
    if kind < 0.5:
        return tag(f"if {e}") + body() + (tag(f"elif {expression(rng, 2)}") + body() if rng.random() < 0.4 else "") + \
            (tag("else") + body() if rng.random() < 0.5 else "") + tag("endif")
    if kind < 0.65:
        target = rng.choice(["m", "m", "k, v", "x"])
        over = rng.choice(["[1, 2, 3]", "'ab'", "messages", "d", "d.items()", "d|items", "range(3)", "[]", e, "[1, 2, 3]|select('odd')"])
        test = rng.choice(["", "", "", f" if {expression(rng, 2)}", " if loop is undefined", " if m"])
        inside = rng.choice(["", "{{ loop.index }}", "{{ loop.last }}{{ loop.length }}", "{{ loop.previtem }}{{ loop.nextitem }}",
                             "{% if loop.first %}{% continue %}{% endif %}", "{% if loop.index > 1 %}{% break %}{% endif %}",
                             "{{ loop.revindex0 }}{{ loop.cycle('a', 'b') }}{{ loop.changed(m) }}"])
        return tag(f"for {target} in {over}{test}") + inside + body() + (tag("else") + body() if rng.random() < 0.3 else "") + tag("endfor")
    if kind < 0.78:
        target = rng.choice(["s", "n", "m", "ns.a", "a, b", "u"])
        return tag(f"set {target} = {e}") if rng.random() < 0.8 else tag(f"set {target}{rng.choice(['', '|upper', '|trim|length'])}") + body() + tag("endset")
    if kind < 0.86:
        name = rng.choice(["mac", "mic"])
        made = tag(f"macro {name}(p, q={expression(rng, 2)})") + "{{ p }}{{ q }}" + rng.choice(["", "{{ caller() }}", "{{ varargs }}{{ kwargs }}"]) + body() + tag("endmacro")
        use = rng.choice(["mac(1)", "mic(q=2, p=3)", "mac()", "mac(1, 2, 3)", "mac('<b>'|safe) + '<'"])
        return made + (f"{{{{ {use} }}}}" if rng.random() < 0.8 else tag("call " + name + "(1)") + body() + tag("endcall"))
    if kind < 0.9:
        return tag("with s = 5, w = s") + "{{ w }}" + body() + tag("endwith")
    if kind < 0.93:
        return tag("filter " + rng.choice(["upper", "trim|title", "replace('a', 'b')"])) + body() + tag("endfilter")
    if kind < 0.96:
        return tag("generation") + body() + tag("endgeneration")
    return rng.choice(["{# c #}", "{#- c -#}", "\n  {# c #}\n", "{% raw %} {{ x }} {% endraw %}", "{%- raw -%} {% x %}\n{%- endraw %}\n",
                       "{{ raise_exception('no ' ~ n) }}" if rng.random() < 0.1 else "{{ strftime_now('%d %b %Y %H:%M') }}"])


VARIABLES = {"d": {"a": 1, "b": {"c": "x"}, "items": 2}, "l": ["b", "a", 3], "s": "some Text é", "n": 3, "f": 2.5, "e": "", "t": True}


def code(rng):
    source = "{% set ns = namespace(a=0) %}" if rng.random() < 0.5 else ""
    source += "".join(statement(rng) for _ in range(rng.randrange(1, 4)))
    source += rng.choice(["", "\n", "\n\n", "\r\n"])
    return source, {"messages": [{"role": "user", "content": "hi", "a": 2}, {"role": "assistant", "content": None}], "tools": None,
                    "documents": None, "kwargs": VARIABLES, "prompt": True}


# ---- all ------------------------------------------------------------------------------------------------------------

def check(banyan, reference, template, case, label, chat=None):
    own = chat is None
    chat = banyan.open(template) if own else chat
    here = banyan.render(chat, case) if chat else (None, None, (None, banyan.error()))
    there = reference.render(template, case)
    if own and chat:
        banyan.lib.by_chat_free(chat)
    if agree(here, there):
        return True
    print(f"--- {label}\nhere:  {here!r}\nthere: {there!r}")
    if own:
        print(f"template: {template!r}")
    else:
        print("case:", json.dumps(case)[:3000])
    return False


# What prints an address there, or is documented as not supported here.
NOT_COMPARED = ("0x7f", "0X7F", " object at ", "<generator", "<built-in", "<bound method", "not supported", "beyond 64 bits",
                # the reference folds constants otherwise than it computes
                "cannot be sliced",
                # here only when they are used
                "No filter named", "No test named")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--library", default="build/libbanyan.so")
    p.add_argument("--data", default="../shared/data")
    p.add_argument("--conversations", type=int, default=50)
    p.add_argument("--code", type=int, default=1000)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    banyan, reference = Banyan(args.library), Reference()
    compared = different = skipped = 0
    for path in sorted(glob.glob(f"{args.data}/chat/templates/*.jinja")):
        template = open(path, encoding="utf-8", newline="").read()
        chat = banyan.open(template)
        for i in range(args.conversations):
            rng = random.Random(f"{args.seed} {path} {i}")
            compared += 1
            different += not check(banyan, reference, template, conversation(rng), f"{os.path.basename(path)} {i}", chat)
        banyan.lib.by_chat_free(chat)
    for i in range(args.code):
        template, case = code(random.Random(f"{args.seed} code {i}"))
        there = reference.render(template, case)
        chat = banyan.open(template)
        here = banyan.render(chat, case) if chat else (None, None, (None, banyan.error()))
        if chat:
            banyan.lib.by_chat_free(chat)
        if any(mark in str(there) or mark in str(here[2]) for mark in NOT_COMPARED):
            skipped += 1
            continue
        compared += 1
        if not agree(here, there):
            different += 1
            print(f"--- code {i}: {template!r}\nhere:  {here!r}\nthere: {there!r}")
    print(f"{compared} compared, {different} different, {skipped} not compared")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
