"""Random mutants: small bugs drawn at random.

A mutant is one change of one statement of src/: it is left out, a condition is negated, a comparison or number is off
by one, two arguments are swapped, a bool is inverted, or a member of a .layout moves. A seed draws them, with separate
numbers for each folder, so that a change in one folder does not change the mutants of others. In a folder, each line
that can be changed is equally likely. `equivalent.toml` lists the ones that no test can notice, with the reason.
"""
import bisect
import dataclasses
import itertools
import random
import re
import tomllib

from mutant import EQUIVALENT, ROOT

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-",
               "-": "+"}
LEAST = 5  # mutants of a folder, however small it is
LINES_MAX = 12  # of a statement

# Text that is no code: comments, strings, characters. A digit separator is no quote.
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((?:.*?)\)"|"(?:\\.|[^"\\\n])*"|'
                     r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.DOTALL)
NO_CODE_OF_LAYOUT = re.compile(r'#[^\n]*|"[^"\n]*"')
NOT_CHANGED = re.compile(r"#|(?:static_)?assert\(|SOFTHCA_HOT_ASSERT|asm\(|~|virtual .*= 0;|using |namespace |template|friend |"
                         r"public:|private:|protected:")
NOT_LEFT_OUT = re.compile(r"(?:const|constexpr|static|auto|throw|case|default|else|do|goto|extern|struct|class|enum|union|"
                          r"virtual|explicit|inline|return .*)\b")
DECLARATION = re.compile(r"~?[\w:]+(?:<.*>)?(?:\s*[*&]+\s*|\s+)(?:const )?[\w:]+(?:\[.*\])?\s*[({=;,]|"
                         r".*= (?:default|delete|0);|\w+\([^()]*\) (?:const|override)", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Change:
    """A change of the characters [begin, end) of a statement."""
    kind: str
    begin: int
    end: int
    text: str


@dataclasses.dataclass(frozen=True)
class Statement:
    file: str
    line: int  # from 0
    lines: int
    text: str
    code: str  # the text with blanks for all that is no code


@dataclasses.dataclass(frozen=True)
class RandomMutant:
    statement: Statement
    change: Change

    @property
    def folder(self):
        return self.statement.file.split("/")[1]

    @property
    def file(self):
        return self.statement.file

    @property
    def replacement(self):
        text, change = self.statement.text, self.change
        return text[:change.begin] + change.text + text[change.end:]

    @property
    def key(self):
        """Its key in equivalent.toml, where white space does not count."""
        return self.file, one_line(self.statement.text), one_line(self.replacement)

    def plant(self, root):
        path = root / self.file
        lines = path.read_text().splitlines(keepends=True)
        lines[self.statement.line:self.statement.line + self.statement.lines] = [self.replacement]
        path.write_text("".join(lines))

    def __str__(self):
        _, text, replacement = self.key
        return f"{self.file}:{self.statement.line + 1}: {self.change.kind}\n  - {text}\n  + {replacement}"


def closing(code, begin):
    """The position at which the parenthesis that opens at `begin` closes, or -1."""
    depth = 0
    for place in range(begin, len(code)):
        depth += (code[place] == "(") - (code[place] == ")")
        if depth == 0:
            return place
    return -1


def left_out(code):
    stripped = code.strip()
    if (stripped.endswith(";") and "{" not in stripped and "}" not in stripped and not NOT_LEFT_OUT.match(stripped)
            and not DECLARATION.match(stripped)):
        begin = len(code) - len(code.lstrip())
        yield Change("a statement is left out", begin, begin + len(stripped), ";")


def negated(code):
    for found in re.finditer(r"\b(?:if|while) \(", code):
        begin, end = found.end(), closing(code, found.end() - 1)
        if end < 0:
            continue
        begin += code[begin:end].rfind(";") + 1
        condition = code[begin:end].strip()
        if not re.search(r"(?<![=!<>])=(?!=)", re.sub(r"\(.*\)", "", condition, flags=re.DOTALL)):
            yield Change("a condition is negated", begin, end, f"{' ' if code[begin - 1] == ';' else ''}!({condition})")


def off_by_one(code):
    for found in re.finditer(r"(?<= )(<=?|>=?|==|!=|&&|\|\||\+|-)(?=\s)", code):
        yield Change("another operator", *found.span(), COMPARISONS[found[1]])
    for found in re.finditer(r"(?<![\w.'])(0x[0-9a-fA-F]+|\d+)(?=(?:[uU][lL]{0,2})?[;,)\]} :])", code):
        value = int(found[1], 0) + 1 if not re.fullmatch(r"0\d+", found[1]) else int(found[1], 8) + 1
        yield Change("off by one", *found.span(), f"0x{value:x}" if found[1].startswith("0x") else str(value))


def swapped(code):
    value = r"[\w.:*&>\-]+(?:\(\))?"
    for found in re.finditer(rf"(?<=[(,])(?=(\s*)({value}), ({value})(?=[,)]))", code):
        if found[2] != found[3]:
            yield Change("arguments are swapped", found.start(), found.end(3), f"{found[1]}{found[3]}, {found[2]}")


def other_bool(code):
    for found in re.finditer(r"\b(?:true|false)\b", code):
        yield Change("the other bool", *found.span(), "false" if found[0] == "true" else "true")


def moved(code):
    """Moves a member or value of a .layout."""
    member = re.match(r"\s+(?:(?:sub|bytes|tail)\s+)?\w+\s+(0x[0-9a-fA-F]+)(?:\s+(\d+)(?::(\d+))?)?", code)
    if not member:
        return
    is_field = member[2] and not re.match(r"\s+(?:sub|bytes|tail)\s", code)
    step = 4 if is_field or re.match(r"\s+(?:sub|bytes|tail)\s", code) else 1
    yield Change("a member of a layout moves", *member.span(1), f"0x{int(member[1], 0) + step:03x}")
    if is_field and member[3]:
        low, high = int(member[3]), int(member[2])
        other = low + 1 if low + 1 < high or low == 0 else low - 1
        yield Change("a bit of a layout", *member.span(3), str(other))
    elif is_field:
        yield Change("a bit of a layout", *member.span(2), str(int(member[2]) ^ 1))


SOURCE = (left_out, negated, off_by_one, swapped, other_bool)
CHANGES = {".cc": SOURCE, ".h": SOURCE, ".inc": (off_by_one, other_bool), ".layout": (moved,)}


def changes(statement):
    if NOT_CHANGED.match(statement.code.lstrip()):
        return []
    ending = statement.file[statement.file.rindex("."):]
    return [change for kind in CHANGES[ending] for change in kind(statement.code)]


def goes_on(code):
    end = code.strip()[-1:]
    return end not in ("", "{") and code.lstrip()[0] != "#" and (code.count("(") > code.count(")") or end not in ";}:")


def statements(file, text):
    """Pieces that end with a semicolon, brace or colon and have all their parentheses; lines of a list or layout."""
    one_line = not file.endswith((".cc", ".h"))
    no_code = NO_CODE_OF_LAYOUT if file.endswith(".layout") else NO_CODE
    code = no_code.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    texts, codes = text.splitlines(keepends=True), code.splitlines(keepends=True)
    first = 0
    while first < len(texts):
        last = first
        joined = codes[first]
        while not one_line and last + 1 < min(len(texts), first + LINES_MAX) and goes_on(joined):
            last += 1
            joined += codes[last]
        if joined.strip():
            yield Statement(file, first, last + 1 - first, "".join(texts[first:last + 1]), joined)
        first = last + 1


def one_line(text):
    return " ".join(text.split())


def equivalent():
    """The keys of equivalent mutants, like RandomMutant.key."""
    return {(entry["file"], one_line(entry["text"]), one_line(entry["replacement"])) for entry in entries()}


def entries():
    return tomllib.loads(EQUIVALENT.read_text()).get("mutant", [])


def stale():
    """The errors of equivalent.toml as text."""
    for entry in entries():
        path = ROOT / entry["file"]
        if not entry.get("reason"):
            yield f"{entry['file']}: no reason: {entry['text']}"
        if not path.is_file() or one_line(entry["text"]) not in one_line(path.read_text()):
            yield f"{entry['file']} has no such text any more: {entry['text']}"


class Lottery:
    """The mutants of one folder, drawn in an order that the seed and the folder's files fix."""

    def __init__(self, seed, folder):
        self._choose = random.Random(f"{seed} {folder}")
        self._changes = []
        for path in files(folder):
            self._add(str(path.relative_to(ROOT)), path.read_text())
        self._sums = list(itertools.accumulate(statement.lines for statement, _ in self._changes))
        self._drawn = equivalent()

    def _add(self, file, text):
        self._changes += [(statement, found) for statement in statements(file, text) if (found := changes(statement))]

    def draw(self):
        while True:
            place = self._choose.randrange(self._sums[-1])
            statement, found = self._changes[bisect.bisect_right(self._sums, place)]
            mutant = RandomMutant(statement, self._choose.choice(found))
            if mutant.key not in self._drawn:
                self._drawn.add(mutant.key)
                return mutant


def files(folder):
    return [path for path in sorted((ROOT / "src" / folder).rglob("*")) if path.suffix in CHANGES]


def lines_of_folders():
    """{folder of src/: its lines}"""
    folders = sorted(path.name for path in (ROOT / "src").iterdir() if path.is_dir())
    return {folder: sum(path.read_text().count("\n") for path in files(folder)) for folder in folders}


def shares(count, lines):
    """{folder: how many of `count` mutants are its own}, by lines."""
    return {folder: max(LEAST, round(count * own / sum(lines.values()))) for folder, own in lines.items()}
