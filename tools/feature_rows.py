"""The page with one row for each rule of a document: `<!-- generated: features DOCUMENT FILE.toml -->` (tools/docs.py).

FILE.toml:

    sections = ["3.1", "table 3-1-1"]   all sections and tables of the document; each is in a row
    [[part]]
    title = "Registers"
    layouts = ["hcr", "hcr_status"]     of src/spec/DOCUMENT/*.layout: a row for each field or value
    [[part.row]]                        a rule that is no field
    name = "size of BAR0"
    section = "3.1, table 3-1-1"
    status = "done"                     done, ignored, refused or absent
    words = "1 MiB"                     what the status does not say; ignored and absent need a reason here, or a test
    tests = ["Suite.Name"]
    mutants = ["chapter/name"]          of tests/mutations/; each names one of the row's tests in its filter

    [layout.hcr]                        section (default: the layout's own); tests of fields without an entry;
    unused = ["Suite.Name"]             tests of fields without an entry whose note begins with "unused"
    [layout.hcr.go]                     one field or value: section, status, words, tests, mutants, all optional
"""
import fnmatch
import pathlib
import re
import tomllib

import layout_compiler

ROOT = pathlib.Path(__file__).resolve().parent.parent
STATUS = ("done", "ignored", "refused", "absent")
ROW_KEYS = {"name", "section", "status", "words", "tests", "mutants"}
OWN_KEYS = {"section", "status", "words", "tests", "mutants"}
GROUP_KEYS = {"section", "tests", "unused"}
HEAD = ["| section | rule | status | tests | mutants |", "|---|---|---|---|---|"]


class Problem(Exception):
    pass


def existing_mutants(folder=ROOT / "tests/mutations"):
    """Name to filter of each entry of tests/mutations/<chapter>.toml."""
    return {f"{path.stem}/{entry['name']}": entry["filter"]
            for path in folder.glob("*.toml") for entry in tomllib.loads(path.read_text()).get("mutant", []) if "name" in entry}


def runs(filter_text, test):
    """Whether a filter of gtest runs a test, apart from instances of parameterized suites."""
    patterns = [re.sub(r"^[^./]*/", "", re.sub(r"(\.[^/]*)/.*$", r"\1", one)) for one in filter_text.split(":")]
    return any(fnmatch.fnmatchcase(test, pattern) for pattern in patterns)


def sections_of(text):
    """The sections that a row is about: "3.2.1.1, table 3-2-3 to table 3-2-5"."""
    for part in text.split(","):
        first, *last = part.strip().split(" to ")
        yield first
        match = re.fullmatch(r"(.*[.-])(\d+)", first)
        for number in range(int(match[2]), int(re.search(r"\d+$", last[0])[0]) + 1) if last else ():
            yield f"{match[1]}{number}"


def place_of(member):
    if member["kind"] == "field":
        bits = f"{member['hi']}:{member['lo']}" if member["hi"] != member["lo"] else str(member["hi"])
        return f"{member['offset']:02X}h {bits}"
    return f"{member['offset']:02X}h, " + {"bytes": f"{member['arg']} bytes", "tail": "to the end"}.get(member["kind"], member["arg"])


def layouts_of(folder):
    """Name to (section, [(name, place, note)]) of all enumerations and structures."""
    found = {}
    for path in sorted(folder.glob("*.layout")):
        _, _, _, structs, enums = layout_compiler.parse(path)
        for enum in enums:
            found[enum["name"]] = (enum["section"], [(name, f"{value:02X}h", note) for name, value, note in enum["values"]])
        for struct in structs:
            members = [(member["name"], place_of(member), member["note"]) for member in struct["members"]]
            found[struct["name"]] = (struct["section"], members)
    return found


