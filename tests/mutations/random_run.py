"""Judges random mutants: how many do the tests of a folder notice?

The tests of the folder run until one fails, those of the mutant's file first, then those of folders above it, which use
it. A test that fails once and passes when it is repeated has not noticed the mutant. A mutant that does not compile is
drawn again. One that the folder's tests do not notice is compiled with optimization: if the compiler makes the same code
of it, no test can notice it.
"""
import collections
import json
import re
import resource
import threading
import time

from likely import likely
from mutant import ROOT
from random_mutants import Lottery, lines_of_folders, shares
from tree import FOLDER, Failed, Tree

# Test programs of a folder of src/ and of folders above that use it, the cheap ones first. Without an entry, or before
# it, <folder>_test. The tests of SCRIPTS are ctest's, and want those programs.
OWN = {"spec": ("tools", "spec_test"), "hca": ("hca_test", "tiny_hca_test"), "lab": ("verbs_test",)}
ABOVE = {
    "util": ("os_test", "pcie_test", "rdma_test"),
    "os": ("vfio_user_test", "fabric_test", "hub_test"),
    "spec": ("rdma_test", "subnet_test", "sdxi_test", "jingzhao_test", "connectx_test"),
    "wire": ("fabric_test", "rdma_test"),
    "fabric": ("rdma_test", "hub_test"),
    "subnet": ("jingzhao_test",),
    "pcie": ("vfio_user_test", "connectx_test"),
    "rdma": ("connectx_test", "verbs_test"),
    "ethernet": ("connectx_test",),
    "hca": ("connectx_test", "jingzhao_test"),
    "connectx": ("driver_test", "rsnic_test", "verbs_test"),
    "rsnic": ("verbs_test",),
    "jingzhao": ("verbs_test",),
    "sdxi": ("driver_test",),
    "vfio_user": ("server_test",),
    "hub": ("server_test",),
    "driver": ("verbs_test", "jingzhao_test", "sdxi_test"),
    "uverbs": ("rdma_cm_test", "door.memory_windows", "door.lives", "door.faults", "door.verbs"),
    "cm": ("rdma_cm_test", "door.cm"),
    "rdma_cm": ("door.cm",),
    "door": ("door.memory_windows", "door.lives", "door.tree", "door.faults", "door.cm", "door.verbs"),
    "control": ("server_test", "run_test"),
    "run": ("hub_test", "server_test"),
    "perf": ("cli.perf",),
}
SCRIPTS = {
    "tools": (),
    "cli.perf": ("softhca",),
    "door.memory_windows": ("softhca", "softhca_preload", "memory_windows"),
    "door.lives": ("softhca", "softhca_preload", "lives"),
    "door.tree": ("softhca", "softhca_preload", "follow_gids"),
    "door.faults": ("softhca", "softhca_preload", "lost_memory", "xrc_targets"),
    "door.cm": ("softhca", "softhca_preload", "many_clients", "cm_calls", "cm_backlog"),
    "door.verbs": ("softhca", "softhca_preload"),
}
WITH_SOFTHCA = ("hub_test", "server_test")  # start the program, too
FIRST_LIMITS = 3600, 1800  # of a program, as it is
# A mutant hangs if it takes more processor time than these seconds plus so many times the unchanged program's: wall time
# would depend on other load. A mutant that waits without working is ended by wall time, with the same kind of limit.
WORK_SECONDS, WORK_TIMES, CLOCK_SECONDS, CLOCK_TIMES = 20, 5, 300, 20
UNSTEADY_MAX = 5
UP_TO_A_FAILURE = ("--gtest_brief=0", "--gtest_fail_fast")

# Verdicts.
OWN_TESTS, TESTS_ABOVE, SURVIVED, NOT_COMPILED = "killed", "killed above", "survived", "does not compile"
SAME_CODE = "same code"


def own_tests(folder):
    return OWN.get(folder, (f"{folder}_test",))


class NotCompiled(Exception):
    pass


