"""Making patches, keeping them fresh, and checking them without building anything."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from mutant import HERE, ROOT, header, parse, split

CONTEXT = 2  # lines: enough to find the place, few enough to survive changes around it


def git(*arguments, cwd=ROOT, **options):
    return subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True, **options)


def new(chosen):
    """--new: from stdin, or from what is changed below src/ and not committed."""
    diff = "" if sys.stdin.isatty() else sys.stdin.read()
    if not diff.strip():
        diff = git("diff", f"-U{CONTEXT}", "--", "src", check=True).stdout
    if not diff.strip():
        print("nothing is changed below src/, and no diff came on stdin")
        return 1
    folder, _, name = chosen.new.removesuffix(".patch").partition("/")
    if not re.fullmatch(r"[a-z0-9_]+", folder) or not re.fullmatch(r"[a-z0-9_]+", name):
        print("--new wants FOLDER/NAME, of small letters, digits and underscores")
        return 1
    if not re.match(r"\d{3}_", name):
        numbers = [int(path.name[:3]) for path in (HERE / folder).glob("[0-9][0-9][0-9]_*.patch")]
        name = f"{max(numbers, default=0) + 1:03}_{name}"
    path = HERE / folder / f"{name}.patch"
    if path.exists():
        print(f"{path} exists")
        return 1
    path.parent.mkdir(exist_ok=True)
    path.write_text(header(chosen.text, chosen.section, chosen.test, chosen.filter, chosen.expect) + plain(diff))
    mutant = parse(path)
    if isinstance(mutant, str):
        path.unlink()
        print(mutant)
        return 1
    print(f"{path.relative_to(ROOT)}\nNow take the change back: git checkout {' '.join(mutant.files)}\n"
          f"and see it die: tests/mutations/run --only {mutant.name}")
    return 0


def plain(diff):
    """Without git's lines about blobs, which say nothing here."""
    return "".join(line for line in diff.splitlines(keepends=True) if not re.match(r"(diff --git|index) ", line))


def check(mutants, problems, build):
    """--check: every patch applies to this tree, and every test that it names exists."""
    listings = {}
    for mutant in mutants:
        result = git("apply", "--check", str(mutant.path))
        if result.returncode:
            problems.append(f"{mutant.name} does not apply (tests/mutations/run --refresh may help):\n{result.stderr}")
        program = build / "tests" / mutant.program
        if program not in listings:
            listings[program] = tests_of(program)
        if not any(matches(test, mutant.filter) for test in listings[program]):
            problems.append(f"{mutant.name}: {mutant.program} has no test {mutant.filter}")
    numbers = {}
    for mutant in mutants:
        key = mutant.path.parent.name, mutant.path.name[:3]
        if key in numbers:
            problems.append(f"{mutant.name} and {numbers[key]} have the same number")
        numbers[key] = mutant.name
    for problem in problems:
        print(problem)
    print(f"{len(mutants)} mutants, {len(problems)} problems")
    return 1 if problems or not mutants else 0


def tests_of(program):
    out = subprocess.run([program, "--gtest_list_tests"], check=True, capture_output=True, text=True).stdout
    names, suite = [], ""
    for line in out.splitlines():
        word = line.split("#")[0].strip()
        if line.startswith("  "):
            names.append(suite + word)
        elif word.endswith("."):
            suite = word
    return names


def matches(test, filters):
    """As gtest does: patterns by colon, * and ?, what is unwanted after a minus."""
    wanted, _, unwanted = filters.partition("-")

    def any_of(patterns):
        texts = [re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".") for pattern in patterns.split(":") if pattern]
        return any(re.fullmatch(text, test) for text in texts)

    return any_of(wanted or "*") and not any_of(unwanted)


def refresh(mutants):
    """--refresh: a patch that fits with one line of context is written anew with the context of today."""
    failed = 0
    for mutant in mutants:
        if git("apply", "--check", str(mutant.path)).returncode == 0:
            continue
        diff = diff_of_today(mutant)
        if diff is None:
            print(f"{mutant.name}: does not fit any more")
            failed += 1
        else:
            mutant.path.write_text(split(mutant.path.read_text())[0] + diff)
            print(f"{mutant.name}: written anew")
    return 1 if failed else 0


def diff_of_today(mutant):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for side in ("a", "b"):
            for name in mutant.files:
                if not (ROOT / name).is_file():
                    return None
                (folder / side / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, folder / side / name)
        # Without a repository: git apply works on the files below its directory.
        if git("apply", "-C1", str(mutant.path), cwd=folder / "b").returncode:
            return None
        return plain(git("diff", "--no-index", "--no-prefix", f"-U{CONTEXT}", "a", "b", cwd=folder).stdout)
