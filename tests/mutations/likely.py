"""The tests that most likely notice a change of a file: those whose files include its header, or have its name."""
import pathlib
import re

from mutant import ROOT

SUITE = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),", re.M)


def suites_of(text):
    return set(SUITE.findall(text))


def likely_suites(file, sources):
    """The suites of `sources`, test file to text, that are likely to notice a change of `file`, in order."""
    path = pathlib.PurePath(file)
    header = f'#include "{path.with_suffix(".h").relative_to("src")}"'
    found = set()
    for name, text in sources.items():
        if header in text or pathlib.PurePath(name).stem == f"{path.stem}_test":
            found |= suites_of(text)
    return sorted(found)


def likely(file, program):
    """Patterns of gtest for such suites of a test program, with those of parameters. None if there is none."""
    folder = program.removesuffix("_test")
    sources = {str(path): path.read_text() for place in ("tests/unit", "tests")
               for path in sorted((ROOT / place / folder).rglob("*_test.cc"))}
    return [pattern for suite in likely_suites(file, sources) for pattern in (f"{suite}.*", f"*/{suite}.*")]
