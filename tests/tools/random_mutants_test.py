"""tests/mutations/random_mutants.py: what it changes, what it leaves alone, and that a seed determines both; random_run.py."""
import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/mutations"))

import likely  # noqa: E402
import random_mutants  # noqa: E402
import random_run  # noqa: E402
from random_mutants import Lottery, RandomMutant, changes, shares, statements  # noqa: E402


def mutants(text, file="src/x/x.cc"):
    return [RandomMutant(statement, change) for statement in statements(file, text) for change in changes(statement)]


def lines(text, file="src/x/x.cc"):
    """The mutants of a text, without surrounding white space."""
    return {mutant.replacement.strip() for mutant in mutants(text, file)}


class ChangesTest(unittest.TestCase):
    def test_a_statement_is_left_out_however_many_lines_it_has(self):
        self.assertIn(";", lines("  port_.close();\n"))
        self.assertIn(";", lines("  put(first,\n      second);\n"))
        self.assertIn(";", lines("  if (wrong) return refuse();\n"))

    def test_a_declaration_is_not(self):
        for text in ("  int x = f();\n", "  const auto x = f();\n", "  Command<In> in(Op::kX);\n", "  bool there_ = false;\n",
                     "  void close(Port& port);\n", "  UniqueFd fd_;\n", "  std::byte* const at = f();\n", "  return f();\n"):
            self.assertNotIn(";", lines(text), text)

    def test_a_condition_is_negated(self):
        self.assertIn("if (!(a(b) != 0)) return;", lines("  if (a(b) != 0) return;\n"))
        self.assertIn("if (auto x = f(); !(!x)) {", lines("  if (auto x = f(); !x) {\n"))
        self.assertIn("} else if (!(x)) {", lines("  } else if (x) {\n"))
        self.assertFalse(any("!(" in line for line in lines("  if (auto* x = f()) g(x);\n")))

    def test_operators_and_numbers(self):
        self.assertIn("x = a < b;", lines("  x = a <= b;\n"))
        self.assertIn("x = a || b;", lines("  x = a && b;\n"))
        self.assertIn("x = y + 8u;", lines("  x = y + 7u;\n"))
        self.assertIn("x = 0x11;", lines("  x = 0x10;\n"))
        self.assertNotIn("std::vector<=int> x;", lines("  std::vector<int> x;\n"))

    def test_arguments_are_swapped(self):
        self.assertIn("f(b, a);", lines("  f(a, b);\n"))
        self.assertIn("f(a, c, b);", lines("  f(a, b, c);\n"))

    def test_comments_texts_and_assertions_stay(self):
        for text in ("  // x = 1 && f(a, b);\n", '#include "a < b"\n', "  assert(x < 1);\n", "  static_assert(a == 1);\n", "\n"):
            self.assertEqual(lines(text), set(), text)
        self.assertEqual(lines('  log("a < 1, true");  // or 2\n'), {";  // or 2"})

    def test_a_layout_moves(self):
        layout = "src/spec/x/x.layout"
        self.assertEqual(lines("  cqn 0x008 23:0\n", layout), {"cqn 0x00c 23:0", "cqn 0x008 23:1"})
        self.assertEqual(lines('  cmd 0x004 24 "1: only"\n', layout), {'cmd 0x008 24 "1: only"', 'cmd 0x004 25 "1: only"'})
        self.assertEqual(lines("  sub qpc 0x18 qpc\n", layout), {"sub qpc 0x01c qpc"})
        self.assertEqual(lines("  CREATE_QP 0x500\n", layout), {"CREATE_QP 0x501"})
        self.assertEqual(lines('struct qpc 0x40 "PRM 1"\n', layout), set())


class LotteryTest(unittest.TestCase):
    def draw(self, seed, count=20):
        lottery = Lottery(seed, "hub")
        return [lottery.draw().key for _ in range(count)]

    def test_a_seed_says_which(self):
        self.assertEqual(self.draw(1), self.draw(1))
        self.assertNotEqual(self.draw(1), self.draw(2))
        self.assertEqual(len(set(self.draw(1))), 20)

    def test_what_is_equivalent_is_not_drawn_and_the_others_stay(self):
        drawn = self.draw(1)
        known = random_mutants.equivalent
        self.addCleanup(setattr, random_mutants, "equivalent", known)
        random_mutants.equivalent = lambda: {*known(), drawn[3]}
        self.assertEqual(self.draw(1, 19), drawn[:3] + drawn[4:])

    def test_folders_have_their_shares_by_lines(self):
        self.assertEqual(shares(100, {"a": 800, "b": 190, "c": 10}), {"a": 80, "b": 19, "c": 5})


