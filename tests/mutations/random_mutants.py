"""Random mutants: how many small bugs that nobody chose do the tests of a folder notice?

A mutant is one change of one line of src/, drawn by a seed, so that each line is as likely as any other: a statement
left out, a condition negated, a comparison off by one, a number, two arguments swapped, a bit of a layout. All tests of
the folder must fail of it. What does not compile is drawn again. Survivors are printed as entries for <chapter>.toml;
those that cannot be noticed stand in equivalent.toml with the reason, and are not drawn.
"""
import collections
import dataclasses
import random
import re
import threading
import time
import tomllib

from mutant import EQUIVALENT, ROOT, Edit
from tree import FOLDER, Failed, Tree

#: Test programs by folder of src/; <folder>_test where nothing stands here.
PROGRAMS = {"hca": ("hca_test", "tiny_hca_test"), "lab": ("verbs_test",), "spec": ("spec_test",),
            "driver": ("driver_test", "verbs_test", "jingzhao_test", "sdxi_test"), "jingzhao": ("jingzhao_test", "verbs_test")}
ALL_TESTS_SECONDS = 300
DRAWS_MAX = 200  # of lines of one file, until one can be changed

COMPARISONS = {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ", " != ": " == ",
               " && ": " || ", " || ": " && ", " + ": " - ", " - ": " + "}


@dataclasses.dataclass(frozen=True)
class RandomMutant:
    kind: str
    line: int
    edit: Edit  # its text is the whole line, which need not be unique: `line` says which

    @property
    def folder(self):
        return self.edit.file.split("/")[1]

    @property
    def programs(self):
        return PROGRAMS.get(self.folder, (f"{self.folder}_test",))

    def plant(self, root):
        path = root / self.edit.file
        lines = path.read_text().splitlines(keepends=True)
        lines[self.line] = self.edit.replacement
        path.write_text("".join(lines))

    def __str__(self):
        return (f"{self.edit.file}:{self.line + 1}: {self.kind}\n  - {self.edit.text.strip()}\n"
                f"  + {self.edit.replacement.strip()}")


def without_statement(line):
    if not re.fullmatch(r"\s+[^/#{}]*[^\s{}();,](\(.*\)|[^()]*);\s*", line):
        return
    if re.match(r"\s*(return|using|const|constexpr|auto|static|case|break|continue|goto|throw|[\w:<>]+[&*]? \w+( = .*)?;)", line):
        return
    yield re.match(r"\s*", line)[0] + ";\n"


def negated(line):
    found = re.fullmatch(r"(\s*(?:\} else )?(?:if|while) \()((?:[^;]*; )?)([^;=!]*(?:[=!]=[^;=]*)?)(\)(?: \[\[\w+\]\])?(?: \{|.*;)?\s*)", line)
    if found and found[3].count("(") == found[3].count(")") and "auto" not in found[3]:
        yield f"{found[1]}{found[2]}!({found[3]}){found[4]}"


def off_by_one(line):
    for old, new in COMPARISONS.items():
        for found in re.finditer(re.escape(old), line):
            if "template" not in line and '"' not in line:
                yield line[:found.start()] + new + line[found.end():]
    for found in re.finditer(r"(?<![\w.\"'])(\d+)(?=[u;,) \]])", line):
        if '"' not in line:
            yield f"{line[:found.start()]}{int(found[1]) + 1}{line[found.end():]}"


def swapped(line):
    for found in re.finditer(r"(\w\()([\w.]+), ([\w.]+)\)", line):
        if found[2] != found[3]:
            yield f"{line[:found.start()]}{found[1]}{found[3]}, {found[2]}){line[found.end():]}"


def other_answer(line):
    for old, new in (("true", "false"), ("false", "true"), ("std::nullopt", None)):
        if new and re.search(rf"\breturn {old};", line):
            yield line.replace(f"return {old};", f"return {new};")


def other_bits(line):
    """A field of a .layout: `name 0xOFFSET HI:LO` or `name 0xOFFSET BIT`."""
    found = re.match(r"(\s+\w+\s+0x[0-9a-fA-F]+ )(\d+)(?::(\d+))?(.*\n)", line)
    if found and found[3]:
        low = int(found[3])
        yield f"{found[1]}{found[2]}:{low + 1 if low + 1 < int(found[2]) else low - 1}{found[4]}"
    elif found:
        yield f"{found[1]}{int(found[2]) ^ 1}{found[4]}"


