#!/usr/bin/env python3
"""Makes the parts of docs/*.md that come from tables: `make docs`.

A part stands between two lines:

    <!-- generated: commands -->          the output of `softhca docs commands`; the same for limits
    <!-- generated: rows FILE.toml -->    the rows of a file beside the page (docs/connectx-features.toml)
    <!-- generated: features DOCUMENT FILE.toml -->    a row for each rule of a document, and for each value and field of
                                          src/spec/DOCUMENT/*.layout (tools/feature_rows.py, docs/jingzhao-features.toml)
    <!-- generated: faults SOURCE FILE.toml GROUP -->    each kind of fault that SOURCE has, with the tests that the file names
                                          (docs/faults-tests.toml)
    <!-- generated: folders -->           who may include whom (tools/floors.py), as does chapters
    <!-- end of generated -->

cli_test checks that parts of the first kind are not stale, tools/tidy.py checks the others.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tomllib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import feature_rows  # noqa: E402
import test_names  # noqa: E402
from floors import CHAPTERS, MAY_INCLUDE  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
Problem = feature_rows.Problem
PART = re.compile(r"(<!-- generated: ([^\n]+?) -->\n)(.*?)(<!-- end of generated -->)", re.S)
STATUS = ("done", "partly", "absent", "hardware")


def sections_of(text):
    """The sections that a row is about: "4.2, 7.1 to 7.3"."""
    for part in text.split(","):
        first, *last = part.strip().split(" to ")
        yield first
        chapter, _, begin = first.rpartition(".")
        for number in range(int(begin), int(last[0].rpartition(".")[2]) + 1) if last else ():
            yield f"{chapter}.{number}"


def check_rows(data, tests):
    """All errors of a file of rows."""
    seen = set()
    rows = [row for group in data["group"] for row in group["row"]]
    covered = {name for row in rows for name in sections_of(row.get("section", ""))}
    for section in data.get("sections", []):
        if section not in covered:
            yield f"no row has section {section}"
    for group in data["group"]:
        for row in group["row"]:
            name = row.get("id", "a row without id")
            missing = {"id", "name", "section", "status"} - row.keys()
            unknown = row.keys() - {"id", "name", "section", "status", "words", "tests"}
            if missing or unknown:
                yield f"{name}: missing {sorted(missing)}, unknown {sorted(unknown)}"
                continue
            if name in seen:
                yield f"{name}: twice"
            seen.add(name)
            if row["status"] not in STATUS:
                yield f"{name}: status {row['status']} is none of {', '.join(STATUS)}"
            if row["status"] != "done" and not row.get("words"):
                yield f"{name}: {row['status']}, but no words say what is missing"
            if row["status"] in ("done", "partly") and not row.get("tests"):
                yield f"{name}: {row['status']}, but no test shows it"
            for test in row.get("tests", []):
                if test not in tests:
                    yield f"{name}: there is no test {test}"


def rows_page(path, tests):
    """A table for each group, and the totals."""
    data = tomllib.loads(path.read_text())
    problems = list(check_rows(data, tests))
    if problems:
        raise Problem("\n".join(f"{path.name}: {problem}" for problem in problems))
    rows = [row for group in data["group"] for row in group["row"]]
    counts = {status: sum(row["status"] == status for row in rows) for status in STATUS}
    totals = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    lines = [f"{len(rows)} rows: {totals}.", ""]
    for group in data["group"]:
        lines += [f"## {group['title']}", "", "| # | | section | status | tests |", "|---|---|---|---|---|"]
        for row in group["row"]:
            words = f": {row['words']}" if row.get("words") else ""
            cited = ", ".join(f"`{test}`" for test in row.get("tests", []))
            lines.append(f"| {row['id']} | {row['name']} | {row['section']} | {row['status']}{words} | {cited} |")
        lines.append("")
    return "\n".join(lines)


FAULT_KIND = re.compile(r'\{(?:FaultAction::)?k\w+,\s*"([a-z-]+)"')
FAULT_CELLS = ("driver", "program")


def faults_page(source, path, group, tests):
    """A table of the kinds of fault in a source file: the tests with a driver of softhca, and those with an unmodified program."""
    kinds = FAULT_KIND.findall(source.read_text())
    known = tomllib.loads(path.read_text()).get(group, {})
    if not kinds or sorted(known) != sorted(kinds):
        raise Problem(f"{path.name}: {group} has {sorted(known)}, and {source.name} the kinds {sorted(kinds)}")
    lines = ["| `do=` | tests of a driver | tests of an unmodified program |", "|---|---|---|"]
    for kind in kinds:
        cells = []
        for name in FAULT_CELLS:
            cited, words = known[kind].get(name, []), known[kind].get(f"{name}_words", "")
            for test in cited:
                if test not in tests:
                    raise Problem(f"{path.name}: {group}.{kind}: there is no test {test}")
            if not cited and not words:
                raise Problem(f"{path.name}: {group}.{kind}: no test of {name}, and {name}_words does not say why")
            cells.append("; ".join(filter(None, [words, ", ".join(f"`{test}`" for test in cited)])))
        lines.append(f"| `{kind}` | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def floors_page(title, floors):
    lines = [f"| {title} | may include |", "|---|---|"]
    lines += [f"| {name} | {', '.join(other for other in floors if other in allowed) or 'itself'} |"
              for name, allowed in floors.items()]
    return "\n".join(lines)


def without_program(what, page, tests):
    """A part that needs no program; None if it does."""
    if what == "folders":
        return floors_page("folder", MAY_INCLUDE)
    if what == "chapters":
        return floors_page("chapter", CHAPTERS)
    if what.startswith("features "):
        _, document, name = what.split()
        return feature_rows.page(ROOT / "src/spec" / document, page.parent / name, tests, feature_rows.existing_mutants())
    if what.startswith("faults "):
        _, source, name, group = what.split()
        return faults_page(ROOT / source, page.parent / name, group, tests)
    if what.startswith("rows "):
        return rows_page(page.parent / what.removeprefix("rows "), tests)
    return None


def generate(what, page, program, tests):
    made = without_program(what, page, tests)
    if made is not None:
        return made
    kind, _, argument = what.partition(" ")
    done = subprocess.run([program, "docs", kind], capture_output=True, text=True)
    if done.returncode != 0 or argument:
        raise Problem(f"softhca docs {what}: {done.stderr.strip()}")
    return done.stdout


def remade(page, make):
    """The text that the page should have. make(what) returns the text of a part."""
    return PART.sub(lambda part: part[1] + make(part[2]).rstrip("\n") + "\n" + part[4], page.read_text())


def stale(docs, tests):
    """Errors of the pages that can be found without the program."""
    for page in sorted(docs.glob("*.md")):
        def make(what, page=page):
            made = without_program(what, page, tests)
            if made is not None:
                return made
            return next(part[3] for part in PART.finditer(page.read_text()) if part[2] == what)
        try:
            if remade(page, make) != page.read_text():
                yield f"{page.name} is stale: make docs"
        except Problem as problem:
            yield str(problem)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the softhca program")
    parser.add_argument("--docs", type=pathlib.Path, default=ROOT / "docs")
    args = parser.parse_args()
    tests, failed = test_names.existing(), False
    for page in sorted(args.docs.glob("*.md")):
        try:
            text = remade(page, lambda what, page=page: generate(what, page, args.program, tests))
        except Problem as problem:
            print(problem)
            failed = True
            continue
        if text != page.read_text():
            page.write_text(text)
            print(f"{page.name} made anew")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
