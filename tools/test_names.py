"""The existing tests, read from the sources, by the names that docs cite.

    RdmaCqe.VlanTagIsGiven  a unit test: TEST, TEST_F or TEST_P of tests/unit, tests/neighbours or tests/verbs
    guest.capture           a test of ctest, here or with the kernel behind it (guest.capture.trixie)
    door.faults             a test of ctest that runs programs of the distribution
    wire_fuzzer             a fuzzer
"""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent

UNIT = re.compile(r"^(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\(\s*(\w+),\s*(\w+)\s*\)", re.M)
GUEST = re.compile(r"softhca_guest_(?:test|record)\(\s*(\w+)|NAME guest\.(\w+)")
DOOR = re.compile(r"NAME door\.(\w+)|foreach\(script ([\w ]+)\)")
CITED = re.compile(r"`((?:[A-Z]\w*\.[A-Z]\w*)|(?:(?:guest|door)\.\w+)|(?:\w+_fuzzer))`")


def existing(root=ROOT):
    """The set of all names."""
    names = set()
    folders = ("unit", "neighbours", "verbs")
    units = [path for folder in folders for path in (root / "tests" / folder).rglob("*.cc")]
    for path in units:
        names.update(f"{suite}.{test}" for suite, test in UNIT.findall(path.read_text()))
    for path in (root / "tests").rglob("CMakeLists.txt"):
        names.update(f"guest.{one or other}" for one, other in GUEST.findall(path.read_text()))
        for one, scripts in DOOR.findall(path.read_text()):
            names.update(f"door.{name}" for name in [one, *scripts.split()] if name)
    names.update(path.stem for path in (root / "fuzz").glob("*_fuzzer.cc"))
    return names


def cited(text):
    """(line number, name) of each test that a Markdown text names."""
    return [(text.count("\n", 0, match.start()) + 1, match[1]) for match in CITED.finditer(text)]
