#!/usr/bin/env python3
"""The repository checks itself: rules that no compiler knows. Run by `make tidy` and as a test.

- A folder of src/ includes only itself and the folders above it (docs/architecture.md); inside connectx/, a chapter
  only itself and the chapters below it, only the root and command/ include device.h, and handlers include driver_state.h; inside
  door/, a chapter only itself and the chapters that tools/floors.py lists.
- A file of src/ has at most 400 lines, one of tests/, bench/ and fuzz/ 600, a function of src/ 60; lines have at most
  100 columns; no tabs, no trailing blanks. Headers begin with a comment and `#pragma once`.
- All folders but util/, spec/ and wire/ shift and mask no fields of a document's formats: these are declared in src/spec, and bytes
  of packets in src/wire (util/field.h, util/bits.h). Any other shift has a comment `// no format: why`, on the line or
  above it.
- A file of connectx/ abbreviates spec::connectx in one way: `using namespace spec::connectx;`, in a .cc.
- The folders that all devices use (wire/, fabric/, pcie/, rdma/, hca/) name no device and no device's document.
- Every folder of src/, and each below it, has a README.md with a table of its parts and a part "What it does not implement". Files that
  a README names are there, and so are the tests that docs/ and READMEs name. A step of a walk (docs/architecture.md)
  names functions that its file defines. Pages that are made of rows (tools/docs.py) are not stale.
- Each citation of a document opens (tools/citations.py): a section of docs/interface/, a chapter of a public document.
- A function x_fast says of which function it is the fast path, and a table in a README names the test that compares both.
- A class has at most 40 member functions and 20 data members, in two .cc files (tools/class_sizes.py). Wider ones are listed in
  tools/wide_classes.txt, and do not grow. A class that passes most calls on to members is listed there with its reason.
- Tests and benchmarks wait for events: they neither sleep nor try again, but for what tests/naps.txt lists (tools/naps.py).
- Comments and pages have none of the forms that readers read twice (tools/language.py).

Each rule is a function that yields problems; tests/tools/tidy_test.py shows that each rule reports its violation. EXCEPTIONS
lists known violations. An exception that no file needs is reported.
"""
import collections
import fnmatch
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import citations  # noqa: E402
import class_sizes  # noqa: E402
import docs  # noqa: E402
import language  # noqa: E402
import naps  # noqa: E402
import test_names  # noqa: E402
from cpp_source import Problem, source_of  # noqa: E402
from floors import CHAPTERS, DOOR_CHAPTERS, FOR_ALL_CHAPTERS, MAY_INCLUDE  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent

LINES_MAX = {"src": 400, "tests": 600, "bench": 600, "fuzz": 600}
FUNCTION_LINES_MAX = 60
COLUMNS_MAX = 100
# Folders that all devices build on, and words that name a device.
NEUTRAL = {"wire", "fabric", "pcie", "rdma", "hca"}
DEVICES = re.compile(r"connectx|\bmlx|mellanox|mthca|sdxi|rsnic|jingzhao|\bPRM\b", re.I)
WITHOUT_FORMATS = set(MAY_INCLUDE) - {"util", "spec", "wire"}
# A shift by a number, or by a constant of a layout's field; a number shifted by a name (but 1u << name is a size, or a bit
# of a set); a mask that is written as a number.
BY_HAND = re.compile(r"(?:<<|>>)\s*\d|(?:<<|>>)[^,;]*?\bk(?:Lo|Hi|Width)\b|"
                     r"\b(?!1[uUlL]*\b)\d[\d']*[uUlL]*\}?\s*<<\s*\(?[A-Za-z_]|(?<!&)&\s*~?\(?\d")
SHIFT_OR_MASK = re.compile("<<|>>|&")

# Known violations: (rule, file). None today.
EXCEPTIONS = set()


