#!/usr/bin/env python3
"""test_times.py JUNIT: writes docs/test-times.md from what ctest has noted of a whole run (`make test-times`)."""

import argparse
import collections
import pathlib
import re
import xml.etree.ElementTree

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/test-times.md"
SHOWN = 2.0  # seconds from which a test has a row of its own

TEXT = """# How long the tests take

`make test-times` has written this page from one run of `make test`{machine}: {count} tests in {wall}.
The tests run beside each other, so their seconds add up to more.

## By kind

| kind | tests | seconds |
|---|---|---|
{kinds}

## Tests of {shown:g} s and more

| seconds | test |
|---|---|
{tests}
"""


def parse_arguments():
    parser = argparse.ArgumentParser(prog="tools/test_times.py", description=__doc__)
    parser.add_argument("junit", type=pathlib.Path)
    parser.add_argument("--machine", default="", help="what to say of the machine")
    return parser.parse_args()


def kind(name):
    """A guest's tests are of one kind, and so are those of a program."""
    if name.startswith("guest."):
        return f"guest `{name.rpartition('.')[2]}`"
    return f"`{re.split(r'[.]', name)[0]}`"


def minutes(seconds):
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def main():
    options = parse_arguments()
    suite = xml.etree.ElementTree.parse(options.junit).getroot()
    times = {case.get("name"): float(case.get("time")) for case in suite.iter("testcase")}
    kinds = collections.defaultdict(list)
    for name, seconds in times.items():
        kinds[kind(name)].append(seconds)
    longest_first = sorted(kinds.items(), key=lambda item: -sum(item[1]))
    PAGE.write_text(TEXT.format(
        machine=f" on {options.machine}" if options.machine else "", count=len(times), wall=minutes(float(suite.get("time"))), shown=SHOWN,
        kinds="\n".join(f"| {name} | {len(seconds)} | {sum(seconds):.1f} |" for name, seconds in longest_first),
        tests="\n".join(f"| {seconds:.1f} | `{name}` |" for name, seconds in sorted(times.items(), key=lambda item: -item[1])
                        if seconds >= SHOWN)))


if __name__ == "__main__":
    main()