class FakeTree:
    """Its archives hold the text of each file as it was at the last build, and its program fails if a text is wrong."""

    def __init__(self, root, names):
        self.root, self._names, self._archives = root, names, {}
        self.filters = []  # of all runs
        for name in names:
            self.restore(name)

    def restore(self, name):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text("right(1);\n")

    def build(self, targets, jobs=1, mutated=False):
        self._archives = self._program = {name: (self.root / name).read_text() for name in self._names}

    def link_beside(self, file, program):
        self._program = {**self._archives, file: (self.root / file).read_text()}
        return "mutant/program"

    def code_of(self, file):
        """The compiler takes out all spaces."""
        return (self.root / file).read_text().replace(" ", "") if file.endswith(".cc") else None

    def test(self, program, tests, seconds, *options, work=None):
        self.filters.append(tests)
        wrong = [name for name, text in self._program.items() if text != "right(1);\n"]
        return (1, f"[  FAILED  ] Test.{wrong[0]} (0 ms)") if wrong else (0, "")


class JudgeTest(unittest.TestCase):
    def test_a_mutant_of_a_header_is_not_in_the_next_program(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            header, source = "src/wire/x.h", "src/wire/x.cc"
            judge = random_run.Judge(FakeTree(pathlib.Path(folder), [header, source]), jobs=1, own_only=True)
            for file in (source, header, source):
                self.assertEqual(judge.judge(mutants("right(1);\n", file)[0]), (random_run.OWN_TESTS, f"wire_test Test.{file}"))

    def judge(self, tree, file, replacement):
        text = "right(1);\n"
        statement = random_mutants.Statement(file, 0, 1, text, text)
        mutant = RandomMutant(statement, random_mutants.Change("test", 0, len(text), replacement))
        with contextlib.redirect_stdout(io.StringIO()):
            return random_run.Judge(tree, jobs=1, own_only=True).judge(mutant)

    def test_a_survivor_is_compared_with_the_original_as_code(self):
        with tempfile.TemporaryDirectory() as folder:
            header, source = "src/wire/x.h", "src/wire/x.cc"
            tree = FakeTree(pathlib.Path(folder), [header, source])
            tree.test = lambda *_, **__: (0, "")
            self.assertEqual(self.judge(tree, source, "right( 1 );\n"), (random_run.SAME_CODE, ""))
            self.assertEqual(self.judge(tree, source, "right(2);\n"), (random_run.SURVIVED, ""))
            self.assertEqual(self.judge(tree, header, "right( 1 );\n"), (random_run.SURVIVED, ""))
            self.assertEqual((tree.root / source).read_text(), "right(1);\n")

    def test_tests_of_the_mutants_file_run_first(self):
        with tempfile.TemporaryDirectory() as folder:
            source = "src/wire/pcapng.cc"
            tree = FakeTree(pathlib.Path(folder), [source])
            test = tree.test
            tree.test = lambda *words, **options: (0, test(*words, **options)[1])
            self.judge(tree, source, "right(2);\n")
            self.assertEqual(tree.filters, ["*", "Pcapng.*:*/Pcapng.*-", "*-Pcapng.*:*/Pcapng.*"])


class LikelyTest(unittest.TestCase):
    def test_suites_of_files_that_include_the_header_or_have_the_name(self):
        sources = {"a_test.cc": '#include "wire/a.h"\nTEST(One, X) {\nTEST_F(Two, Y) {\n', "x/b_test.cc": "TEST_P(Three, Z) {\n",
                   "c_test.cc": '#include "wire/other/a.h"\nTEST(Four, X) {\n'}
        self.assertEqual(likely.likely_suites("src/wire/a.cc", sources), ["One", "Two"])
        self.assertEqual(likely.likely_suites("src/wire/x/b.h", sources), ["Three"])
        self.assertEqual(likely.likely_suites("src/wire/d.cc", sources), [])

    def test_files_in_the_chapters_of_a_folder_count(self):
        self.assertIn("RdmaCqe.*", likely.likely("src/connectx/qp/cqe.cc", "connectx_test"))


if __name__ == "__main__":
    unittest.main()