def rule_lines(name, text):
    top = name.split("/")[0]
    lines = text.splitlines()
    limit = LINES_MAX.get(top)
    if limit and len(lines) > limit:
        yield f"{name}: {len(lines)} lines; split it by subject (at most {limit})"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX:
            yield f"{name}:{number}: {len(line)} columns (at most {COLUMNS_MAX})"
        if line != line.rstrip():
            yield f"{name}:{number}: trailing blank"
        if "\t" in line:
            yield f"{name}:{number}: tab"


def rule_headers(name, text):
    if name.endswith(".h") and not (text.startswith("//") and "#pragma once" in text):
        yield f"{name}: a header begins with a comment that says what it is, and has #pragma once"


def rule_folders(name, text):
    if not name.startswith("src/"):
        return
    folder = name.split("/")[1]
    allowed = MAY_INCLUDE.get(folder)
    if allowed is None:
        yield f"{name}: folder {folder} is not in tools/tidy.py"
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'#include "([^/"]+)/', line)
        if match and match[1] != folder and match[1] in MAY_INCLUDE and match[1] not in allowed:
            yield f"{name}:{number}: {folder}/ may not include {match[1]}/"


def rule_chapters(name, text):
    parts = name.split("/")
    if parts[:2] != ["src", "connectx"] or len(parts) == 3:
        return
    chapter = parts[2]
    allowed = CHAPTERS.get(chapter)
    if allowed is None:
        yield f"{name}: chapter {chapter} is not in tools/tidy.py"
        return
    is_handler = name.endswith("_commands.cc")
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'#include "(connectx/(?:(\w+)/)?[^/"]+)"', line)
        if not match or match[1] in FOR_ALL_CHAPTERS or match[2] == chapter:
            continue
        if match[1] == "connectx/refusals.inc" or (is_handler and match[1] != "connectx/device.h"):
            continue
        if chapter == "command" and match[1] in ("connectx/device.h", "connectx/driver_state.h"):
            continue
        if match[2] is None:
            yield f"{name}:{number}: {chapter}/ may not include {match[1]}: parts name what they need"
        elif match[2] not in allowed:
            yield f"{name}:{number}: connectx/{chapter}/ may not include connectx/{match[2]}/"


def rule_door_chapters(name, text):
    parts = name.split("/")
    if parts[:2] != ["src", "door"]:
        return
    chapter = parts[2] if len(parts) > 3 else ""
    allowed = DOOR_CHAPTERS.get(chapter)
    if allowed is None:
        yield f"{name}: chapter {chapter} is not in tools/floors.py"
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'#include "door/(?:(\w+)/)?[^/"]+"', line)
        if match and (match[1] or "") not in allowed | {chapter}:
            yield f"{name}:{number}: door/{chapter} may not include door/{match[1] or ''}"


def rule_functions(name, text):
    if not name.startswith("src/"):
        return
    try:
        functions = source_of(name, text).functions
    except Problem as problem:
        yield f"{name}: {problem}"
        return
    for function in functions:
        lines = function.last - function.first + 1
        if lines > FUNCTION_LINES_MAX:
            yield (f"{name}:{function.first}: {function.name} has {lines} lines (at most {FUNCTION_LINES_MAX})")




def rule_formats(name, text):
    parts = name.split("/")
    if parts[0] != "src" or parts[1] not in WITHOUT_FORMATS:
        return
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if not SHIFT_OR_MASK.search(line):
            continue
        code = re.sub(r'"(?:\\.|[^"\\])*"', '""', line.split("//")[0])
        # 4 << 20 is a size, 1u << 3 a bit of a set that no document defines.
        code = re.sub(r"(?<![\w.])(?:(?:std::)?\w+\{)?\d[\w']*\}?\s*<<\s*\(?\d+", "", code)
        if not BY_HAND.search(code):
            continue
        above = lines[number - 2] if number > 1 else ""
        if "// no format: " not in line and not above.strip().startswith("// no format: "):
            yield f"{name}:{number}: a shift or mask outside of src/spec: {line.strip()}"


