#!/usr/bin/env python3
"""Collects every refusal of a device's commands from its sources and writes them as a C++ table.

    tools/refusal_table.py --layouts src/spec/connectx --commands src/connectx/command/command_list.inc \\
        --folder src --output refusals.inc src/connectx/*/*.cc ...

A refusal is a call `refuse(Status::BAD_RESOURCE, section, "words")`. The words are a literal; the section
is a literal too, a constant, the kSection of a structure, or a parameter, whose values are those of the callers.
Words in a table, and words of the transport, are found where they are assigned.
The number that a driver sees is the hash of section and words, so `softhca explain` can find the words for a number.
A refusal that cannot be resolved is an error, so that each refusal has its line in the table. Two refusals with one
number are an error too.
"""
import argparse
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cpp_source import Problem, Source, literal, read_calls, split  # noqa: E402


def read_members(tokens, members):
    """Texts assigned to members: `.wrong_state = "..."` in a table."""
    def note(name, tokens, at):
        end = at
        while end < len(tokens) and tokens[end][0] == "string":
            end += 1
        if end > at:
            members.setdefault(name, set()).add(literal(tokens[at:end]))

    for i, (kind, text, _) in enumerate(tokens[:-3]):
        if text == "." and tokens[i + 1][0] == "name" and tokens[i + 2][1] == "=":
            note(tokens[i + 1][1], tokens, i + 3)


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
            read_members(source.tokens, self.members)
        self.callers = {}
        for function in self.functions:
            for call in function.calls:
                for callee in self.callees(function, call):
                    self.callers.setdefault(callee, []).append((function, call))

    def callees(self, function, call):
        """The functions that a call may mean: in its file, of the object it is called on, or the only ones of that name."""
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
        """Each (section, words, function) that a refusal can be: the function is the one that contains the two texts
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
            # Constants of the function itself are resolved here, where they are in scope.
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
        """Every text that an expression can evaluate to."""
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
        """The commands whose handlers reach this function."""
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
