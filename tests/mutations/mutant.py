"""One planted bug: a patch with a header of comment lines.

    # What is wrong in it, in one line.
    # section: the document and section that it breaks
    # test: rdma_test
    # filter: RcLoss.ALostAnswerIsAskedForAgain
    # expect: timeout             (only if the tests cannot but hang; left out for an assertion)
    --- a/src/...
    +++ b/src/...
"""
import dataclasses
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KEYS = ("section", "test", "filter", "expect")


@dataclasses.dataclass
class Mutant:
    path: pathlib.Path
    description: str
    section: str
    program: str  # of the build directory's tests/
    filter: str  # of gtest
    expect: str  # "assertion" or "timeout"
    files: tuple  # that it changes

    @property
    def name(self):
        return str(self.path.relative_to(HERE).with_suffix(""))


def header(description, section, program, tests, expect="assertion"):
    text = f"# {description}\n# section: {section}\n# test: {program}\n# filter: {tests}\n"
    return text + (f"# expect: {expect}\n" if expect != "assertion" else "")


def split(text):
    """(header, diff) of a patch."""
    found = re.search(r"^(diff --git|--- a/)", text, re.MULTILINE)
    return (text[:found.start()], text[found.start():]) if found else (text, "")


def parse(path):
    """A Mutant, or what is wrong with the file, in words."""
    head, diff = split(path.read_text())
    fields, rest = {"expect": "assertion"}, []
    for line in head.splitlines():
        if not line.startswith("# "):
            return f"{path}: a header line that does not begin with '# ': {line!r}"
        found = re.match(rf"# ({'|'.join(KEYS)}): (.+)", line)
        if found:
            fields[found[1]] = found[2].strip()
        else:
            rest.append(line[2:].strip())
    missing = [key for key in KEYS if key not in fields]
    if missing or len(rest) != 1:
        return f"{path}: the header wants one line of description and {', '.join(KEYS[:3])}"
    if fields["expect"] not in ("assertion", "timeout"):
        return f"{path}: expect is assertion or timeout, not {fields['expect']!r}"
    files = tuple(re.findall(r"^\+\+\+ b/(\S+)", diff, re.MULTILINE))
    if not files or any(not file.startswith("src/") for file in files):
        return f"{path}: a mutant changes files of src/, and nothing else"
    return Mutant(path, rest[0], fields["section"], fields["test"], fields["filter"], fields["expect"], files)


def load(words):
    """(mutants, problems): all patches, or those whose names contain one of the words."""
    mutants, problems = [], []
    for path in sorted(HERE.glob("*/*.patch")):
        mutant = parse(path)
        if isinstance(mutant, str):
            problems.append(mutant)
        elif not words or any(word in mutant.name for word in words):
            mutants.append(mutant)
    return mutants, problems
