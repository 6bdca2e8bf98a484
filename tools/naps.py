"""Finds tests that sleep or try again: a rule of tools/tidy.py.

A test waits for an event: a listener, a printed line, a counter. One that naps instead fails on a busy machine, and one that
tries again hides what failed. tests/naps.txt has the exceptions: a file, how many, and why.
"""
import pathlib
import re

LIST = "tests/naps.txt"
# The files that the rule is for, and those of them that only mention naps.
SCANNED = ("tests/", "bench/", "Makefile", ".ci/")
SPEAK_OF_THEM = (LIST, "tests/tools/naps_test.py", "tests/mutations/")
CPP = (".cc", ".h")
# `exec sleep 100` is a program that runs until the test kills it, not a nap.
NAP = re.compile(r"\bsleep_(?:for|until)\s*\(|\bu?sleep\s*\(\s*[^)\s]|\bnanosleep\s*\(|(?<!exec )\bsleep\s+(?:infinity\b|[\d.$\"'{])")
RETRY = re.compile(r"\bfor\s+(?:try|tries|attempts?|retry|retries)\s+in\b|\bfor\s+\w+\s+in\s+1 2 3\b|"
                   r"\b(?:attempts?|retries)\s*=[^=;]*;[^;]*;|--repeat\b|--rerun-failed|until-pass|after-timeout:")
# Words with which scripts describe a second try. C++ uses them for packets.
SAID = re.compile(r"\bonce more\b|\bbest of\b|\btr(?:y|ies) again\b", re.I)
# Each line of these forms has one of these words. Most lines have none, and are searched once.
HINT = re.compile(r"sleep|tr(?:y|ies)|attempt|1 2 3|repeat|rerun|until-pass|after-timeout|once more|best of", re.I)


def code_of(name, line):
    """Without its comment."""
    return re.sub(r"//.*", "", line) if name.endswith(CPP) else re.sub(r"(?:^|(?<=\s))#.*", "", line)


def find(name, text):
    """Yields (line number, line) of what is refused, exceptions or not."""
    if not name.startswith(SCANNED) or name.startswith(SPEAK_OF_THEM) or name.endswith((".md", ".txt")):
        return
    for number, line in enumerate(text.splitlines() if HINT.search(text) else (), 1):
        if not HINT.search(line):
            continue
        code = code_of(name, line)
        if NAP.search(code) or RETRY.search(code) or (not name.endswith(CPP) and SAID.search(line)):
            yield number, line.strip()


def exceptions(text):
    """{file: (how many, why)} of the list's text."""
    rows = (line.split("|") for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {name.strip(): (int(count), why.strip()) for name, count, why in rows}


def check(files, listed):
    """Problems of `files`, name to text, beyond those that are listed, and notes on what the list no longer needs."""
    problems, notes = [], []
    for name, text in sorted(files.items()):
        found = list(find(name, text))
        count = listed.get(name, (0, ""))[0]
        if len(found) > count:
            beyond = f" ({count} are listed)" if count else ""
            problems += [f"{name}:{number}: a nap or a second try; wait for an event, or say why in {LIST}{beyond}: {line}"
                         for number, line in found]
        elif len(found) < count:
            notes.append(f"{LIST}: {name} has {len(found)}, not {count}")
    notes += [f"{LIST}: there is no {name}" for name in sorted(set(listed) - set(files))]
    problems += [f"{LIST}: {name}: no reason" for name, (_, why) in sorted(listed.items()) if not why]
    return problems, notes


def read(path: pathlib.Path):
    return exceptions(path.read_text()) if path.exists() else {}
