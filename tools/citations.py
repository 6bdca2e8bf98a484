"""Citations of documents: a rule of tools/tidy.py. docs/interface/README.md describes their forms and lists the documents.

A citation opens if its page of docs/interface/ has the section, or if its public document has such a chapter, table or
annex. Sections of mutants, of tables below docs/ and of layouts begin with something that can be opened.
"""
import pathlib
import re

FOLDER = "docs/interface/"
INDEX = FOLDER + "README.md"
SUFFIXES = (".cc", ".h", ".inc", ".layout", ".toml", ".md", ".py", ".sh", ".txt")
# A history, and the files whose text is about citations.
SPEAK_OF_THEM = ("CHANGELOG.md", "tools/citations.py", "tests/tools/citations_test.py")
# Pages about one document leave its name out.
ABOUT_ONE = ("docs/sdxi-", "docs/rsnic-", "docs/jingzhao-")
# Names of notes that were never in the tree.
LOST = [re.compile(pattern) for pattern in
        (r"host-door", r"[Cc]ontract \d", r"seed 00\d", r"[a-z]-index \d", r"mlx5 \d+\.\d", r"uverbs \d+\.\d")]
SECTION = r"\d+(?:\.\d+)*"
GAP = r"[ \x01]+"
STRUCTURED = {".toml": re.compile(r'^section = "([^"]+)"', re.M),
              ".layout": re.compile(r'^(?:struct|enum) [^"\n]*"([^"]+)"', re.M)}


def unfold(text):
    """The text with each comment of several lines as one, of the same length: a line's end and what leads the next line
    become blanks."""
    return re.sub(r"\n[ \t]*(?:/{2,3}<?|#)?[ \t]*(?=\S)", lambda gap: "\x01" + " " * (len(gap[0]) - 1), text)


def occurrences(word, text):
    """Positions of the word in the text, not within another word."""
    at = text.find(word)
    while at >= 0:
        if at == 0 or not (text[at - 1].isalnum() or text[at - 1] in "_-"):
            yield at
        at = text.find(word, at + 1)


class Page:
    """A page of docs/interface/: its sections, and words that refusals name instead of one."""

    def __init__(self, name, text):
        self.name = name
        self.first = name.split()[0]
        self.sections = set(re.findall(rf"^#+ ({SECTION})\.? ", text, re.M))
        self.words = tuple(set(re.findall(rf"`{re.escape(name)}: ([^`]+)`", text)))
        words = GAP.join(map(re.escape, name.split()))
        more = rf"(?:(?:,|{GAP}to|{GAP}and){GAP}{SECTION})*"
        self.citation = re.compile(rf"{words}(?::{GAP}(?P<word>[\w -]+)|{GAP}(?P<numbers>{SECTION}{more}))?")

    def wrong(self, text):
        """(position, problem) of each citation that does not open."""
        for at in occurrences(self.first, text):
            match = self.citation.match(text, at)
            if match and match["word"] and not match["word"].startswith(self.words):
                yield at, f'{self.name} has no words "{match["word"]}"'
            for section in re.findall(SECTION, match["numbers"] or "") if match else ():
                if section not in self.sections:
                    yield at, f"{self.name} has no section {section}"


class PublicDocument:
    """A row of the table of documents. `sections`: "1 to 12, Table 1 to 585"; a dash if any number is right."""

    def __init__(self, name, sections):
        self.name = self.first = name
        found = re.findall(r"(?:([A-Z][a-z]+) )?([A-Z]?)(\d+) to [A-Z]?(\d+)", sections)
        self.limits = {(kind.lower(), letter): (int(low), int(high)) for kind, letter, low, high in found}
        self.citation = re.compile(rf"{re.escape(name)}{GAP}(?:([Tt]able|[Aa]nnex|[Ff]igure|[Cc]hapter)s?{GAP})?"
                                   rf"([A-Z]?)(\d+)(?!\w|-[a-z])")

    def wrong(self, text):
        for at in occurrences(self.name, text) if self.limits else ():
            match = self.citation.match(text, at)
            if not match:
                continue
            kind = (match[1] or "").lower().replace("chapter", "")
            low, high = self.limits.get((kind, match[2]), (1, 0))
            if not low <= int(match[3]) <= high:
                yield at, f"{self.name} has no {kind or 'chapter'} {match[2]}{match[3]}"


def documents(texts):
    """The documents that can be cited: the pages that the README of docs/interface/ names, and the documents of its table."""
    for row in re.findall(r"^\|(.+)\|$", texts.get(INDEX, ""), re.M):
        cells = [cell.strip() for cell in row.split("|")]
        page = re.match(r"\[([\w-]+\.md)\]", cells[0])
        if page:
            yield Page(re.match(r"`(.+?) \d", cells[-1])[1], texts.get(FOLDER + page[1], ""))
        elif cells[0].startswith("`"):
            for name in re.findall(r"`([^`]+)`", cells[0]):
                yield PublicDocument(name, cells[-1])


def opens(section, file, known, names):
    """Whether the section of a mutant, of a row or of a structure begins with a document, a man page, a command or a file."""
    if any(re.match(rf"{re.escape(name)}(?![\w-])", section) for name in known):
        return True
    if re.match(r"[\w.-]+\(\d\)|softhca \w", section):
        return True
    if file.startswith(ABOUT_ONE) and re.match(rf"(?:table )?[A-Z]?{SECTION}", section):
        return True
    path = re.match(r"(?:softhca: )?([\w./-]+/[\w.-]+\.\w+)", section)
    return bool(path) and any(place + path[1] in names for place in ("", "src/"))


def check(files, texts, names):
    """All problems. `files`: name to text of what is scanned; `texts`: the Markdown files; `names`: all files."""
    all_documents = list(documents(texts))
    if not all_documents:
        yield f"{INDEX}: names no documents"
        return
    known = [document.name for document in all_documents]
    for file, text in files.items():
        if not file.endswith(SUFFIXES) or file in SPEAK_OF_THEM:
            continue
        found = [(match.start(), f"no document of {INDEX}: {match[0]}") for lost in LOST for match in lost.finditer(text)]
        cited = [document for document in all_documents if document.first in text]
        if cited:
            flat = unfold(text)
            found += [problem for document in cited for problem in document.wrong(flat)]
        structured = STRUCTURED.get(pathlib.PurePath(file).suffix)
        if structured and file.startswith(("tests/mutations/", "docs/", "src/spec/")):
            found += [(match.start(), f"{INDEX} has no document: {match[1]}") for match in structured.finditer(text)
                      if not opens(match[1], file, known, names)]
        for position, problem in sorted(found):
            yield f"{file}:{text.count(chr(10), 0, position) + 1}: {problem}"