class Rows:
    """All rows of a file, by part. Raises Problem."""

    def __init__(self, data, layouts):
        self.sections = data.get("sections", [])
        self.parts = []
        used = {name for part in data.get("part", []) for name in part.get("layouts", [])}
        entries = data.get("layout", {})
        if used != set(layouts) or not set(entries) <= used:
            raise Problem(f"layouts without a part or without a layout file: {sorted(used ^ set(layouts) | set(entries) - used)}")
        for part in data["part"]:
            rows = [row for name in part.get("layouts", []) for row in self._of_layout(name, layouts[name], entries.get(name, {}))]
            self.parts.append((part["title"], rows + part.get("row", [])))

    @staticmethod
    def _of_layout(name, layout, entry):
        section, members = layout
        known = {member[0] for member in members}
        own_names = {key for key, value in entry.items() if isinstance(value, dict)}
        wrong = own_names - known | set(entry) - own_names - GROUP_KEYS
        if wrong:
            raise Problem(f"layout.{name}: no layout has {sorted(wrong)}")
        section = entry.get("section") if isinstance(entry.get("section"), str) else section
        for member, place, note in members:
            unused = note.startswith("unused")
            own = entry[member] if member in own_names else {}
            if set(own) - OWN_KEYS:
                raise Problem(f"{name}.{member}: unknown {sorted(set(own) - OWN_KEYS)}")
            usual = entry.get("unused" if unused else "tests", [])
            note = f": {note}" if note and not unused else ""
            yield {"name": f"`{name}.{member}` {place}{note}", "section": section, "status": "ignored" if unused else "done",
                   "tests": usual if isinstance(usual, list) else [], **own}

    def check(self, tests, mutants):
        """All errors."""
        rows = [row for _, rows in self.parts for row in rows]
        for row in rows:
            name = row.get("name", "a row without name")
            missing = {"name", "section", "status"} - row.keys()
            if missing or row.keys() - ROW_KEYS:
                yield f"{name}: missing {sorted(missing)}, unknown {sorted(row.keys() - ROW_KEYS)}"
                continue
            if row["status"] not in STATUS:
                yield f"{name}: status {row['status']} is none of {', '.join(STATUS)}"
            cited = row.get("tests", [])
            if not cited and (row["status"] in ("done", "refused") or not row.get("words")):
                yield f"{name}: {row['status']}, and no test shows it"
            yield from (f"{name}: there is no test {test}" for test in cited if test not in tests)
            for mutant in row.get("mutants", []):
                if mutant not in mutants:
                    yield f"{name}: there is no mutant {mutant}"
                elif not any(runs(mutants[mutant], test) for test in cited):
                    yield f"{name}: {mutant} fails none of the row's tests"
        covered = {section for row in rows for section in sections_of(row.get("section", ""))}
        yield from (f"no row has section {section}" for section in self.sections if section not in covered)


def page(folder, path, tests, mutants):
    """A table for each part, and the totals."""
    try:
        rows = Rows(tomllib.loads(path.read_text()), layouts_of(folder))
    except Problem as problem:
        raise Problem(f"{path.name}: {problem}") from problem
    problems = list(rows.check(tests, mutants))
    if problems:
        raise Problem("\n".join(f"{path.name}: {problem}" for problem in problems))
    every = [row for _, part in rows.parts for row in part]
    counts = ", ".join(f"{sum(row['status'] == status for row in every)} {status}" for status in STATUS)
    bare = [sum(not row.get(key) for row in every) for key in ("tests", "mutants")]
    lines = [f"{len(every)} rows: {counts}. {bare[0]} without a test, {bare[1]} without a mutant.", ""]
    for title, part in rows.parts:
        lines += [f"## {title}", "", *HEAD, *map(line_of, part), ""]
    return "\n".join(lines)


def line_of(row):
    words = f": {row['words']}" if row.get("words") else ""
    cells = [", ".join(f"`{name}`" for name in row.get(key, [])) or "-" for key in ("tests", "mutants")]
    return f"| {row['section'].removeprefix('JingZhao ')} | {row['name']} | {row['status']}{words} | {cells[0]} | {cells[1]} |"
