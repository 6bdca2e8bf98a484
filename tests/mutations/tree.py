"""A copy of the repository's tracked files, as they are in the working tree, with a build directory in it."""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

from mutant import LIVES, ROOT

FOLDER = ROOT / "build-mutants"
STOP_SECONDS = 2
BUILDS = {"dev": "build-dev", "default": "build"}  # where the presets build
MEMORY = 6 << 30  # bytes of a test's process: a mutant may allocate without end

# A mutant may do harm outside of its tree: it may kill process -1, or remove a folder with a wrong name. So it sees only
# its own processes and, if this user may restrict it, writes only to its tree and to a private /tmp.
CONFINED = ("prlimit", f"--data={MEMORY}", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
CONFINED_ROOT = """
mount --bind "$0" "$0" && mount -t tmpfs mutant /tmp && mount -o remount,bind,ro / && cd "$0" || exit 99
"$@"
exit $?"""
CONFINED_USER = 'cd "$0" && "$@"; exit $?'


def tracked():
    out = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                         capture_output=True)
    return [name for name in out.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


class Failed(Exception):
    """A step of building or testing a tree failed. The text says how."""


class Tree:
    def __init__(self, number, preset="dev"):
        self.root = FOLDER / f"tree{number}"
        self._preset, self._build = preset, BUILDS[preset]
        self.process = None  # what it runs at the moment
        self._links = {}

    def sync(self):
        """Makes the copy equal to the working tree. Unchanged files keep their time, so they are not rebuilt."""
        names = set(tracked())
        for name in names:
            self.restore(name)
        for path in [path for path in self.root.rglob("*") if path.is_file()]:
            name = path.relative_to(self.root)
            if name.parts[0] not in BUILDS.values() and str(name) not in names:
                path.unlink()

    def restore(self, name):
        source, target = ROOT / name, self.root / name
        data = source.read_bytes()
        if target.is_file() and target.read_bytes() == data:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        shutil.copymode(source, target)

    def apply(self, mutant):
        mutant.plant(self.root)

    def take_back(self, mutant):
        for name in mutant.files:
            self.restore(name)

    def configure(self):
        if not (self.root / self._build / "build.ninja").exists():
            # A mutant costs one file, and its object takes the place of the file's own.
            self.run(["cmake", "--preset", self._preset, "-DSOFTHCA_BATCHES=OFF"], "cmake failed")

    def build(self, targets, jobs=1, mutated=False):
        self.configure()
        if not targets:
            return
        # Mutants must not be stored in the user's cache; unchanged files are read from it.
        environment = {"CCACHE_READONLY": "1", "CCACHE_DEPEND": "1"} if mutated else {}
        self.run(["ninja", "-C", self._build, f"-j{jobs}", *targets], "it does not build", environment)

    def program(self, name):
        return self.root / self._build / "tests" / name

    def link_beside(self, file, program):
        """For a changed .cc file: links a copy of `program` with an object of that file compiled without optimization.
        Nothing that was built changes. None if that is impossible; then the program is built as usual."""
        link = self._link_command(program)
        entries = [entry for entry in self._compile_commands() if entry["file"] == str(self.root / file)]
        compilers = [words for entry in entries if (words := shlex.split(entry["command"])) and self._is_of(words, link)]
        if not compilers:
            return None
        words = compilers[0]
        place = words.index("-o") + 1
        built, words[place] = words[place], "mutant/mutant.o"
        words = self._with_quick_headers([word for word in words if word != "-O2"] + ["-O0"])
        self.run(words, "it does not build", folder=self._build)
        objects = ["mutant/mutant.o" if word == built else word for word in link]
        if built not in link:  # then the linker does not search for the archive's own
            objects.insert(next(place for place, word in enumerate(link) if word.endswith(".o")), "mutant/mutant.o")
        objects[objects.index("-o") + 1] = "mutant/program"
        status, _ = self._run(objects, {}, None, self._build)
        return self.root / self._build / "mutant/program" if status == 0 else None

    def code_of(self, file):
        """The object of a .cc file, compiled with optimization and without debug information; None if that is impossible."""
        entries = [entry for entry in self._compile_commands() if entry["file"] == str(self.root / file)]
        if not entries:
            return None
        words = shlex.split(entries[0]["command"])
        if "-include" in words:  # precompiled with other options; each file includes what it uses
            place = words.index("-include")
            del words[place:place + 2]
        words[words.index("-o") + 1] = "mutant/code.o"
        (self.root / self._build / "mutant").mkdir(exist_ok=True)
        status, _ = self._run([*words, "-O2", "-g0"], {}, None, self._build)
        return (self.root / self._build / "mutant/code.o").read_bytes() if status == 0 else None

    def _is_of(self, words, link):
        """Whether the object of a compile command is the program's, or in one of its archives."""
        built = words[words.index("-o") + 1]
        library = re.match(r"src/CMakeFiles/(\w+)\.dir/", built)
        return built in link or (library is not None and f"src/lib{library[1]}.a" in link)

    def _link_command(self, program):
        if program not in self._links:
            self.configure()
            lines = subprocess.run(["ninja", "-C", self._build, "-t", "commands", f"tests/{program}"], cwd=self.root, check=True,
                                   capture_output=True, text=True).stdout.splitlines()
            self._links[program] = shlex.split(lines[-1].split("&&")[1])
        return self._links[program]

    def _compile_commands(self):
        return json.loads((self.root / self._build / "compile_commands.json").read_text())

    def _with_quick_headers(self, words):
        """Precompiled headers can only be used with the options that they were compiled with."""
        quick = self.root / self._build / "mutant/precompiled.h"
        if "precompiled/precompiled.h" not in words:
            return words
        words[words.index("precompiled/precompiled.h")] = "mutant/precompiled.h"
        ending = ".pch" if "clang" in words[0] else ".gch"
        if not quick.with_name(quick.name + ending).exists():
            quick.parent.mkdir(exist_ok=True)
            quick.write_bytes((self.root / self._build / "precompiled/precompiled.h").read_bytes())
            place = words.index("-include")
            options = words[:place] + words[place + 2:words.index("-o")]
            self.run([*options, "-O0", "-x", "c++-header", "mutant/precompiled.h", "-o", f"mutant/precompiled.h{ending}"],
                     "precompiled headers", folder=self._build)
        return words

    def test(self, program, tests, seconds, *options, work=None):
        """(exit status, or None if it had to be killed, output). `work`: seconds of a processor for each process"""
        if program == LIVES:
            return self._confined([sys.executable, "tests/door/lives.py", f"{self._build}/softhca",
                                   f"{self._build}/tests/door/lives", *tests.split(":")], seconds, work)
        return self._confined([str(self.program(program)), f"--gtest_filter={tests}", "--gtest_brief=1",
                               "--gtest_catch_exceptions=0", *options], seconds, work)

    def ctest(self, name, seconds, work=None):
        """Like test(), for a test that is not a gtest program."""
        return self._confined(["ctest", "--test-dir", self._build, "--output-on-failure", "--no-tests=error",
                               "-R", f"^{re.escape(name)}$"], seconds, work)

    def _confined(self, command, seconds, work):
        limit = [] if work is None else ["prlimit", f"--cpu={round(work)}"]
        if os.geteuid() == 0:
            prefix = [*limit, *CONFINED, "--mount", "--", "sh", "-c", CONFINED_ROOT]
        else:
            prefix = [*limit, *CONFINED, "--user", "--map-current-user", "--", "sh", "-c", CONFINED_USER]
        return self._run([*prefix, str(self.root), *command], {}, seconds)

    def run(self, command, failure, environment=None, folder="."):
        status, output = self._run(command, environment or {}, None, folder)
        if status != 0:
            lines = output.strip().splitlines()
            errors = [line for line in lines if re.search(r"error|FAILED|fatal", line)] or lines
            raise Failed(f"{failure}: " + " | ".join(errors[:3])[:400])

    def _run(self, command, environment, seconds, folder="."):
        # A tree has no repository, so git must not take it for a part of the one around it.
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(FOLDER), **environment}
        self.process = subprocess.Popen(command, cwd=self.root / folder, env=environment, stdin=subprocess.DEVNULL, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
                                        start_new_session=True)
        try:
            output, _ = self.process.communicate(timeout=seconds)
            return self.process.returncode, output
        except subprocess.TimeoutExpired:
            self.stop()
            return None, self.process.communicate()[0]

    def stop(self):
        """Ends the running process, from any thread. On SIGTERM ninja ends its compilers, but a test may ignore it."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            if not self.process or self.process.poll() is not None:
                return
            try:
                os.killpg(self.process.pid, sign)
                self.process.wait(STOP_SECONDS)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
