"""Making mutants, and checking them without building anything."""
import functools
import re
import runpy
import subprocess

from mutant import EDIT_KEYS, EQUIVALENT, HERE, KEYS, LIVES, ROOT, load, parse
from random_mutants import stale


def git(*arguments, **options):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, **options)


def new(chosen):
    """--new: makes an entry from the uncommitted changes below src/."""
    changed = git("diff", "--name-only", "--", "src", check=True).stdout.split()
    if not changed:
        print("nothing is changed below src/")
        return 1
    chapter, _, name = chosen.new.partition("/")
    if not re.fullmatch(r"[a-z0-9_]+", chapter) or not re.fullmatch(r"[a-z0-9_]+", name):
        print("--new wants CHAPTER/NAME, of small letters, digits and underscores")
        return 1
    edits = []
    for file in changed:
        before = git("show", f"HEAD:{file}", check=True).stdout
        edits += edits_of(file, before, git("diff", "-U0", "--", file, check=True).stdout)
    entry = {"name": name, "what": chosen.text, "section": chosen.section, "test": chosen.test, "filter": chosen.filter,
             **({"expect": chosen.expect} if chosen.expect != "assertion" else {}),
             **(edits[0] if len(edits) == 1 else {"edit": edits})}
    mutant = parse(chapter, entry)
    if isinstance(mutant, str):
        print(mutant)
        return 1
    if any(other.name == mutant.name for other in load([])[0]):
        print(f"{mutant.name} exists")
        return 1
    path = HERE / f"{chapter}.toml"
    with open(path, "a", encoding="utf-8") as file:
        file.write(("\n" if path.stat().st_size else "") + entry_text(entry))
    print(f"{mutant.name} is in {path.relative_to(ROOT)}\nNow take the change back: git checkout {' '.join(mutant.files)}\n"
          f"and see it die: tests/mutations/run --only {mutant.name}")
    return 0


def edits_of(file, before, diff):
    """The hunks of a diff without context, each with as many lines around it as make its text unique in `before`."""
    lines = before.splitlines(keepends=True)
    edits = []
    for found in re.finditer(r"^@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@.*\n((?:[-+\\].*\n?)*)", diff, re.MULTILINE):
        count = int(found[2]) if found[2] is not None else 1
        first = int(found[1]) - 1 if count else int(found[1])
        added = "".join(line[1:] for line in found[3].splitlines(keepends=True) if line.startswith("+"))
        edits.append(unique_edit(file, before, lines, first, first + count, added))
    return edits


def unique_edit(file, before, lines, first, end, added):
    start, stop = first, end
    grow_up = True
    while before.count("".join(lines[start:stop])) != 1 or start == stop:
        # In turn: a line above, a line below.
        if (grow_up and start > 0) or stop == len(lines):
            start -= 1
        else:
            stop += 1
        grow_up = not grow_up
    text = "".join(lines[start:stop])
    return {"file": file, "text": text, "replacement": "".join(lines[start:first]) + added + "".join(lines[end:stop])}


def quoted(text):
    """A TOML string: on one line where that is readable, else as it is."""
    if "'''" in text or any(ord(c) < 32 and c not in "\n\t" for c in text):
        raise ValueError(f"cannot be quoted: {text!r}")
    if "\n" in text:
        return f"'''\n{text}'''"
    return f"'{text}'" if '"' in text or "\\" in text else f'"{text}"'


def entry_text(entry):
    lines = ["[[mutant]]"]
    for key in (*KEYS, "expect", *EDIT_KEYS):
        if key in entry:
            lines.append(f"{key} = {quoted(entry[key])}")
    for edit in entry.get("edit", []):
        lines += ["[[mutant.edit]]", *(f"{key} = {quoted(edit[key])}" for key in EDIT_KEYS)]
    return "\n".join(lines) + "\n"


def check(mutants, problems, build):
    """--check: every text occurs once in its file, every test that is named exists, no equivalent one is stale."""
    problems += [f"{EQUIVALENT.name}: {problem}" for problem in stale()]
    listings = {}
    for mutant in mutants:
        problems += mutant.problems()
        program = build / "tests" / mutant.program
        if program not in listings:
            listings[program] = tests_of(program)
        if not is_among(listings[program], mutant.program, mutant.filter):
            problems.append(f"{mutant.name}: {mutant.program} has no test {mutant.filter}")
    for problem in problems:
        print(problem)
    print(f"{len(mutants)} mutants, {len(problems)} problems")
    return 1 if problems or not mutants else 0


def tests_of(program):
    if program.name == LIVES:
        return list(runpy.run_path(str(ROOT / "tests/door/lives.py"))["CASES"])
    out = subprocess.run([program, "--gtest_list_tests"], check=True, capture_output=True, text=True).stdout
    names, suite = [], ""
    for line in out.splitlines():
        word = line.split("#")[0].strip()
        if line.startswith("  "):
            names.append(suite + word)
        elif word.endswith("."):
            suite = word
    return names


def is_among(listing, program, filters):
    return filters in listing if program == LIVES else any(matches(test, filters) for test in listing)


def matches(test, filters):
    """Matches like gtest: patterns separated by colons, with * and ?; exclusions follow a minus."""
    wanted, _, unwanted = filters.partition("-")
    return bool(any_of(wanted or "*").fullmatch(test)) and not any_of(unwanted).fullmatch(test)


@functools.cache
def any_of(patterns):
    """One expression for all patterns. Without any, it matches no test."""
    texts = [re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".") for pattern in patterns.split(":") if pattern]
    return re.compile("|".join(texts) or "(?!)")