class Judge:
    """Judges the mutants of one tree."""

    def __init__(self, tree, jobs, own_only):
        self._tree, self._jobs, self._own_only = tree, jobs, own_only
        self._planted = False
        self._limits = {}  # by test: seconds of the clock, of a processor
        self._unchanged = set()  # tests whose programs and archives were built without a mutant

    def _prepare(self, test):
        """Builds the unchanged tree, and checks that its tests pass."""
        self._planted, self._program = False, test
        self._build_unchanged(test)
        begun, work = time.monotonic(), work_of_children()
        status, output = self._run(test, "*", FIRST_LIMITS)
        if status != 0:
            raise SystemExit(f"without any mutant: {test}: status {status}\n{output[-3000:]}")
        seconds, work = time.monotonic() - begun, work_of_children() - work
        self._limits[test] = CLOCK_SECONDS + CLOCK_TIMES * seconds, WORK_SECONDS + WORK_TIMES * work
        print(f"{test} passes in {seconds:.0f} s", flush=True)

    def _build_unchanged(self, test):
        self._tree.build(SCRIPTS.get(test, (test,)), jobs=self._jobs)
        self._unchanged.add(test)

    def _build(self, mutant, test):
        """Why the tests cannot start, or nothing."""
        self._program = test
        try:
            if not self._link_beside(mutant, test):
                self._unchanged.clear()
                self._tree.build(SCRIPTS.get(test, (test,)), mutated=True)
        except Failed as failed:
            if "gtest_list_tests" not in str(failed):  # asked after linking
                raise NotCompiled from failed
            return "does not start"
        return ""

    def _link_beside(self, mutant, test):
        """Links the mutant in front of the archives, which must not have an earlier mutant in them. Whether it could."""
        if not mutant.file.endswith(".cc") or test in (*SCRIPTS, *WITH_SOFTHCA):
            return False
        if test not in self._unchanged:
            self._tree.restore(mutant.file)
            self._build_unchanged(test)
            mutant.plant(self._tree.root)
        program = self._tree.link_beside(mutant.file, test)
        self._program = program or test
        return program is not None

    def judge(self, mutant):
        """(verdict, the test that noticed)"""
        try:
            for test in own_tests(mutant.folder):
                if noticed := self._noticed_by(mutant, test):
                    return OWN_TESTS, noticed
            if self._is_same_code(mutant):
                return SAME_CODE, ""
            for test in () if self._own_only else ABOVE.get(mutant.folder, ()):
                if noticed := self._noticed_by(mutant, test):
                    return TESTS_ABOVE, noticed
        except NotCompiled:
            return NOT_COMPILED, ""
        finally:
            self._tree.restore(mutant.file)
            self._planted = False
        return SURVIVED, ""

    def _is_same_code(self, mutant):
        changed = self._tree.code_of(mutant.file)
        self._tree.restore(mutant.file)
        self._planted = False
        return changed is not None and changed == self._tree.code_of(mutant.file)

    def _noticed_by(self, mutant, test):
        """The test and how it noticed the mutant, or nothing."""
        if test not in self._limits:
            self._tree.restore(mutant.file)
            self._prepare(test)
        if not self._planted:
            mutant.plant(self._tree.root)
            self._planted = True
        if fails := self._build(mutant, test):
            return f"{test} {fails}"
        first = [] if test in SCRIPTS else likely(mutant.file, test)
        for wanted, unwanted in ([(first, [])] if first else []) + [(["*"], first)]:
            if fails := self._fails(test, wanted, unwanted):
                return f"{test} {fails}"
        return ""

    def _fails(self, test, wanted, unwanted):
        """How a test fails, or nothing. `wanted`, `unwanted`: patterns of gtest"""
        unsteady, limit = [], self._limits[test]
        while len(unsteady) <= UNSTEADY_MAX:
            status, output = self._run(test, f"{':'.join(wanted)}-{':'.join([*unwanted, *unsteady])}", limit)
            if status == 0:
                return ""
            if status is None:
                return f"hangs in {last_of(output)}"
            failed = re.search(r"\[  FAILED  \] ([^\s,]+)", output)
            if failed is None and test not in SCRIPTS:
                return f"ends with status {status} in {last_of(output)}"
            if self._run(test, failed[1] if failed else "*", limit)[0] != 0:
                return failed[1] if failed else "fails"
            if test in SCRIPTS:
                return ""
            print(f"{failed[1]} fails and passes", flush=True)
            unsteady.append(failed[1])
        return ""

    def _run(self, test, tests, limits):
        seconds, work = limits
        if test in SCRIPTS:
            return self._tree.ctest(test, seconds, work)
        return self._tree.test(self._program, tests, seconds, *UP_TO_A_FAILURE, work=work)


