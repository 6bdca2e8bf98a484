"""Counts what a class consists of: a rule of tools/tidy.py.

A class that has one subject fits on a screen or two. A class may have 40 member functions and 20 data members, and its
functions may be defined in two .cc files. tools/wide_classes.txt lists those that are wider today, with their numbers: a class
that grows is a problem, and one that shrinks leaves a note.

A class that only passes calls on is a detour for its reader: callers use the part. If a class has six or more public functions,
at most half of them may be one statement that calls a function of about the same name of a member. The same list has those
that have a reason.
"""
import collections
import pathlib
import re

from cpp_source import Problem, closing, source_of

LIST = "tools/wide_classes.txt"
FUNCTIONS_MAX, DATA_MAX, FILES_MAX = 40, 20, 2
FORWARDERS_FROM = 6  # public functions
FORWARDS = "forwards"  # the word of such a class in the list
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


def public_functions(tokens, is_class):
    """The names of the public functions that the body of a class declares, in order."""
    names, public, begin, i = [], not is_class, 0, 0
    while i < len(tokens):
        text, after = tokens[i][1], tokens[i + 1][1] if i + 1 < len(tokens) else ""
        if text in ACCESS and after == ":":
            public = text == "public"
            i = begin = i + 2
        elif tokens[i][0] == "punctuation" and text in ("(", "["):
            i = closing(tokens, i) + 1
        elif tokens[i][0] == "punctuation" and text in ("{", ";"):
            head = tokens[begin:i]
            words = words_of(head)
            is_one = bool(words) and words[0] not in OTHERS and is_function(words)
            if is_one and public and "operator" not in words and words[-1] not in ("default", "delete"):
                names.append(words[words.index("(") - 1])
            if text == ";" or is_one:
                i = begin = i + 1 if text == ";" else end_of_body(tokens, head, i) + 1
            else:
                i = closing(tokens, i) + 1
        else:
            i += 1
    return names


# `member_.name(arguments)` or `member_.part.name(arguments)`; a `->` is one token.
CALL = re.compile(r"(?:return )?(?:\* )?\w+_(?: (?:\.|->) \w+)* (?:\.|->) (\w+) \((.*)\)")
MOVES = re.compile(r"std :: (?:move|forward)(?: < \w+ >)? \((.*?)\)")


def called(function):
    """The function of a member that is all that `function` calls, in one statement; "" if it does more."""
    text = " ".join(text for _, text, _ in function.body).removesuffix(" ;")
    match = None if re.search(r"[;{?]", text) else CALL.fullmatch(text)
    return match[1] if match and "(" not in MOVES.sub(r"\1", match[2]) else ""


def is_forward(function):
    """Whether `function` passes its call on to a member's function of about the same name."""
    other = called(function)
    own, its = set(function.base.split("_")), set(other.split("_"))
    return bool(other) and (own <= its or its <= own or function.base.split("_")[0] == other.split("_")[0])


def classes(tokens, outer=""):
    """Yields (name, whether it is no struct, body) of each class of a scope, nested ones too."""
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
                yield name, words[at] == "class", body
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
            for class_name, _, body in classes(source.tokens):
                # Two classes of a folder may have one name, in chapters of .cc files.
                path = f"{folder}/{class_name}"
                found[path] = max(found[path], members(body))
        except Problem:
            continue  # rule_functions reports it
        if name.endswith(".cc"):
            for function in source.functions:
                spread[f"{folder}/{function.owner}"].add(name)
    return {name: Size(*counts, len(spread[name])) for name, counts in found.items()}


def forwarders(files):
    """{"folder/Class": (forwards, public functions)} of the classes below src/ most of whose calls go to a member."""
    public, functions = {}, collections.defaultdict(list)
    for name, text in files.items():
        if not name.startswith("src/"):
            continue
        folder = name.rsplit("/", 1)[0]
        try:
            source = source_of(name, text)
            for class_name, is_class, body in classes(source.tokens):
                own = class_name.rsplit("::", 1)[-1]
                names = [one for one in public_functions(body, is_class) if one != own]
                public[f"{folder}/{class_name}"] = max(public.get(f"{folder}/{class_name}", []), names, key=len)
        except Problem:
            continue  # rule_functions reports it
        for function in source.functions:
            functions[folder, function.owner.rsplit("::", 1)[-1]].append(function)
    found = {}
    for path, names in public.items():
        folder, class_name = path.rsplit("/", 1)
        own = functions[folder, class_name.rsplit("::", 1)[-1]]
        count = sum(is_forward(one) for one in own if one.base in names)
        if len(names) >= FORWARDERS_FROM and 2 * count > len(names):
            found[path] = (count, len(names))
    return found


def check_forwarders(files, listed):
    """Problems and notes of `files`, as check() has them. `listed`: names that have a reason."""
    found = forwarders(files)
    problems = [f"{name}: {count} of {size} public functions only call a member's: let callers use that, or give a reason in {LIST}"
                for name, (count, size) in sorted(found.items()) if name not in listed]
    return problems, [f"{LIST}: {name} does not only forward" for name in sorted(set(listed) - set(found))]


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


def rows_of(path: pathlib.Path):
    lines = path.read_text().splitlines()
    return [[cell.strip() for cell in line.split("|")] for line in lines if line.strip() and not line.startswith("#")]


def read(path: pathlib.Path):
    """{"folder/Class": Size} of the list."""
    return {row[0]: Size(*map(int, row[1:4])) for row in rows_of(path) if row[1] != FORWARDS}


def read_forwarders(path: pathlib.Path):
    """{"folder/Class": reason} of the list."""
    return {row[0]: row[2] for row in rows_of(path) if row[1] == FORWARDS}
