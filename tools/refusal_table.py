#!/usr/bin/env python3
"""Collects every refusal of a device's commands from its sources and writes them as a C++ table.

    tools/refusal_table.py --layouts src/spec/connectx --commands src/connectx/command/command_list.inc \\
        --folder src --output refusals.inc src/connectx/*/*.cc ...

A refusal is a call `refuse(Status::BAD_RESOURCE, section, "words")`. The words are a literal; the section
is one too, a constant, the kSection of a structure, or a parameter, whose values are those that callers give.
Words that stand in a table, or that the transport gives, are found where they are assigned.
The number that a driver sees is the hash of section and words, so `softhca explain` can tell from a number what
stood here. What cannot be resolved is an error: no refusal is without its line in the table. So are two refusals
with one number.

It reads C++ as this project writes it, not C++.
"""
import argparse
import pathlib
import re
import sys

TOKEN = re.compile(r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<raw>R"\((?:.*?)\)")
  | (?P<string>"(?:\\.|[^"\\])*")
  | (?P<char>'(?:\\.|[^'\\])')
  | (?P<preprocessor>^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<number>\d[\w.']*)
  | (?P<punctuation>::|->|\S)
""", re.X | re.S | re.M)

OPEN, CLOSE = "([{", ")]}"


class Problem(Exception):
    pass


class Function:
    def __init__(self, file, name, returns, parameters, body):
        self.file = file              # path
        self.name = name              # as it is defined: write_context, PortRegisters::pmtu
        self.returns = returns        # the words before the name
        self.parameters = parameters  # names, in order
        self.body = body              # tokens
        self.calls = []               # (name, what it is called on or "", arguments)

    @property
    def base(self):
        return self.name.rsplit("::", 1)[-1]

    @property
    def owner(self):
        return self.name.rsplit("::", 1)[0] if "::" in self.name else ""


def tokens_of(text):
    """(kind, text, line), without comments and preprocessor lines."""
    out = []
    for match in TOKEN.finditer(text):
        if match.lastgroup not in ("comment", "preprocessor"):
            out.append((match.lastgroup, match[0], text.count("\n", 0, match.start()) + 1))
    return out


def closing(tokens, at):
    """The place of the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(tokens)):
        if tokens[i][0] == "punctuation":
            if tokens[i][1] in OPEN:
                depth += 1
            elif tokens[i][1] in CLOSE:
                depth -= 1
                if depth == 0:
                    return i
    raise Problem(f"line {tokens[at][2]}: nothing closes this {tokens[at][1]}")


def split(tokens, separator=","):
    """At separators outside of brackets. Template arguments of our sources have no commas in calls."""
    parts, depth = [[]], 0
    for token in tokens:
        if token[0] == "punctuation" and token[1] in OPEN:
            depth += 1
        elif token[0] == "punctuation" and token[1] in CLOSE:
            depth -= 1
        if depth == 0 and token[1] == separator and token[0] == "punctuation":
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def literal(tokens):
    """The text of adjacent string literals, or None."""
    if tokens and all(kind == "string" for kind, _, _ in tokens):
        return "".join(re.sub(r"\\(.)", r"\1", text[1:-1]) for _, text, _ in tokens)
    return None


class Source:
    """The functions and constants of one file."""

    def __init__(self, path):
        self.path = path
        self.functions = []
        self.constants = {}
        self.tokens = tokens_of(path.read_text())
        self.read_scope(self.tokens, "")

    def read_scope(self, tokens, owner):
        begin, i = 0, 0
        while i < len(tokens):
            text = tokens[i][1] if tokens[i][0] == "punctuation" else ""
            if text in ("(", "["):
                i = closing(tokens, i) + 1
            elif text == "{":
                i = self.read_block(tokens, begin, i, owner)
                begin = i
            elif text in (";", "}"):
                self.note_constant(tokens[begin:i], self.constants)
                i += 1
                begin = i
            else:
                i += 1

    def read_block(self, tokens, begin, at, owner):
        """A `{` at namespace or class scope. Returns the place after it and its end."""
        head, end = tokens[begin:at], closing(tokens, at)
        words = [text for _, text, _ in head]
        if "namespace" in words or words[:1] == ["extern"]:
            self.read_scope(tokens[at + 1:end], owner)
            return end + 1
        paren = next((i for i, t in enumerate(head) if t[1] == "("), None)
        kind = next((w for w in words if w in ("class", "struct", "enum", "union")), None)
        if kind and paren is None:
            names = [t for k, t, _ in head if k == "name" and t not in (kind, "final", "public", "private")]
            where = words.index(kind) + 1
            name = next((t for k, t, _ in head[where:] if k == "name" and t != "final"), "")
            self.read_scope(tokens[at + 1:end], name or owner or (names or [""])[0])
            return end + 1
        if paren is None or "=" in words[:paren]:
            # An initializer: the statement goes on to its semicolon.
            i = end + 1
            while i < len(tokens) and tokens[i][1] != ";":
                i += 1
            self.note_constant(tokens[begin:i], self.constants)
            return i + 1
        close = closing(head, paren)
        if any(t[1] == ":" for t in head[close:]) and tokens[at - 1][0] == "name":
            # A member initializer in braces: the body is further on.
            i = end + 1
            while i < len(tokens) and not (tokens[i][1] == "{" and tokens[i - 1][1] in (")", "}")):
                i += 1
            at, end = i, closing(tokens, i)
        name, i = "", paren - 1
        while i >= 0 and (head[i][0] == "name" or head[i][1] in ("::", "~")):
            if head[i][0] == "name" and i + 1 < paren and head[i + 1][0] == "name":
                break
            name = head[i][1] + name
            i -= 1
        parameters = []
        for part in split(head[paren + 1:close]):
            part = split(part, "=")[0]
            names = [text for kind, text, _ in part if kind == "name"]
            parameters.append(names[-1] if names else "")
        if owner and "::" not in name:
            name = f"{owner}::{name}"
        returns = [text for _, text, _ in head[:i + 1]]
        self.functions.append(Function(self.path, name, returns, parameters, tokens[at + 1:end]))
        return end + 1

    @staticmethod
    def note_constant(tokens, constants):
        """`constexpr std::string_view kName = ...`."""
        words = [text for _, text, _ in tokens]
        if "string_view" in words and "=" in words:
            at = words.index("=")
            constants[words[at - 1]] = tokens[at + 1:]


def read_calls(function):
    """Every `name(arguments)` and every `&Owner::name` of the body, and its local constants."""
    tokens, function.constants, function.aliases = function.body, {}, {}
    statement = 0
    for i, (kind, text, _) in enumerate(tokens):
        if kind == "punctuation" and text in ";{}":
            Source.note_constant(tokens[statement:i], function.constants)
            words = [t[1] for t in tokens[statement:i]]
            if words[:1] == ["using"] and "=" in words:
                function.aliases[words[1]] = words[-1]
            statement = i + 1
        if kind != "name" or i + 1 == len(tokens):
            continue
        after = i + 1
        if tokens[after][1] == "<":  # template arguments, unless it is a comparison
            j = after
            while j < len(tokens) and tokens[j][1] not in (">", ";", "(", "{"):
                j += 1
            if j < len(tokens) and tokens[j][1] == ">":
                after = j + 1
        before = tokens[i - 1][1] if i else ""
        receiver = ""
        if before in (".", "->", "::"):
            j = i - 2
            if j >= 0 and tokens[j][1] == ")":
                depth = 1
                while j > 0 and depth:
                    j -= 1
                    depth += (tokens[j][1] == ")") - (tokens[j][1] == "(")
                j -= 1
            receiver = tokens[j][1] if j >= 0 else ""
        if after < len(tokens) and tokens[after][1] == "(":
            arguments = split(tokens[after + 1:closing(tokens, after)])
            function.calls.append((text, receiver, arguments))
        elif before == "::" and i >= 3 and tokens[i - 3][1] == "&":
            function.calls.append((text, receiver, []))


def read_members(functions, tokens, members):
    """Texts that members are given: `.wrong_state = "..."` in a table, and `return {"..."};` of a function that
    returns a Refusal of the transport, whose only member is its reason."""
    def note(name, tokens, at):
        end = at
        while end < len(tokens) and tokens[end][0] == "string":
            end += 1
        if end > at:
            members.setdefault(name, set()).add(literal(tokens[at:end]))

    for i, (kind, text, _) in enumerate(tokens[:-3]):
        if text == "." and tokens[i + 1][0] == "name" and tokens[i + 2][1] == "=":
            note(tokens[i + 1][1], tokens, i + 3)
    for function in functions:
        if "Refusal" in function.returns:
            for i, (_, text, _) in enumerate(function.body[:-2]):
                if text == "return" and function.body[i + 1][1] == "{":
                    note("reason", function.body, i + 2)


def sections_of_layouts(folder):
    sections = {}
    for path in sorted(folder.glob("*.layout")):
        for match in re.finditer(r'^struct (\w+) \S+ "([^"]*)"', path.read_text(), re.M):
            sections[match[1]] = match[2]
    return sections


def squeeze(name):
    return name.replace("_", "").lower().rstrip("s")


class Program:
    def __init__(self, paths, layouts):
        self.sources = [Source(path) for path in paths]
        self.layouts = layouts
        self.functions = [f for source in self.sources for f in source.functions]
        self.by_base = {}
        self.file_of = {source.path: source for source in self.sources}
        for function in self.functions:
            self.by_base.setdefault(function.base, []).append(function)
        for function in self.functions:
            read_calls(function)
        self.members = {}
        for source in self.sources:
            read_members(source.functions, source.tokens, self.members)
        self.callers = {}
        for function in self.functions:
            for call in function.calls:
                for callee in self.callees(function, call):
                    self.callers.setdefault(callee, []).append((function, call))

    def callees(self, function, call):
        """The functions that a call may mean: in its file, or of what it is called on, or the only ones."""
        name, receiver, _ = call
        found = self.by_base.get(name, [])
        if receiver and receiver not in ("this",):
            owned = [f for f in found if f.owner and squeeze(f.owner).endswith(squeeze(receiver))]
            if owned:
                return owned
            found = [f for f in found if f.owner]
        else:
            here = [f for f in found if f.file == function.file and (not f.owner or f.owner == function.owner)]
            if here:
                return here
            found = [f for f in found if not f.owner or f.owner == function.owner]
        return found if len({f.name for f in found}) == 1 else []

    def variants(self, function, section, words, seen=()):
        """Each (section, words, function) that a refusal can be: the function is the one whose own the two texts
        are, which is a caller where they are given as parameters."""
        names = {t[0][1] for t in (section, words) if len(t) == 1 and t[0][1] in function.parameters}
        if not names:
            for text in self.values(words, function):
                for place in self.values(section, function):
                    yield place, text, function
            return
        if function in seen:
            return
        calls = [(caller, arguments) for caller, (_, _, arguments) in self.callers.get(function, [])
                 if len(arguments) == len(function.parameters)]
        if not calls:
            raise Problem(f"{function.file}: {function.name}: nobody gives {' and '.join(sorted(names))}")
        for caller, arguments in calls:
            given = dict(zip(function.parameters, arguments))
            # What is the function's own is looked up here, where its constants are known.
            if len(names) == 2 or (len(section) == 1 and section[0][1] in names):
                places = [given[section[0][1]]]
            else:
                places = [[("string", quote(p), 0)] for p in self.values(section, function)]
            if len(names) == 2 or (len(words) == 1 and words[0][1] in names):
                texts = [given[words[0][1]]]
            else:
                texts = [[("string", quote(w), 0)] for w in self.values(words, function)]
            for place in places:
                for text in texts:
                    yield from self.variants(caller, place, text, (*seen, function))

    def values(self, tokens, function):
        """Every text that an expression can be."""
        text = literal(tokens)
        if text is not None:
            return {text}
        question = [i for i, t in enumerate(tokens) if t[1] == "?"]
        if question:
            one, other = split(tokens[question[0] + 1:], ":")
            return self.values(one, function) | self.values(other, function)
        words = [t[1] for t in tokens]
        if len(words) >= 3 and words[-2:] == ["::", "kSection"]:
            struct = function.aliases.get(words[-3], words[-3])
            if struct in self.layouts:
                return {self.layouts[struct]}
        if len(words) == 3 and words[1] == "." and words[2] in self.members:
            return self.members[words[2]]
        if len(words) == 1:
            name = words[0]
            for constants in (function.constants, self.file_of[function.file].constants):
                if name in constants:
                    return self.values(constants[name], function)
            everywhere = [s.constants[name] for s in self.sources if name in s.constants]
            if len(everywhere) == 1:
                return self.values(everywhere[0], function)
        raise Problem(f"{function.file}: {function.name}: what is {' '.join(words)}?")

    def handlers_of(self, function, handlers):
        """The commands whose handlers come here."""
        found, todo, seen = set(), [function], {function}
        while todo:
            here = todo.pop()
            if here.name in handlers:
                found.add(handlers[here.name])
            for caller, _ in self.callers.get(here, []):
                if caller not in seen:
                    seen.add(caller)
                    todo.append(caller)
        return found


def hash_of(section, words):
    value = 2166136261
    for byte in (section + words).encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value | 1


def commands_of(path):
    """Handler to opcode, and section to opcodes."""
    handlers, sections = {}, {}
    for match in re.finditer(r'^(?:DONE|PARTLY)\((\w+), (\w+), (?:"([^"]*)"|\w+)', path.read_text(), re.M):
        handlers[match[2]] = match[1]
        if match[3]:
            sections.setdefault(match[3], set()).add(match[1])
    return handlers, sections


def collect(program, handlers, sections, folder):
    """(number, status, section, words, commands, where) of every refusal; problems."""
    rows, problems = {}, []
    for function in program.functions:
        for name, receiver, arguments in function.calls:
            if name != "refuse":
                continue
            status = "".join(t[1] for t in arguments[0]) if len(arguments) == 3 else ""
            if not re.fullmatch(r"(\w+::)*(Status|command_status)::\w+", status):
                problems.append(f"{function.file}: {function.name}: not refuse(Status::NAME, section, words)")
                continue
            try:
                found = list(program.variants(function, arguments[1], arguments[2]))
            except Problem as problem:
                problems.append(str(problem))
                continue
            for section, text, origin in found:
                key = (hash_of(section, text), status.rsplit("::", 1)[-1], section, text)
                commands, where = rows.setdefault(key, (set(), set()))
                commands |= sections.get(section) or program.handlers_of(origin, handlers)
                where.add(str(function.file.relative_to(folder)))
    numbers = {}
    for number, *rest in rows:
        if number in numbers and numbers[number] != rest:
            problems.append(f"{number:#010x} is the number of {numbers[number]} and of {rest}")
        numbers[number] = rest
    return [(*key, *value) for key, value in sorted(rows.items())], problems


def quote(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layouts", type=pathlib.Path, required=True)
    parser.add_argument("--commands", type=pathlib.Path, required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="where the sources' names begin")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("sources", type=pathlib.Path, nargs="+")
    args = parser.parse_args()
    handlers, sections = commands_of(args.commands)
    program = Program(args.sources, sections_of_layouts(args.layouts))
    rows, problems = collect(program, handlers, sections, args.folder)
    if problems:
        sys.exit("\n".join(problems))
    lines = ["// Generated by tools/refusal_table.py: number, status, section, words, commands, sources."]
    for number, status, section, text, commands, where in rows:
        lines.append(f"{{{number:#010x}, Status::{status}, {quote(section)}, {quote(text)}, "
                     f"{quote(' '.join(sorted(commands)))}, {quote(' '.join(sorted(where)))}}},")
    text = "\n".join(lines) + "\n"
    if not args.output.exists() or args.output.read_text() != text:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(text)


if __name__ == "__main__":
    main()