def work_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def last_of(output):
    begun = re.findall(r"\[ RUN      \] (\S+)", output)
    return begun[-1] if begun else "its beginning"


class Draw:
    """COUNT mutants of all folders, or the share of some folders, in several trees in parallel."""

    def __init__(self, chosen):
        self._seed, self._resume, self._own_only = chosen.seed, chosen.resume, chosen.own
        self._left = {folder: share for folder, share in shares(chosen.random, lines_of_folders()).items()
                      if not chosen.folder or folder in chosen.folder}
        self._lotteries = {folder: Lottery(chosen.seed, folder) for folder in self._left}
        self._trees = [Tree(number + 1, chosen.preset) for number in range(chosen.jobs)]
        self._results = FOLDER / "random.json"
        self._verdicts = []  # (mutant, verdict, by)
        self._lock = threading.Lock()
        self._stopped = False
        self._error = None
        self._begun = time.monotonic()

    def run(self):
        FOLDER.mkdir(exist_ok=True)
        self._known = json.loads(self._results.read_text()) if self._resume and self._results.exists() else {}
        for tree in self._trees:
            tree.sync()
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
        self._stopped = True
        for tree in self._trees:
            tree.stop()

    def _work(self, tree):
        judge = Judge(tree, len(self._trees), self._own_only)
        try:
            while not self._stopped and (mutant := self._next()):
                self._judge(judge, mutant)
        except BaseException as error:  # shown by the main thread
            self._error = error
            self._stopped = True

    def _next(self):
        with self._lock:
            for folder, left in self._left.items():
                if left > 0:
                    self._left[folder] -= 1
                    return self._lotteries[folder].draw()
        return None

    def _judge(self, judge, mutant):
        key = " | ".join((str(self._seed), *mutant.key))
        verdict, by = self._known.get(key, (SURVIVED, ""))
        if verdict == SURVIVED:  # judged for the first time, or a new test may exist
            verdict, by = judge.judge(mutant)
        if self._stopped:
            return
        with self._lock:
            self._known[key] = verdict, by
            self._results.write_text(json.dumps(self._known, indent=0))
            if verdict == NOT_COMPILED:
                self._left[mutant.folder] += 1
            else:
                self._verdicts.append((mutant, verdict, by))
                print(f"[{time.monotonic() - self._begun:6.0f} s] {verdict}{f' by {by}' if by else ''}: {mutant}", flush=True)

    def _report(self):
        counts = collections.defaultdict(collections.Counter)
        for mutant, verdict, _ in self._verdicts:
            counts[mutant.folder][verdict] += 1
        print(f"\nSeed {self._seed}.\n\n| folder | mutants | same code | killed by its tests | by those above | survived | killed |\n"
              "|---|---|---|---|---|---|---|")
        counts["all"] = sum(counts.values(), collections.Counter())
        for folder, of in counts.items():
            killed = of[OWN_TESTS] + of[TESTS_ABOVE]
            share = 100 * killed // max(1, killed + of[SURVIVED])
            print(f"| {folder} | {of.total()} | {of[SAME_CODE]} | {of[OWN_TESTS]} | {of[TESTS_ABOVE]} | {of[SURVIVED]} | {share} % |")
        return 1 if counts["all"][SURVIVED] else 0
