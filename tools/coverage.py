#!/usr/bin/env python3
"""Measures what tests and fuzzers reach: tools/coverage.py BUILD, with a build of the preset coverage.

Runs all unit tests but those of many seeds, and the fuzzers over their inputs. Writes BUILD/lines.txt (the lines of each file
of src/ that no run reaches), BUILD/functions.txt (each function, and the runs that reach it) and docs/coverage.md (a table of
lines by folder; the functions that no run reaches, with the reasons written by hand).
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOC = ROOT / "docs/coverage.md"
LONG_TESTS = "*RcSoak*:*ImpairedWire*"
WHO = ("tests", "fuzzers")
HEAD = """# What no test and no fuzzer reaches

`make coverage` writes this page: how many lines of each folder of `src/` unit tests and fuzzers execute, and the functions that neither calls, with
the reason. The reasons are written by hand and stay.

- Only lines for which the compiler generates code are counted. `build-coverage/lines.txt` lists the lines of each file that nothing executes.
- The counts include unit tests, without those of many seeds, and the inputs of the fuzzers. They do not include guests, host programs under `softhca run`,
  `tests/neighbours` and `tests/soak`. A folder whose code runs only there shows few lines.
- `build-coverage/functions.txt` lists each function, and whether tests and fuzzers call it.

"""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--keep", action="store_true", help="count what the last run has left")
    return parser.parse_args()


def commands(build):
    """(runner, command) of each run."""
    for test in sorted((build / "tests").glob("*_test")):
        if test.name not in ("neighbours_test", "soak_test"):
            yield "tests", [test, "--gtest_brief=1", f"--gtest_filter=-{LONG_TESTS}"]
    for replay in sorted((build / "fuzz").glob("*_replay")):
        yield "fuzzers", [replay, build / "fuzz/corpus" / replay.name.removesuffix("_replay")]


def run(build, who, command):
    # %m: one file for each program; %c: it is mapped, and counts without a write at the end.
    environment = {**os.environ, "LLVM_PROFILE_FILE": f"{build}/profiles/{who}/%m%c.profraw"}
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=900)
    print(f"{command[0].name:26} {'done' if done.returncode == 0 else f'FAILED ({done.returncode})'}", flush=True)


def functions(build, who, programs):
    """{(file, name): (lines, lines reached)}; for a template, the instance with the most lines reached."""
    profile = build / f"profiles/{who}.profdata"
    raw = list((build / "profiles" / who).glob("*.profraw"))
    subprocess.run(["llvm-profdata-19", "merge", "-sparse", "-o", profile, *raw], check=True)
    objects = [word for program in programs[1:] for word in ("-object", program)]
    report = subprocess.run(
        ["llvm-cov-19", "report", "-show-functions", "-Xdemangler=c++filt", "-Xdemangler=-p",
         f"-instr-profile={profile}", programs[0], *objects, ROOT / "src"],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    found, file = {}, None
    for line in report.splitlines():
        if opened := re.match(r"File '(.*)':", line):
            file = os.path.relpath(opened[1], ROOT)
        elif row := re.match(r"(\S.*?)\s+\d+\s+\d+\s+\S+\s+(\d+)\s+(\d+)\s+\S+\s+\d+\s+\d+\s+\S+\s*$", line):
            name = plain(row[1])
            lines, missed = int(row[2]), int(row[3])
            if row[1] != "TOTAL" and (file, name) not in found or lines - missed > found.get((file, name), (0, 0))[1]:
                found[file, name] = (lines, lines - missed)
    return {key: value for key, value in found.items() if key[1] != "TOTAL"}


def lines_of(report):
    """{file: {line: count}} of a report in lcov's format."""
    found, file = {}, {}
    for line in report.splitlines():
        if line.startswith("SF:"):
            file = found.setdefault(os.path.relpath(line[3:], ROOT), {})
        elif line.startswith("DA:"):
            number, count = map(int, line[3:].split(",")[:2])
            file[number] = max(file.get(number, 0), count)
    return found


