"""English that a reader reads once: a rule of tools/tidy.py.

Comments and READMEs name the actor (the sender, the guest, the caller) and use the field's words (notify, report, poll).
FORMS are the forms that sound translated. Text in quotes or backticks is cited, and a heading may be a question.
"""
import re

# Records of the past, which are not rewritten.
HISTORY = ("CHANGELOG.md", "docs/decisions/")

# The beginning of a sentence.
BEGIN = r"(?:^|[.!?:;]\s+)"
AUXILIARY = r"(?:is|are|was|were|do|does|did|has|have|had|can|could|will|must|may)"
APART = r"(?! (?:\S+ ){0,4}apart\b)"
# Advice: the form that it replaces.
FORMS = {advice: re.compile(form) for advice, form in {
    "a relative clause has a noun before it":
        BEGIN + r"(?:(?:Who|Whom|Whose|What)\s(?![^.]*\?)|Where\s(?!to\b|[^.]*[?,]))|^who\b|"
        r"\b(?:for|of|to|by|from|and|but|or|than|as|with|if|that|when|while|before|after) who(?:m|ever)?\b",
    "a genitive has a noun before it": BEGIN + r"Of\s",
    "subject, verb, object": BEGIN + rf"(?:So {AUXILIARY} (?!not\b)|Neither {AUXILIARY}\b|Nor\b)",
    "name the sender, the peer, the caller":
        r"(?i:\b(?:nobody|somebody|someone|no one|whoever|anybody|everybody)\b)",
    "report, notify or poll":
        rf"(?i:\b(?:telling|hears?|heard|hearing)\b|\btold\b{APART}|(?<!\bnot )(?<!\bcannot )\btells?\b{APART})",
    "again, remote, cached, usually, immediately, or nothing":
        r"(?i:\b(?:anew|afar|at hand|mostly|closely|likewise|at once)\b)",
    "name the device, the driver or the server instead of us":
        r"\b(?:[Ww]e|[Oo]urs?|[Oo]urselves)\b|\b(?:to|for|from|with|by|on|of|at|lets?|gives?|wakes?|asks?|sends?) us\b",
}.items()}
ANY_FORM = re.compile("|".join(form.pattern for form in FORMS.values()))
DOCSTRING = re.compile(r'^ *"""(.*?)"""', re.S | re.M)
# Quotations, code, addresses of links.
QUOTED = re.compile(r'"[^"]*"|`[^`]*`|\]\([^)]*\)')


def of_source(name, text):
    """(line number, text) of each comment; lines of comment alone that follow each other are one. Docstrings of Python count."""
    mark = r"///?<?" if name.endswith((".h", ".cc", ".inc")) else r"#"
    text = DOCSTRING.sub(lambda match: re.sub("^", "# ", match[1], flags=re.M), text) if mark == "#" else text
    whole, behind = re.compile(rf"\s*{mark}(?: |$)(.*)"), re.compile(rf"\s{mark} (.*)")
    first, said = 0, []
    for number, line in enumerate(text.splitlines(), 1):
        match = whole.match(line)
        if match and match[1].strip():
            first = first if said else number
            said.append(match[1].strip())
            continue
        if said:
            yield first, " ".join(said)
            said = []
        match = behind.search(line) if mark[0] in line else None
        if match and line.count('"', 0, match.start()) % 2 == 0:
            yield number, match[1]
    if said:
        yield first, " ".join(said)


def of_page(text):
    """(line number, text) of each paragraph, item and cell, without headings and blocks of code."""
    first, said, code = 0, [], False
    for number, line in enumerate(text.splitlines() + [""], 1):
        line = line.strip()
        code ^= line.startswith("```")
        item = re.match(r"(?:[-*]|\d+\.) +(.*)", line)
        apart = code or not line or line.startswith(("#", "```", "|"))
        if said and (item or apart):
            yield first, " ".join(said)
            said = []
        if line.startswith("|") and not code:
            yield from ((number, cell.strip()) for cell in line.split("|"))
        elif not apart:
            first = first if said else number
            said.append(item[1] if item else line)


def is_scanned(name, text):
    """C++, layouts, pages, and scripts by their names or their first line."""
    return name.endswith((".h", ".cc", ".inc", ".layout", ".md", ".py", ".sh")) or text.startswith("#!")


def find(name, text):
    """Yields (line number, advice, the words) for each form in a file."""
    for number, said in of_page(text) if name.endswith(".md") else of_source(name, text):
        said = QUOTED.sub("''", said)
        if not ANY_FORM.search(said):
            continue
        for advice, form in FORMS.items():
            for match in form.finditer(said):
                yield number, advice, said[max(0, match.start() - 20):match.end() + 30].strip()


def check(files):
    """Problems of `files`, name to text."""
    return [f"{name}:{number}: {advice}: {words}" for name, text in sorted(files.items()) if not name.startswith(HISTORY)
            for number, advice, words in find(name, text)]
