#!/usr/bin/env python3
"""Compares the lines of the oracle in a guest and under `softhca run`.

    compare.py GUEST DOOR [--rules docs/oracle.md] [--reference GUEST] [--diff FILE]

GUEST and DOOR are files of lines `name = result`. A difference is explained by a row of one of the tables in the
page: between `<!-- rules -->` and `<!-- end of rules -->` stand tables whose columns are

    | lines | Linux | door | why |

The first three are regular expressions in backticks, which match the whole name and the whole results; an empty one
matches everything. `\\|` is a bar. Fails on a difference that no row explains, on a row that explains nothing, on a name
that occurs twice, on a side without lines, and on a page that says "more than N lines" of fewer. `--reference` names
the lines of the Linux that the door follows, where GUEST are those of another version: an answer of the door that is
the reference's is explained. `--diff` writes the unexplained differences, sorted by name.
"""
import argparse
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RULES = re.compile(r"<!-- rules -->\n(.*?)<!-- end of rules -->", re.S)
CELL = re.compile(r"(?<!\\)\|")
NOTHING = "(no line)"

Rule = collections.namedtuple("Rule", "lines linux door why")
OTHER_LINUX = Rule("", "", "", "The Linux that the door follows answers as the door does")


class Problem(Exception):
    pass


def read_rules(text):
    """The rows of all tables between the marks."""
    rules = []
    for part in RULES.findall(text):
        for row in part.splitlines():
            if not row.startswith("| `"):
                continue
            cells = [cell.strip().replace("\\|", "|") for cell in CELL.split(row)[1:-1]]
            if len(cells) != 4 or not cells[3]:
                raise Problem(f"a rule has four columns, the last of which says why: {row}")
            try:
                rules.append(Rule(*(re.compile(cell.strip("`") or ".*") for cell in cells[:3]), cells[3]))
            except re.error as error:
                raise Problem(f"{row}: {error}") from error
    return rules


def read_lines(text, side):
    lines = {}
    for row in text.splitlines():
        name, _, result = row.partition(" = ")
        if name in lines:
            raise Problem(f"{side}: {name} occurs twice")
        lines[name] = result
    if not lines:
        raise Problem(f"{side}: no lines")
    return lines


def claimed(text):
    """The number of lines that the page promises to exceed."""
    claim = re.search(r"more than ([\d,]+) lines", text)
    return int(claim[1].replace(",", "")) if claim else 0


def differences(guest, door):
    """(name, Linux, door) of each line that differs, in the guest's order; lines of one side alone among them."""
    for name in [*guest, *(name for name in door if name not in guest)]:
        linux, ours = guest.get(name, NOTHING), door.get(name, NOTHING)
        if linux != ours:
            yield name, linux, ours


def explain(rules, difference):
    for rule in rules:
        if all(pattern.fullmatch(part) for pattern, part in zip(rule, difference)):
            return rule
    return None


def compare(guest, door, rules, reference=None):
    """(differences explained, by rule; those that no rule explains)."""
    explained, left = collections.Counter(), []
    for difference in differences(guest, door):
        name, _, ours = difference
        same = reference is not None and reference.get(name, NOTHING) == ours
        rule = OTHER_LINUX if same else explain(rules, difference)
        if rule:
            explained[rule] += 1
        else:
            left.append(difference)
    return explained, left


def chapter(name):
    return name.partition("/")[0].partition(".")[0]


def report(guest, door, explained, left):
    names = len(guest.keys() | door.keys())
    print(f"{names} observations: {names - explained.total() - len(left)} equal, {explained.total()} explained, "
          f"{len(left)} not")
    for rule, count in explained.most_common():
        print(f"  {count:5} {rule.why}")
    for name, count in sorted(collections.Counter(chapter(name) for name, _, _ in left).items()):
        print(f"  {count:5} not explained in chapter {name}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("guest", type=pathlib.Path)
    parser.add_argument("door", type=pathlib.Path)
    parser.add_argument("--rules", type=pathlib.Path, default=ROOT / "docs/oracle.md")
    parser.add_argument("--reference", type=pathlib.Path)
    parser.add_argument("--diff", type=pathlib.Path)
    parser.add_argument("--some", action="store_true", help="a part of the chapters: rules may match nothing")
    options = parser.parse_args()
    try:
        page = options.rules.read_text()
        rules = read_rules(page)
        guest, door, reference = (path and read_lines(path.read_text(errors="replace"), path.name)
                                  for path in (options.guest, options.door, options.reference))
    except (Problem, OSError) as problem:
        print(f"compare.py: {problem}", file=sys.stderr)
        return 2
    explained, left = compare(guest, door, rules, reference)
    report(guest, door, explained, left)
    rows = [f"{name}: Linux {linux}; door {ours}\n" for name, linux, ours in left]
    if options.diff:
        options.diff.write_text("".join(sorted(rows)))
    sys.stdout.writelines(rows[:200])
    if len(rows) > 200:
        print(f"... and {len(rows) - 200} more")
    unused = [] if options.some else [rule for rule in rules if rule not in explained]
    for rule in unused:
        print(f"a rule that explains nothing: {rule.lines.pattern} ({rule.why})")
    stale = not options.some and len(guest.keys() | door.keys()) <= claimed(page)
    if stale:
        print(f"{options.rules.name} promises more than {claimed(page)} lines")
    return 1 if left or unused or stale else 0


if __name__ == "__main__":
    sys.exit(main())
