"""tools/docs.py: the pages it makes of rows, and the errors it finds."""
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import docs  # noqa: E402
import test_names  # noqa: E402

TESTS = {"Suite.Name", "guest.capture"}
ROW = '[[group]]\ntitle = "G"\n[[group.row]]\nid = "F-1"\nname = "n"\nsection = "PRM 1"\n'


def problems(rows):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "a.toml").write_text(rows)
        (folder / "a.md").write_text("# A\n<!-- generated: rows a.toml -->\n<!-- end of generated -->\n")
        found = list(docs.stale(folder, TESTS))
        if found == ["a.md is stale: make docs"]:
            made = docs.rows_page(folder / "a.toml", TESTS)
            (folder / "a.md").write_text(f"# A\n<!-- generated: rows a.toml -->\n{made}<!-- end of generated -->\n")
            assert not list(docs.stale(folder, TESTS))
            return made
        return found


class Docs(unittest.TestCase):
    def test_a_page_is_stale_until_it_is_made(self):
        made = problems(ROW + 'status = "done"\ntests = ["Suite.Name"]\n')
        self.assertIn("1 rows: 1 done.\n", made)
        self.assertIn("| F-1 | n | PRM 1 | done | `Suite.Name` |", made)

    def test_a_row_that_is_done_names_tests(self):
        self.assertEqual(problems(ROW + 'status = "done"\n'), ["a.toml: F-1: done, but no test shows it"])

    def test_a_row_that_is_not_done_says_what_is_missing(self):
        self.assertEqual(problems(ROW + 'status = "absent"\n'),
                         ["a.toml: F-1: absent, but no words say what is missing"])

    def test_tests_that_do_not_exist(self):
        self.assertEqual(problems(ROW + 'status = "done"\ntests = ["Suite.Gone"]\n'),
                         ["a.toml: F-1: there is no test Suite.Gone"])

    def test_other_states(self):
        self.assertIn("status maybe is none of", problems(ROW + 'status = "maybe"\nwords = "w"\n')[0])

    def test_a_section_of_the_document_that_no_row_has(self):
        row = ROW.replace("PRM 1", "4.2, 7.1 to 7.3") + 'status = "absent"\nwords = "w"\n'
        self.assertEqual(problems('sections = ["4.2", "7.2", "7.3", "7.4"]\n' + row), ["a.toml: no row has section 7.4"])

    def test_a_number_twice(self):
        row = ROW[ROW.index("[[group.row]]"):] + 'status = "absent"\nwords = "w"\n'
        self.assertEqual(problems('[[group]]\ntitle = "G"\n' + row + row), ["a.toml: F-1: twice"])


KINDS = 'constexpr std::array<FaultKind, 2> kKinds{{\n    {FaultAction::kLose,\n     "lose",\n     {}},\n    {kStallSend, "stall-send", ""}}};\n'
FAULTS = """[a.lose]
driver = ["Suite.Name"]
program = ["guest.capture"]
[a.stall-send]
driver = ["Suite.Name"]
program_words = "none posts so"
"""


def faults(cited, kinds=KINDS):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "kinds.cc").write_text(kinds)
        (folder / "a.toml").write_text(cited)
        return docs.faults_page(folder / "kinds.cc", folder / "a.toml", "a", TESTS)


class Faults(unittest.TestCase):
    def test_every_kind_has_a_row_with_its_tests(self):
        rows = faults(FAULTS).splitlines()
        self.assertIn("| `lose` | `Suite.Name` | `guest.capture` |", rows)
        self.assertIn("| `stall-send` | `Suite.Name` | none posts so |", rows)

    def test_a_kind_without_tests_is_a_problem(self):
        with self.assertRaisesRegex(docs.Problem, "a.stall-send: no test of program"):
            faults(FAULTS.replace('program_words = "none posts so"', ""))

    def test_a_kind_that_the_file_or_the_source_does_not_have(self):
        for cited, kinds in ((FAULTS.replace("[a.lose]", "[a.loose]"), KINDS), (FAULTS, KINDS.replace("stall-send", "stall-sent"))):
            with self.assertRaisesRegex(docs.Problem, "a has .*, and kinds.cc the kinds"):
                faults(cited, kinds)

    def test_a_test_that_does_not_exist(self):
        with self.assertRaisesRegex(docs.Problem, "there is no test Suite.Gone"):
            faults(FAULTS.replace("Suite.Name", "Suite.Gone"))


class Floors(unittest.TestCase):
    def test_who_may_include_whom(self):
        self.assertEqual(docs.floors_page("folder", {"low": set(), "high": {"low"}}),
                         "| folder | may include |\n|---|---|\n| low | itself |\n| high | low |")


class TestNames(unittest.TestCase):
    def test_what_the_sources_have(self):
        names = test_names.existing()
        self.assertIn("CommandTable.NamesEachOfThe79CommandsOfTheManual", names)
        self.assertIn("guest.capture", names)
        self.assertIn("wire_fuzzer", names)
        self.assertIn("door.fault_kinds", names)
        self.assertIn("door.trunk", names)
        self.assertNotIn("Suite.Name", names)

    def test_what_a_page_names(self):
        text = "see `Rdma.Works` and\n`guest.run_it`, not `CMakeLists.txt`, `a.b` or `Rdma`; `wire_fuzzer`"
        self.assertEqual(test_names.cited(text), [(1, "Rdma.Works"), (2, "guest.run_it"), (2, "wire_fuzzer")])


if __name__ == "__main__":
    unittest.main()