def lines(build, who, programs):
    """{file: {line: count}} of what `who` has run; functions() has merged the profile."""
    objects = [word for program in programs[1:] for word in ("-object", program)]
    return lines_of(subprocess.run(
        ["llvm-cov-19", "export", "-format=lcov", f"-instr-profile={build}/profiles/{who}.profdata", programs[0], *objects, ROOT / "src"],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout)


def plain(name):
    """Without the file that llvm-cov puts before internal names, template arguments, and namespaces of no interest."""
    name = re.sub(r"^[\w./-]+\.(?:cc|h|inc)[:;]", "", name)
    if instance := re.match(r"_ZN7softhca\d+(\w+?)12_GLOBAL__N_1\d+([a-z]+)I", name):
        return f"{instance[1]}::{instance[2]}"  # c++filt cannot read some of template arguments
    name = name.replace("(anonymous namespace)::", "").replace("softhca::", "")
    while (shorter := re.sub(r"(?<!operator)(?<!operator<)<[^<>]*>", "", name)) != name:
        name = shorter
    return re.sub(r"\(\)::\{?'?lambda.*|::\$_\d+.*|\{lambda.*", " (a lambda)", name)


def folder_of(file):
    parts = file.split("/")
    return "/".join(parts[1:3]) if parts[1] in ("spec", "connectx") and len(parts) > 3 else parts[1]


def reasons():
    if not DOC.exists():
        return {}
    rows = re.findall(r"^\| `(.+?)` \| `(.+?)` \| (.*?) ?\|$", DOC.read_text(), re.M)
    return {(file, name): why for name, file, why in rows}


def reason_of(file, name):
    """The reason for a function that runs only at compile time."""
    word = re.escape(re.sub(r" \(a lambda\)$|\(.*", "", name).split("::")[-1])
    defined = re.search(rf"\b(constexpr|consteval)\b[^;{{}}]*?\b{word}\(", (ROOT / file).read_text())
    return "constexpr: done by the compiler" if defined else ""


def summarize(by_who, folders):
    """Rows of the table by folder, from {who: {file: {line: count}}}. `folders`: all that have a row."""
    rows = {folder: [0, 0, 0, 0] for folder in folders}
    for file in sorted(set().union(*by_who.values())):
        row = rows.setdefault(folder_of(file), [0, 0, 0, 0])
        for line in set().union(*(by_who[who].get(file, {}) for who in WHO)):
            by = [by_who[who].get(file, {}).get(line, 0) > 0 for who in WHO]
            for place, counted in enumerate((True, *by, not any(by))):
                row[place] += counted
    out = ["| folder | lines | by tests | by fuzzers | by neither | reached |", "|---|---|---|---|---|---|"]
    total = [sum(column) for column in zip(*rows.values())]
    for name, row in [*sorted(rows.items()), ("all", total)]:
        share = f"{100 * (row[0] - row[3]) / row[0]:.1f} %" if row[0] else "-"
        out.append(f"| {name} | " + " | ".join(map(str, row)) + f" | {share} |")
    return out


def unreached(by_who):
    """Lines of text: each file, and the ranges of its lines that no run reaches."""
    for file in sorted(set().union(*by_who.values())):
        counts = collections.Counter()
        for who in WHO:
            for line, count in by_who[who].get(file, {}).items():
                counts[line] += count
        ranges = []
        for line in sorted(line for line, count in counts.items() if count == 0):
            if ranges and ranges[-1][1] == line - 1:
                ranges[-1][1] = line
            else:
                ranges.append([line, line])
        if ranges:
            yield f"{file}: " + ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def main():
    options = parse_arguments()
    build = options.build.resolve()
    if not options.keep:
        shutil.rmtree(build / "profiles", ignore_errors=True)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda one: run(build, *one), commands(build)))
    # No test runs the library here, so a part of it that no test links counts as reached by no run.
    programs = [command[0] for _, command in commands(build)]
    programs += [path for path in (build / "softhca", build / "libsofthca.so") if path.exists()]
    by_who = {who: functions(build, who, programs) for who in WHO}
    keys = sorted(set().union(*by_who.values()))
    reached = {key: {who: by_who[who].get(key, (0, 0))[1] > 0 for who in WHO} for key in keys}
    with (build / "functions.txt").open("w") as out:
        for file, name in keys:
            most = max(by_who[who].get((file, name), (0, 0))[0] for who in WHO)
            parts = [f"{who} {by_who[who].get((file, name), (0, 0))[1]}" for who in WHO]
            print(f"{file}: {name}: {', '.join(parts)} of {most} lines", file=out)
    why = collections.defaultdict(str, reasons())
    line_counts = {who: lines(build, who, programs) for who in WHO}
    (build / "lines.txt").write_text("".join(f"{line}\n" for line in unreached(line_counts)))
    table = summarize(line_counts, {folder_of(str(path.relative_to(ROOT))) for path in (ROOT / "src").rglob("*.cc")})
    nobody = [key for key in keys if not any(reached[key].values())]
    for key in nobody:
        why[key] = why[key] or reason_of(*key)
    rows = [f"| `{name}` | `{file}` | {why[file, name]} |" for file, name in nobody]
    DOC.write_text(HEAD + "\n".join(table) + "\n\n| function | file | why |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    print("\n".join(table))
    print(f"lines that nothing reaches: {build / 'lines.txt'}; each function: {build / 'functions.txt'}; those that nothing reaches: {DOC}")
    for file, name in nobody:
        if not why[file, name]:
            print(f"reached by neither, and no reason given: {file}: {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
