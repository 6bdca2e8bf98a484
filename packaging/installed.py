#!/usr/bin/env python3
"""Makes the installed files that are derived from others: installed.py SOFTHCA VERSION FOLDER

- man pages of the commands that have none in packaging/man, from their --help;
- the pages of docs/, in which links to pages that are not installed become words;
- the changelog and the copyright file that Debian asks for.

Man pages and changelogs are compressed, without a time in them."""

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOC = "/usr/share/doc/softhca"
PAGES = ["README.md", "CHANGELOG.md", *(f"docs/{name}.md" for name in
         ("run", "first-program", "serve", "isolation", "perf", "performance", "debugging", "sdxi"))]
# The place where softhca looks for the examples that a page names.
EXAMPLES = "examples/libibverbs/hello_rdma.c"
MAINTAINER = "The softhca developers <softhca@localhost>"


def compress(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def help_of(softhca, *command):
    return subprocess.run([softhca, *command, "--help"], capture_output=True, text=True, check=True).stdout


def commands_of(text):
    return re.findall(r"^  ([a-z]+) ", text.partition("\nSubcommands:\n")[2].partition("\n\n")[0], re.M)


def roff(text):
    """A line of text as roff has it."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def items(block):
    """(tag, description) of each entry of a block of --help."""
    found = []
    for line in block.splitlines():
        entry = re.match(r"^  (\S.*?)(?:  +(.*))?$", line)
        if entry:
            found.append([entry[1].rstrip(), entry[2] or ""])
        elif line.strip() and found:
            found[-1][1] = f"{found[-1][1]} {line.strip()}".strip()
    return found


def man_page(softhca, *command):
    """The page of one command and of its subcommands."""
    name = "-".join(["softhca", *command])
    text = help_of(softhca, *command)
    summary, _, rest = text.partition("\nUsage: ")
    usage, _, rest = rest.partition("\n")
    out = [f'.TH {roff(name).upper()} 1 "" "softhca" "User Commands"', ".SH NAME",
           f"{roff(name)} \\- {roff(summary.strip()[:1].lower() + summary.strip()[1:])}", ".SH SYNOPSIS",
           f".B softhca {roff(' '.join(command))}", roff(re.sub(r"^.*?" + command[-1] + " ?", "", usage, count=1))]
    footer = []
    for block in re.split(r"\n{2,}", rest):
        title, _, body = block.strip("\n").partition("\n")
        if title in ("Positionals:", "Options:"):
            out.append(".SH " + {"Positionals:": "ARGUMENTS", "Options:": "OPTIONS"}[title])
            for tag, words in items(body):
                out += [".TP", f".B {roff(tag)}", roff(words)]
        elif title != "Subcommands:" and block.strip():
            footer += [".PP", ".nf", *(roff(line) for line in block.strip("\n").splitlines()), ".fi"]
    if footer:
        out += [".SH NOTES", *footer]
    for below in commands_of(text):
        out += [f".SH {roff(below).upper()}", *sub_command(softhca, *command, below)]
    return "\n".join([*out, ".SH SEE ALSO", ".BR softhca (1)", ""])


def sub_command(softhca, *command):
    text = help_of(softhca, *command)
    out = [roff(text.partition("\n")[0])]
    for block in re.split(r"\n{2,}", text):
        title, _, body = block.strip("\n").partition("\n")
        if title in ("Positionals:", "Options:"):
            for tag, words in items(body):
                out += [".TP", f".B {roff(tag)}", roff(words)]
    return out


def without_dead_links(text, page, names):
    """`names`: installed locations of the pages, by their path in the tree."""
    def link(match):
        words, target = match[1], match[2]
        path, _, part = target.partition("#")
        if "://" in target or not path:
            return match[0]
        inside = os.path.normpath(str(Path(page).parent / path))
        if inside in names:
            return f"[{words}]({names[inside]}{'#' + part if part else ''})"
        return words

    text = re.sub(r"\[([^\]\[]+)\]\(([^)\s]+)\)", link, text)
    # The programs are in the path, and the example is compiled in another folder.
    text = re.sub(r"\bbuild/softhca ", "softhca ", text)
    return re.sub(r"(?m)^(cc .*)examples/libibverbs/", rf"\1{DOC}/examples/libibverbs/", text)


def main(softhca, version, folder):
    folder = Path(folder)
    man = folder / "share/man/man1"
    written = {path.stem: path.read_text() for path in (ROOT / "packaging/man").glob("*.1")}
    for command in commands_of(help_of(softhca)):
        name = f"softhca-{command}"
        written.setdefault(name, man_page(softhca, command))
    for name, text in written.items():
        compress(man / f"{name}.1", text.replace('"softhca" "User Commands"', f'"softhca {version}" "User Commands"', 1))
    doc = folder / "share/doc/softhca"
    names = {page: Path(page).name for page in PAGES} | {EXAMPLES: EXAMPLES, "LICENSE": "copyright"}
    doc.mkdir(parents=True, exist_ok=True)
    for page in PAGES:
        (doc / names[page]).write_text(without_dead_links((ROOT / page).read_text(), page, names))
    # The date is that of the version, whenever the program was built.
    compress(doc / "changelog", f"softhca ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n"
                                f" -- {MAINTAINER}  Sat, 28 Nov 2026 00:00:00 +0000\n")
    (doc / "copyright").write_text((ROOT / "packaging/copyright").read_text())


if __name__ == "__main__":
    main(*sys.argv[1:])
