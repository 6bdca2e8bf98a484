#!/usr/bin/env python3
"""The repository checks itself: rules that no compiler knows. Run by `make tidy` and as a test.

- A folder of src/ includes only itself and the folders above it (docs/architecture.md).
- Lines have at most 100 columns; files at most 700 lines; no tabs, no trailing blanks.
- Every folder of src/ has a README.md with a part "What it does not implement".
- Headers begin with a comment and `#pragma once`.
- Tests that docs/ and READMEs name exist; pages that are made of rows (tools/docs.py) are not stale.
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import docs  # noqa: E402
import test_names  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent

# May include: itself, and what is listed. The order is the one of docs/architecture.md.
MAY_INCLUDE = {
    "util": set(),
    "spec": {"util"},
    "wire": {"util", "spec"},
    "fabric": {"util", "spec", "wire"},
    "pcie": {"util"},
    "rdma": {"util", "spec", "wire", "fabric", "pcie"},
    "ethernet": {"util", "wire"},
    "hca": {"util", "pcie", "rdma"},
    "connectx": {"util", "spec", "wire", "fabric", "pcie", "rdma", "ethernet", "hca"},
    "sdxi": {"util", "spec", "pcie"},
    "vfio_user": {"util", "pcie"},
    "driver": {"util", "spec", "pcie", "vfio_user"},
    "cli": {"util", "fabric", "pcie", "connectx", "sdxi", "vfio_user", "driver", "spec", "wire"},
}
COLUMNS_MAX = 100
LINES_MAX = 700


def tracked(*patterns):
    out = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, check=True, capture_output=True)
    return [ROOT / name for name in out.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def check_includes(path, text, problems):
    folder = path.relative_to(ROOT / "src").parts[0]
    allowed = MAY_INCLUDE.get(folder)
    if allowed is None:
        problems.append(f"{path.relative_to(ROOT)}: folder {folder} is not in tools/tidy.py")
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'#include "([^/"]+)/', line)
        if match and match[1] != folder and match[1] in MAY_INCLUDE and match[1] not in allowed:
            problems.append(f"{path.relative_to(ROOT)}:{number}: {folder}/ may not include {match[1]}/")


def check_text(path, text, problems):
    name = path.relative_to(ROOT)
    lines = text.splitlines()
    if len(lines) > LINES_MAX:
        problems.append(f"{name}: {len(lines)} lines; split it by subject (at most {LINES_MAX})")
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX:
            problems.append(f"{name}:{number}: {len(line)} columns (at most {COLUMNS_MAX})")
        if line != line.rstrip():
            problems.append(f"{name}:{number}: trailing blank")
        if "\t" in line:
            problems.append(f"{name}:{number}: tab")
    if path.suffix == ".h" and not (text.startswith("//") and "#pragma once" in text):
        problems.append(f"{name}: a header begins with a comment that says what it is, and has #pragma once")


def main():
    problems = []
    sources = tracked("*.h", "*.cc")
    for path in sources:
        text = path.read_text()
        check_text(path, text, problems)
        if path.is_relative_to(ROOT / "src"):
            check_includes(path, text, problems)
    for folder in MAY_INCLUDE:
        readme = ROOT / "src" / folder / "README.md"
        if not (ROOT / "src" / folder).is_dir():
            problems.append(f"src/{folder}: listed in tools/tidy.py but not there")
        elif not readme.exists():
            problems.append(f"src/{folder}: no README.md")
        elif "does not implement" not in readme.read_text():
            problems.append(f"src/{folder}/README.md: no part \"What it does not implement\"")
    tests = test_names.existing()
    for path in tracked("*.md"):
        for number, name in test_names.cited(path.read_text()):
            if name not in tests:
                problems.append(f"{path.relative_to(ROOT)}:{number}: there is no test {name}")
    problems += docs.stale(ROOT / "docs", tests)
    for problem in problems:
        print(problem)
    print(f"{len(sources)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
