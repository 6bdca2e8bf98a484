"""Counts what a class consists of: a rule of tools/tidy.py.

A class that has one subject fits on a screen or two. A class may have 40 member functions and 20 data members, and its
functions may be defined in two .cc files. tools/wide_classes.txt lists those that are wider today, with their numbers: a class
that grows is a problem, and one that shrinks leaves a note.
"""
import collections
import pathlib
import re

from cpp_source import Problem, closing, source_of

LIST = "tools/wide_classes.txt"
FUNCTIONS_MAX, DATA_MAX, FILES_MAX = 40, 20, 2
ACCESS = ("public", "private", "protected", ":")
# Statements that declare no member.
OTHERS = ("using", "friend", "static_assert", "typedef", "enum", "class", "struct", "union")

Size = collections.namedtuple("Size", "functions data files")
MAX = Size(FUNCTIONS_MAX, DATA_MAX, FILES_MAX)


def words_of(tokens):
    words = [text for _, text, _ in tokens]
    while words and words[0] in ACCESS:
        words = words[1:]
    return words


def is_type(words):
    return "(" not in words and any(word in ("class", "struct", "union", "enum") for word in words[:3])


def is_function(words):
    """Whether a declaration has a parameter list: a `(` outside of template arguments, before any initializer."""
    depth = 0
    for word in words:
        depth += (word == "<") - (word == ">")
        if word == "(" and depth <= 0:
            return words[-1] != "delete"
        if word in ("=", "{"):
            return False
    return False


def end_of_body(tokens, head, at):
    """The closing brace of a function whose first brace is `at`: that may belong to a member initializer."""
    end = closing(tokens, at)
    parameters = next(i for i, token in enumerate(head) if token[1] == "(")
    has_initializers = any(token[1] == ":" for token in head[closing(head, parameters):])
    if not has_initializers or tokens[at - 1][0] != "name":
        return end
    while not (tokens[end + 1][1] == "{" and tokens[end][1] in (")", "}")):
        end += 1
    return closing(tokens, end + 1)


def members(tokens):
    """How many functions and data members the body of a class declares. Overloads count each; constants do not count."""
    functions = data = begin = i = 0
    while i < len(tokens):
        text = tokens[i][1] if tokens[i][0] == "punctuation" else ""
        if text in ("(", "["):
            i = closing(tokens, i) + 1
        elif text == "{":
            head = tokens[begin:i]
            words = words_of(head)
            if is_function(words):
                functions += 1
                i = begin = end_of_body(tokens, head, i) + 1
            else:
                i = closing(tokens, i) + 1  # a nested type, or an initializer
        elif text == ";":
            words = words_of(tokens[begin:i])
            i = begin = i + 1
            if not words or words[0] in OTHERS or (words[0] == "template" and {"using", "friend"} & set(words)):
                continue
            if is_function(words):
                functions += 1
            elif words[-1] not in ("delete", "default") and "constexpr" not in words:
                data += 1
        else:
            i += 1
    return functions, data


def classes(tokens, outer=""):
    """Yields (name, functions, data) of each class of a scope, nested ones too."""
    begin = i = 0
    while i < len(tokens):
        text = tokens[i][1] if tokens[i][0] == "punctuation" else ""
        if text in ("(", "["):
            i = closing(tokens, i) + 1
        elif text in (";", "}"):
            i = begin = i + 1
        elif text == "{":
            end = closing(tokens, i)
            words, body = words_of(tokens[begin:i]), tokens[i + 1:end]
            if "namespace" in words[:2]:
                yield from classes(body, outer)
            elif is_type(words) and "enum" not in words:
                at = next(j for j, word in enumerate(words) if word in ("class", "struct", "union"))
                names = [word for word in words[at + 1:] if re.match(r"[A-Za-z_]", word)]
                name = outer + (names[0] if names else "?")
                yield (name, *members(body))
                yield from classes(body, name + "::")
            i = begin = end + 1
        else:
            i += 1


def sizes(files):
    """{"folder/Class": Size} of all classes below src/."""
    found, spread = collections.defaultdict(lambda: (0, 0)), collections.defaultdict(set)
    for name, text in files.items():
        if not name.startswith("src/"):
            continue
        folder = name.rsplit("/", 1)[0]
        try:
            source = source_of(name, text)
            for class_name, functions, data in classes(source.tokens):
                # Two classes of a folder may have one name, in chapters of .cc files.
                path = f"{folder}/{class_name}"
                found[path] = max(found[path], (functions, data))
        except Problem:
            continue  # rule_functions reports it
        if name.endswith(".cc"):
            for function in source.functions:
                spread[f"{folder}/{function.owner}"].add(name)
    return {name: Size(*counts, len(spread[name])) for name, counts in found.items()}


def check(files, listed):
    """Problems of `files`, name to text, beyond the listed sizes, and notes on what the list no longer needs."""
    problems, notes = [], []
    found = sizes(files)
    for name, size in sorted(found.items()):
        most = listed.get(name, MAX)
        for what, count, limit in zip(("member functions", "data members", ".cc files"), size, map(max, most, MAX)):
            if count > limit:
                problems.append(f"{name}: {count} {what} (at most {limit}): find the second class in it")
        if name in listed and size != most:
            notes.append(f"{LIST}: {name} has {' | '.join(map(str, size))}")
    notes += [f"{LIST}: there is no {name}" for name in sorted(set(listed) - set(found))]
    return problems, notes


def read(path: pathlib.Path):
    """{"folder/Class": Size} of the list."""
    rows = [line.split("|") for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return {row[0].strip(): Size(*(int(cell) for cell in row[1:4])) for row in rows}