def rule_spec_names(name, text):
    """A reader of connectx/ finds names of formats in two forms only: bare, or with spec::connectx:: in full."""
    if not name.startswith("src/connectx/"):
        return
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*namespace \w+ = .*\bspec\b", line):
            yield f"{name}:{number}: spec::connectx has another name here: using namespace spec::connectx;"
        if name.endswith(".h") and re.match(r"\s*using namespace\b", line):
            yield f"{name}:{number}: using namespace in a header"


def rule_neutral(name, text):
    parts = name.split("/")
    if parts[0] != "src" or parts[1] not in NEUTRAL:
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = DEVICES.search(line)
        if match:
            yield f"{name}:{number}: names a device or its document: {match[0]}"


def rule_readmes(tree):
    """`tree`: names of all files, texts of the Markdown files."""
    names, texts = tree
    folders = {name.rsplit("/", 1)[0] for name in names if "/" in name}
    for folder in MAY_INCLUDE:
        if f"src/{folder}" not in folders:
            yield f"src/{folder}: listed in tools/tidy.py but not there"
    for folder in sorted(folder for folder in folders if folder.startswith("src/")):
        readme = f"{folder}/README.md"
        if readme not in texts:
            yield f"{folder}: no README.md"
        else:
            if "does not implement" not in texts[readme]:
                yield f'{readme}: no part "What it does not implement"'
            if not re.search(r"^\|(?: *-+ *\|)+$", texts[readme], re.M):
                yield f"{readme}: no table of its parts"
    known = Names(names)
    for name, text in texts.items():
        yield from named_files(name, text, known)


class Names:
    """All files and folders, to be found by their last part."""

    def __init__(self, files):
        self._files = files
        self._by_last = collections.defaultdict(set)
        for file in files:
            parts = file.split("/")
            for count in range(1, len(parts) + 1):
                self._by_last[parts[count - 1]].add("/".join(parts[:count]))

    def has(self, places, cited, below):
        """Whether one of the `places` has it, or any folder below `below`. A name may have a wildcard."""
        if "*" in cited:
            cited = re.sub("/$", "/*", cited)
            return any(fnmatch.filter(self._files, place + cited) for place in [*places, f"{below}*/"])
        cited = cited.rstrip("/")
        for name in self._by_last[cited.rsplit("/", 1)[-1]]:
            if name.endswith("/" + cited) and name.startswith(below) or any(name == place + cited for place in places):
                return True
        return False


def named_files(page, text, names):
    """Files and folders that a page names in backticks: from the root, from src/, from its own folder, or, in a README
    of src/, from the folder of its tests. A header of spec/ may be made from a layout."""
    own = page.rsplit("/", 1)[0] + "/" if "/" in page else ""
    places = ["", "src/", own, own.replace("src/", "tests/unit/")]
    for match in re.finditer(r"`([\w./*-]*(?:\.(?:cc|h|py|md|layout|inc|toml|sh)|\.\*|/))`", text):
        cited = match[1]
        if cited.startswith(("/", ".", "build")) or "//" in cited:
            continue
        wanted = [cited]
        if re.match(r"(src/)?spec/.*\.h$", cited):
            wanted.append(re.sub(r"\.h$", ".layout", cited))
        if not any(names.has(places, name, own) for name in wanted):
            yield f"{page}:{text.count(chr(10), 0, match.start()) + 1}: there is no {cited}"


# A step of a walk: number, file, functions of that file.
STEP = re.compile(r"^\| *\d+ *\| *`(src/[\w./]+)` *\| *((?:`[\w:]+`(?:, )?)+) *\|", re.M)


def rule_walks(texts, files):
    for name, text in texts.items():
        for step in STEP.finditer(text):
            if step[1] not in files:
                continue  # rule_readmes reports it
            functions = source_of(step[1], files[step[1]]).functions
            defined = {function.name for function in functions}
            # SOFTHCA_INTERPOSE(type, name, ...) defines a function, too.
            defined |= {function.parameters[1] for function in functions if function.name == "SOFTHCA_INTERPOSE"}
            for function in re.findall(r"`([\w:]+)`", step[2]):
                if function not in defined:
                    yield f"{name}:{text.count(chr(10), 0, step.start()) + 1}: {step[1]} defines no {function}"


