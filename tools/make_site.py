#!/usr/bin/env python3
"""Makes the site of all pages, and checks its links: `make site`.

The pages link to pages and files outside of docs/, so all of these are copied with their places, and mkdocs (mkdocs.yml) reads
the copy. Then each link of the site must lead to a file of it and, with a `#`, to an element with that id.
"""
import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES, SITE = ROOT / "build/site-pages", ROOT / "build/site"
LINK = re.compile(r"\]\(([^)#\s]+)")


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids.update(filter(None, (attributes.get("id"), attributes.get("name"))))
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])


def broken(pages, files):
    """`pages`: names to HTML. `files`: the names of all files. Yields each link that leads nowhere."""
    parsed = {name: Page(text) for name, text in pages.items()}
    for name, page in parsed.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            path = urllib.parse.unquote(parts.path)
            target = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            if target == "." or f"{target}/index.html" in files:
                target = os.path.normpath(f"{target}/index.html")
            anchor = urllib.parse.unquote(parts.fragment)
            if target not in files:
                yield f"{name}: {link}: no such file"
            elif anchor and target in parsed and anchor not in parsed[target].ids:
                yield f"{name}: {link}: no such heading"


def copy_pages():
    """Copies all tracked pages, and the tracked files that they link to."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout.decode()
    tracked = set(filter(None, listed.split("\0")))
    wanted = {name for name in tracked if name.endswith(".md")}
    for page in sorted(wanted):
        for link in LINK.findall((ROOT / page).read_text()):
            wanted.add(os.path.normpath(os.path.join(os.path.dirname(page), link)))
    shutil.rmtree(PAGES, ignore_errors=True)
    for name in wanted & tracked:
        (PAGES / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, PAGES / name)


def main():
    copy_pages()
    made = subprocess.run(["mkdocs", "build", "--strict", "--clean"], cwd=ROOT, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if made.returncode != 0:
        print(re.sub(r"^(?!.*(?:WARNING|ERROR|Error)).*\n", "", made.stdout, flags=re.M), end="")
        return 1
    files = {str(path.relative_to(SITE)) for path in SITE.rglob("*") if path.is_file()}
    pages = {name: (SITE / name).read_text() for name in files if name.endswith(".html") and name != "404.html"}
    problems = list(broken(pages, files))
    for problem in problems:
        print(problem)
    print(f"{SITE.relative_to(ROOT)}/index.html: {len(pages)} pages, {len(problems)} broken links")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
