"""One planted bug: an entry of <chapter>.toml.

    [[mutant]]
    name = "icrc_not_checked"            # unique in the chapter
    what = "A packet with a wrong ICRC is accepted"
    section = "IBTA Annex A17 17.3.3"    # the document and section that it breaks
    test = "wire_test"                   # the test program, or door.lives
    filter = "IbPacket.CorruptionIsFoundWhereverAChecksumReaches"
    expect = "timeout"                   # only if the mutant can only hang; left out for an assertion
    file = "src/wire/ib_packet.cc"
    text = "if (!icrc_is_right(packet))" # occurs once in the file
    replacement = "if (false)"

A mutant of several places has [[mutant.edit]] entries with file, text and replacement instead.
"""
import dataclasses
import pathlib
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
EQUIVALENT = HERE / "equivalent.toml"  # drawn ones that no test can notice (random_mutants.py)
KEYS = ("name", "what", "section", "test", "filter")
EDIT_KEYS = ("file", "text", "replacement")
EXPECTED = ("assertion", "timeout")
# The one test that is no gtest program, for mutants that only programs of `softhca run` show. A filter is one of its cases.
LIVES = "door.lives"
TARGETS = {LIVES: ("softhca", "softhca_preload", "lives")}  # what is built for a test; without an entry, itself


@dataclasses.dataclass(frozen=True)
class Edit:
    file: str
    text: str
    replacement: str

    def problem(self):
        """Why the mutant cannot be planted in this tree, or None."""
        path = ROOT / self.file
        if not self.file.startswith("src/"):
            return f"{self.file} is not below src/"
        if not path.is_file():
            return f"there is no {self.file}"
        count = path.read_text().count(self.text)
        if count != 1:
            return f"its text occurs {count} times in {self.file}, not once: {self.text.strip().splitlines()[0]!r}"
        return "it changes nothing" if self.text == self.replacement else None


@dataclasses.dataclass(frozen=True)
class Mutant:
    chapter: str
    title: str
    description: str
    section: str
    program: str  # of the build directory's tests/, or LIVES
    filter: str  # of gtest, or a case of LIVES
    expect: str  # "assertion" or "timeout"
    edits: tuple

    @property
    def name(self):
        return f"{self.chapter}/{self.title}"

    @property
    def targets(self):
        return TARGETS.get(self.program, (self.program,))

    @property
    def files(self):
        return tuple(sorted({edit.file for edit in self.edits}))

    def problems(self):
        return [f"{self.name}: {problem}" for problem in map(Edit.problem, self.edits) if problem]

    def plant(self, root):
        """Makes the edits in the tree at `root`, one after the other."""
        for edit in self.edits:
            path = root / edit.file
            path.write_text(path.read_text().replace(edit.text, edit.replacement, 1))


def parse(chapter, entry):
    """A Mutant, or the error of the entry as text."""
    name = f"{chapter}/{entry.get('name', '?')}"
    missing = [key for key in KEYS if not entry.get(key)]
    if missing:
        return f"{name}: no {', '.join(missing)}"
    edits = entry.get("edit", [{key: entry[key] for key in EDIT_KEYS if key in entry}])
    if any(set(edit) != set(EDIT_KEYS) for edit in edits):
        return f"{name}: an edit has {', '.join(EDIT_KEYS)}, and nothing else"
    unknown = set(entry) - set(KEYS) - set(EDIT_KEYS) - {"expect", "edit"}
    if unknown:
        return f"{name}: unknown: {', '.join(sorted(unknown))}"
    expect = entry.get("expect", "assertion")
    if expect not in EXPECTED:
        return f"{name}: expect is {' or '.join(EXPECTED)}, not {expect!r}"
    return Mutant(chapter, entry["name"], entry["what"], entry["section"], entry["test"], entry["filter"], expect,
                  tuple(Edit(**edit) for edit in edits))


def load(words):
    """(mutants, problems): all entries, or those whose names contain one of the words."""
    mutants, problems = [], []
    for path in sorted(set(HERE.glob("*.toml")) - {EQUIVALENT}):
        try:
            entries = tomllib.loads(path.read_text()).get("mutant", [])
        except tomllib.TOMLDecodeError as error:
            problems.append(f"{path}: {error}")
            continue
        names = set()
        for entry in entries:
            mutant = parse(path.stem, entry)
            if isinstance(mutant, str):
                problems.append(mutant)
            elif mutant.title in names:
                problems.append(f"{mutant.name}: there are two of this name")
            elif not words or any(word in mutant.name for word in words):
                mutants.append(mutant)
            names.add(entry.get("name"))
    return mutants, problems