FAST = re.compile(r"\b(?!can_)(\w+_fast)\(")
FAST_ROW = re.compile(r"^\|.*_fast`.*\|$", re.M)


def rule_fast_paths(texts, files):
    """Each function x_fast has a comment "Fast path of ..." where it is declared, and a row in a README of src/ that names a test."""
    rows = [row for name, text in texts.items() if name.startswith("src/") for row in FAST_ROW.findall(text)]
    in_rows = {one for row in rows if test_names.cited(row) for one in re.findall(r"(\w+_fast)`", row)}
    first, commented = {}, set()
    for name, text in files.items():
        if not name.startswith("src/"):
            continue
        comment = ""
        for line in text.splitlines():
            for one in FAST.findall(line):
                first.setdefault(one, name)
                if "Fast path of" in comment or "The same for" in comment:
                    commented.add(one)
            # A comment may stand above several declarations.
            if line.strip().startswith("//"):
                comment += line
            elif not line.strip() or line.strip().endswith((";", "}")):
                comment = comment if FAST.search(line) else ""
    for one, name in sorted(first.items()):
        if one not in in_rows:
            yield f"{name}: no README of src/ has a row for {one} with the test that compares it with its slow path"
        if one not in commented:
            yield f"{name}: {one} has no comment: Fast path of ..."


def rule_cited_tests(texts, tests):
    for name, text in texts.items():
        for number, test in test_names.cited(text):
            if test not in tests:
                yield f"{name}:{number}: there is no test {test}"


FILE_RULES = {
    "lines": rule_lines,
    "headers": rule_headers,
    "folders": rule_folders,
    "chapters": rule_chapters,
    "door chapters": rule_door_chapters,
    "functions": rule_functions,
    "formats": rule_formats,
    "spec names": rule_spec_names,
    "neutral": rule_neutral,
}


def check_files(files, exceptions):
    """Problems of `files`, name to text, beyond the exceptions, and notes about exceptions that nothing needs."""
    problems, needed = [], set()
    for name, text in files.items():
        for rule, check in FILE_RULES.items():
            for problem in check(name, text):
                if (rule, name) in exceptions:
                    needed.add((rule, name))
                else:
                    problems.append(problem)
    notes = [f"tools/tidy.py: nothing needs the exception {rule} of {name} any more"
             for rule, name in sorted(exceptions - needed)]
    return problems, notes


def tracked(*patterns):
    out = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, check=True, capture_output=True)
    return [name for name in out.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def main():
    files = {name: (ROOT / name).read_text() for name in tracked("*.h", "*.cc")}
    texts = {name: (ROOT / name).read_text() for name in tracked("*.md")}
    tests = test_names.existing()
    problems, notes = check_files(files, EXCEPTIONS)
    problems += rule_readmes((tracked(), texts))
    problems += rule_cited_tests(texts, tests)
    problems += rule_walks(texts, files)
    problems += rule_fast_paths(texts, files)
    problems += docs.stale(ROOT / "docs", tests)
    found, unneeded = class_sizes.check(files, class_sizes.read(ROOT / class_sizes.LIST))
    problems, notes = problems + found, notes + unneeded
    found, unneeded = class_sizes.check_forwarders(files, class_sizes.read_forwarders(ROOT / class_sizes.LIST))
    problems, notes = problems + found, notes + unneeded
    citing = {name: (ROOT / name).read_text(errors="replace") for name in tracked(*("*" + end for end in citations.SUFFIXES))}
    problems += citations.check(citing, texts, set(tracked()))
    scanned = {name: (ROOT / name).read_text(errors="replace") for name in tracked(*naps.SCANNED)}
    found, unneeded = naps.check(scanned, naps.read(ROOT / naps.LIST))
    problems, notes = problems + found, notes + unneeded
    written = {name: (ROOT / name).read_text(errors="replace") for name in tracked(":!*.base64")}
    problems += language.check({name: text for name, text in written.items() if language.is_scanned(name, text)})
    for line in notes + problems:
        print(line)
    print(f"{len(files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