SOURCE = {"a statement left out": without_statement, "a condition negated": negated, "off by one": off_by_one,
          "arguments swapped": swapped, "another answer": other_answer}
LAYOUT = {"a bit of a layout": other_bits}


def equivalent():
    entries = tomllib.loads(EQUIVALENT.read_text()).get("mutant", [])
    return {(entry["file"], entry["text"].strip(), entry["replacement"].strip()) for entry in entries}


class Lottery:
    def __init__(self, seed, folders):
        self._random = random.Random(seed)
        self._files = {}
        for path in sorted((ROOT / "src").rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix in (".cc", ".layout") and (not folders or name.split("/")[1] in folders):
                self._files[name] = path.read_text().splitlines(keepends=True)
        self._weights = [len(lines) for lines in self._files.values()]
        self._known = equivalent()

    def draw(self):
        while True:
            name = self._random.choices(list(self._files), self._weights)[0]
            for _ in range(DRAWS_MAX):
                line = self._random.randrange(len(self._files[name]))
                mutant = self._change(name, line)
                if mutant:
                    return mutant

    def _change(self, name, number):
        line = self._files[name][number]
        if line.lstrip().startswith(("//", "*", "#")) or "assert(" in line:
            return None
        before = self._files[name][number - 1].rstrip() if number else ""
        begins = not before or before.endswith((";", "{", "}", ":")) or before.lstrip().startswith("//")
        kinds = LAYOUT if name.endswith(".layout") else SOURCE
        found = [(kind, new) for kind, change in kinds.items() for new in change(line)
                 if begins or change is not without_statement]
        if not found:
            return None
        kind, new = self._random.choice(found)
        if (name, line.strip(), new.strip()) in self._known:
            return None
        return RandomMutant(kind, number, Edit(name, line, new))


class Draw:
    """COUNT mutants in some trees side by side."""

    def __init__(self, count, seed, folders, jobs):
        self._lottery = Lottery(seed, folders)
        self._left = count
        self._lock = threading.Lock()
        self._trees = [Tree(number + 1) for number in range(jobs)]
        self._killed, self._survived = collections.Counter(), collections.defaultdict(list)
        self._begun = time.monotonic()
        self._error = None

    def run(self):
        FOLDER.mkdir(exist_ok=True)
        programs = sorted({program for name in self._lottery._files
                           for program in PROGRAMS.get(name.split("/")[1], (f"{name.split('/')[1]}_test",))})
        for tree in self._trees:
            print(f"{tree.root.relative_to(ROOT)}: building {' '.join(programs)}", flush=True)
            tree.sync()
            tree.build(programs, jobs=len(self._trees))
        threads = [threading.Thread(target=self._work, args=(tree,), daemon=True) for tree in self._trees]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(0.2)
        if self._error:
            raise self._error
        return self._report()

    def stop(self):
        self._left = 0
        for tree in self._trees:
            tree.stop()

    def _work(self, tree):
        try:
            while mutant := self._next():
                self._judge(tree, mutant)
        except Exception as error:  # shown by the main thread
            self._error = error
            self._left = 0

    def _next(self):
        with self._lock:
            if self._left <= 0:
                return None
            self._left -= 1
            return self._lottery.draw()

    def _judge(self, tree, mutant):
        verdict = "survived"
        try:
            mutant.plant(tree.root)
            for program in mutant.programs:
                tree.build([program], mutated=True)
                status, _ = tree.test(program, "*", ALL_TESTS_SECONDS)
                if status != 0:
                    verdict = "killed" if status is not None else "killed: hangs"
                    break
        except Failed:
            verdict = "does not compile"
        finally:
            tree._copy(mutant.edit.file)
        with self._lock:
            if verdict == "does not compile":
                self._left += 1
                return
            if verdict == "survived":
                self._survived[mutant.folder].append(mutant)
            else:
                self._killed[mutant.folder] += 1
            print(f"[{time.monotonic() - self._begun:6.0f} s] {verdict}: {mutant}", flush=True)

    def _report(self):
        print("\n| folder | mutants | killed |\n|---|---|---|")
        killed, survived = sum(self._killed.values()), sum(map(len, self._survived.values()))
        for folder in sorted(self._killed | {name: 0 for name in self._survived}):
            all_of = self._killed[folder] + len(self._survived[folder])
            print(f"| {folder} | {all_of} | {self._killed[folder]} ({100 * self._killed[folder] // all_of} %) |")
        print(f"\n{killed + survived} random mutants: {killed} killed, {survived} not")
        return 1 if survived else 0
