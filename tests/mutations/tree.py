"""A copy of the repository's tracked files, as they are in the working tree, with a build directory in it."""
import os
import pathlib
import re
import shutil
import signal
import subprocess

from mutant import ROOT

FOLDER = ROOT / "build-mutants"
STOP_SECONDS = 2
BUILD = "build-dev"  # as the preset says: the objects are the ones that ccache knows from `make check`


def tracked():
    out = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                         capture_output=True)
    return [name for name in out.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


class Failed(Exception):
    """A step of a tree's life went wrong. The text says how."""


class Tree:
    def __init__(self, number):
        self.root = FOLDER / f"tree{number}"
        self.process = None  # what it runs at the moment
        self._written = set()

    def sync(self):
        """Makes it equal to the working tree; what is equal keeps its time, so that it is not built again."""
        names = set(tracked())
        for name in names:
            self._copy(name)
        for path in [path for path in self.root.rglob("*") if path.is_file()]:
            name = path.relative_to(self.root)
            if name.parts[0] != BUILD and str(name) not in names:
                path.unlink()

    def _copy(self, name):
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
            self._copy(name)

    def configure(self):
        if not (self.root / BUILD / "build.ninja").exists():
            self.run(["cmake", "--preset", "dev"], "cmake failed")

    def build(self, targets, jobs=1, mutated=False):
        self.configure()
        # Nobody wants to find a mutant in his cache; a file that is as it was before is taken from there.
        environment = {"CCACHE_READONLY": "1", "CCACHE_DEPEND": "1"} if mutated else {}
        self.run(["ninja", "-C", BUILD, f"-j{jobs}", *targets], "it does not build", environment)

    def program(self, name):
        return self.root / BUILD / "tests" / name

    def test(self, program, tests, seconds):
        """(exit status, or None if it had to be killed, output)"""
        command = [str(self.program(program)), f"--gtest_filter={tests}", "--gtest_brief=1",
                   "--gtest_catch_exceptions=0"]
        return self._run(command, {}, seconds)

    def run(self, command, failure, environment=None):
        status, output = self._run(command, environment or {}, None)
        if status != 0:
            lines = output.strip().splitlines()
            errors = [line for line in lines if re.search(r"error|FAILED|fatal", line)] or lines
            raise Failed(f"{failure}: " + " | ".join(errors[:3])[:400])

    def _run(self, command, environment, seconds):
        # Without a repository of its own a tree must not be taken for a part of the one around it.
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(FOLDER), **environment}
        self.process = subprocess.Popen(command, cwd=self.root, env=environment, stdin=subprocess.DEVNULL, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
                                        start_new_session=True)
        try:
            output, _ = self.process.communicate(timeout=seconds)
            return self.process.returncode, output
        except subprocess.TimeoutExpired:
            self.stop()
            return None, self.process.communicate()[0]

    def stop(self):
        """Ends what it runs, from any thread. ninja ends its compilers if it is asked to; a test may not listen."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            if not self.process or self.process.poll() is not None:
                return
            try:
                os.killpg(self.process.pid, sign)
                self.process.wait(STOP_SECONDS)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
