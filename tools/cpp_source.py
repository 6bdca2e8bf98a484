"""Reads C++ as this project writes it (not C++): the functions of a file, their parameters and calls, and constants
of type string_view. For tools/refusal_table.py and tools/tidy.py.
"""
import functools
import re

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
    def __init__(self, file, name, returns, parameters, body, first, last):
        self.file = file              # path
        self.first = first            # line of its head
        self.last = last              # line of its closing brace
        self.name = name              # as defined: write_context, PortRegisters::pmtu
        self.returns = returns        # the words before the name
        self.parameters = parameters  # names, in order
        self.body = body              # tokens
        self.calls = []               # (name, object that it is called on or "", arguments)

    @property
    def base(self):
        return self.name.rsplit("::", 1)[-1]

    @property
    def owner(self):
        return self.name.rsplit("::", 1)[0] if "::" in self.name else ""


def tokens_of(text):
    """(kind, text, line), without comments and preprocessor lines."""
    out, line, counted = [], 1, 0
    for match in TOKEN.finditer(text):
        kind = match.lastgroup
        if kind != "comment" and kind != "preprocessor":
            start = match.start()
            if (end := text.find("\n", counted, start)) >= 0:
                line += text.count("\n", end, start)
            counted = start
            out.append((kind, match[0], line))
    return out


def closing(tokens, at):
    """Index of the bracket that closes the one at `at`."""
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
    """Splits at separators outside of brackets. In the sources read here, template arguments of calls have no commas."""
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

    def __init__(self, path, text=None):
        self.path = path
        self.functions = []
        self.constants = {}
        self.tokens = tokens_of(path.read_text() if text is None else text)
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
            # An initializer: the statement continues to its semicolon.
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
        self.functions.append(Function(self.path, name, returns, parameters, tokens[at + 1:end], tokens[begin][2],
                                       tokens[end][2]))
        return end + 1

    @staticmethod
    def note_constant(tokens, constants):
        """`constexpr std::string_view kName = ...`."""
        words = [text for _, text, _ in tokens]
        if "string_view" in words and "=" in words:
            at = words.index("=")
            constants[words[at - 1]] = tokens[at + 1:]


@functools.lru_cache(maxsize=None)
def source_of(path, text):
    """Source(path, text), which is read once."""
    return Source(path, text)


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
