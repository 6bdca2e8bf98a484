"""Runs mutants in several trees in parallel."""
import collections
import dataclasses
import hashlib
import json
import signal
import threading
import time

from author import is_among, tests_of
from mutant import LIVES, ROOT
from tree import FOLDER, Failed, Tree, tracked

TEST_SECONDS = 150  # tests wait for a minute at most, some of them twice
ALL_TESTS_SECONDS = 900  # of a program, as it is
HANG_SECONDS = 20  # a mutant that is expected to hang gets no more


@dataclasses.dataclass
class Verdict:
    killed: bool
    text: str


def judge(mutant, status, output):
    if status is None:
        return Verdict(mutant.expect == "timeout", "hangs")
    if status == 0:
        return Verdict(False, "survived: the tests pass")
    if status != 1 or ("FAILED: " if mutant.program == LIVES else "[  FAILED  ]") not in output:
        last = output.strip().splitlines()[-1:] or [""]
        return Verdict(False, f"no assertion, but status {status}: {last[0][:200]}")
    return Verdict(mutant.expect == "assertion", "killed by an assertion")


class Runner:
    def __init__(self, jobs, resume, preset):
        self._trees = [Tree(number + 1, preset) for number in range(max(1, jobs))]
        self._results = FOLDER / "results.json"
        self._lock = threading.Lock()
        self._stopped = False
        self._verdicts = {}
        self._resume = resume
        self._error = None
        self._threads = []

    def run(self, mutants):
        """[(mutant, verdict)] in the order of the mutants."""
        FOLDER.mkdir(exist_ok=True)
        self._key = self._tree_key()
        if not self._resume:
            self._results.unlink(missing_ok=True)
        self._verdicts = self._known(mutants)
        left = [mutant for mutant in mutants if mutant.name not in self._verdicts]
        if len(left) < len(mutants):
            print(f"{len(mutants) - len(left)} of {len(mutants)} mutants were judged before")
        if left:
            # Mutants of one file stay in one tree, so that a file is compiled once for each and not twice.
            groups = collections.defaultdict(list)
            for mutant in left:
                groups[mutant.program, mutant.files].append(mutant)
            self._queue = collections.deque(groups[key] for key in sorted(groups))
            self._total, self._begun = len(mutants), time.monotonic()
            del self._trees[len(self._queue):]
            self._prepare(left)
            self._say(f"{len(left)} mutants in {len(self._trees)} trees")
            self._work_in_threads()
        return [(mutant, self._verdicts[mutant.name]) for mutant in mutants]

    def stop(self):
        """After Ctrl-C: ends all processes of the run. Trees are repaired when they are next used."""
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._stopped = True
        for tree in self._trees:
            tree.stop()
        for thread in self._threads:
            thread.join(5)
        signal.signal(signal.SIGINT, previous)

    def _prepare(self, mutants):
        """Builds the unchanged trees, and checks that the tests pass."""
        programs = sorted({mutant.program for mutant in mutants})
        targets = sorted({target for mutant in mutants for target in mutant.targets})
        for tree in self._trees:
            self._say(f"{tree.root.relative_to(ROOT)}: building {' '.join(targets)}")
            tree.sync()
            tree.build(targets, jobs=len(self._trees))
        for program in programs:
            self._stop_if_told()
            self._see_tests_pass(program, sorted({mutant.filter for mutant in mutants if mutant.program == program}))

    def _see_tests_pass(self, program, filters):
        """Runs all tests of a program in one process: most take no longer than its start."""
        tree = self._trees[0]
        listing = tests_of(tree.program(program))
        for tests in filters:
            if not is_among(listing, program, tests):
                raise SystemExit(f"{program} has no test {tests}")
        excludes = [] if program == LIVES else [tests for tests in filters if "-" in tests]
        together = [":".join(tests for tests in filters if tests not in excludes), *excludes]
        for tests in filter(None, together):
            status, output = tree.test(program, tests, ALL_TESTS_SECONDS)
            if status != 0:
                raise SystemExit(f"without any mutant: {program} --gtest_filter={tests}: status {status}\n{output[-2000:]}")

    def _work_in_threads(self):
        self._threads = [threading.Thread(target=self._work, args=(tree,), daemon=True) for tree in self._trees]
        for thread in self._threads:
            thread.start()
        while any(thread.is_alive() for thread in self._threads):
            for thread in self._threads:
                thread.join(0.2)
        if self._error:
            raise self._error

    def _work(self, tree):
        try:
            while not self._stopped:
                with self._lock:
                    if not self._queue:
                        return
                    group = self._queue.popleft()
                for mutant in group:
                    self._judge_one(tree, mutant)
                    if self._stopped:
                        return
        except Exception as error:  # shown by the main thread
            self._error = error
            self._stopped = True

    def _judge_one(self, tree, mutant):
        begun = time.monotonic()
        try:
            tree.apply(mutant)
            tree.build(mutant.targets, mutated=True)
            limit = HANG_SECONDS if mutant.expect == "timeout" else TEST_SECONDS
            verdict = judge(mutant, *tree.test(mutant.program, mutant.filter, limit))
        except Failed as failed:
            verdict = Verdict(False, str(failed))
        finally:
            tree.take_back(mutant)
        if self._stopped:
            return
        with self._lock:
            self._verdicts[mutant.name] = verdict
            self._save(mutant, verdict)
        self._say(f"{len(self._verdicts)}/{self._total} {'killed' if verdict.killed else 'NOT KILLED'} {mutant.name} "
                  f"({time.monotonic() - begun:.1f} s)" + ("" if verdict.killed else f": {verdict.text}"))

    def _stop_if_told(self):
        if self._stopped:
            raise KeyboardInterrupt

    def _say(self, text):
        print(f"[{time.monotonic() - self._begun:6.1f} s] {text}", flush=True)

    # Verdicts for --resume: those of the same tree and the same entry.

    def _tree_key(self):
        digest = hashlib.sha256()
        for name in sorted(tracked()):
            if not name.endswith(".md") and not name.startswith("tests/mutations/"):
                digest.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
        return digest.hexdigest()

    def _known(self, mutants):
        try:
            stored = json.loads(self._results.read_text())
        except (OSError, ValueError):
            return {}
        if stored.get("tree") != self._key:
            return {}
        return {mutant.name: Verdict(*stored["mutants"][mutant.name][1:]) for mutant in mutants
                if stored["mutants"].get(mutant.name, [None])[0] == repr(mutant)}

    def _save(self, mutant, verdict):
        try:
            stored = json.loads(self._results.read_text())
        except (OSError, ValueError):
            stored = {}
        if stored.get("tree") != self._key:
            stored = {"tree": self._key, "mutants": {}}
        stored["mutants"][mutant.name] = [repr(mutant), verdict.killed, verdict.text]
        temporary = self._results.with_suffix(".new")
        temporary.write_text(json.dumps(stored))
        temporary.replace(self._results)
