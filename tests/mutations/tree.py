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
BUILDS = {"dev": "build-dev", "default": "build"}  # where the presets build
MEMORY_KIB = 6 << 20  # of a process of a test: a mutant may ask for all there is

# What a mutant does may reach farther than its tree: it kills process -1, or removes a folder whose name is wrong. It
# sees its own processes only and, where we may say so, writes to its tree and to /tmp, which is its own.
CONFINED = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
CONFINED_ROOT = """
mount --bind "$0" "$0" && mount -t tmpfs mutant /tmp && mount -o remount,bind,ro / && cd "$0" || exit 99
ulimit -d """ + str(MEMORY_KIB) + """
"$@"
exit $?"""
CONFINED_USER = 'cd "$0" && ulimit -d ' + str(MEMORY_KIB) + ' && "$@"; exit $?'


def tracked():
    out = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                         capture_output=True)
    return [name for name in out.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


class Failed(Exception):
    """A step of a tree's life went wrong. The text says how."""


class Tree:
    def __init__(self, number, preset="dev"):
        self.root = FOLDER / f"tree{number}"
        self._preset, self._build = preset, BUILDS[preset]
        self.process = None  # what it runs at the moment

    def sync(self):
        """Makes it equal to the working tree; what is equal keeps its time, so that it is not built again."""
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
            self.run(["cmake", "--preset", self._preset], "cmake failed")

    def build(self, targets, jobs=1, mutated=False):
        self.configure()
        if not targets:
            return
        # Nobody wants to find a mutant in his cache; a file that is as it was before is taken from there.
        environment = {"CCACHE_READONLY": "1", "CCACHE_DEPEND": "1"} if mutated else {}
        self.run(["ninja", "-C", self._build, f"-j{jobs}", *targets], "it does not build", environment)

    def program(self, name):
        return self.root / self._build / "tests" / name

    def test(self, program, tests, seconds, *options):
        """(exit status, or None if it had to be killed, output)"""
        return self._confined([str(self.program(program)), f"--gtest_filter={tests}", "--gtest_brief=1",
                               "--gtest_catch_exceptions=0", *options], seconds)

    def ctest(self, name, seconds):
        """As test(): a test that is no program of gtest."""
        return self._confined(["ctest", "--test-dir", self._build, "--output-on-failure", "--no-tests=error",
                               "-R", f"^{re.escape(name)}$"], seconds)

    def _confined(self, command, seconds):
        if os.geteuid() == 0:
            prefix = [*CONFINED, "--mount", "--", "sh", "-c", CONFINED_ROOT]
        else:
            prefix = [*CONFINED, "--user", "--map-current-user", "--", "sh", "-c", CONFINED_USER]
        return self._run([*prefix, str(self.root), *command], {}, seconds)

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
