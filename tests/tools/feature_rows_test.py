"""tools/feature_rows.py: the page with one row for each rule of a document, and the errors it finds."""
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import feature_rows  # noqa: E402

TESTS = {"Suite.Name", "Suite.Other", "guest.capture"}
MUTANTS = {"a/planted": "Suite.Name", "a/instances": "All/Suite.Name/*:More.*", "a/elsewhere": "Other.*"}
LAYOUT = """document jingzhao little
enum state 8 "3.1"
  DOWN 1 "no link"
  UP   2
struct thing 0x10 "3.2"
  size   0x00 31:16 "bytes"
  spare  0x04 31:0 "unused"
  bytes id 0x08 8
"""
FILE = """sections = ["3.1", "3.2", "table 3-2-1", "table 3-2-2"]
[[part]]
title = "Things"
layouts = ["state", "thing"]
[[part.row]]
name = "a rule"
section = "3.2, table 3-2-1 to table 3-2-2"
status = "done"
tests = ["Suite.Name"]
mutants = ["a/planted", "a/instances"]
[layout.state]
tests = ["Suite.Name"]
[layout.thing]
section = "3.2"
tests = ["Suite.Name"]
unused = ["guest.capture"]
[layout.thing.id]
status = "absent"
words = "never read"
tests = []
"""


def made(file, layout=LAYOUT):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "a.layout").write_text(layout)
        (folder / "a.toml").write_text(file)
        return feature_rows.page(folder, folder / "a.toml", TESTS, MUTANTS)


class Page(unittest.TestCase):
    def refused(self, words, file):
        with self.assertRaisesRegex(feature_rows.Problem, words):
            made(file)

    def test_every_value_field_and_rule_has_a_row(self):
        lines = made(FILE).splitlines()
        self.assertEqual(lines[0], "6 rows: 4 done, 1 ignored, 0 refused, 1 absent. 1 without a test, 5 without a mutant.")
        for row in ("## Things", "| 3.1 | `state.DOWN` 01h: no link | done | `Suite.Name` | - |",
                    "| 3.1 | `state.UP` 02h | done | `Suite.Name` | - |",
                    "| 3.2 | `thing.size` 00h 31:16: bytes | done | `Suite.Name` | - |",
                    "| 3.2 | `thing.spare` 04h 31:0 | ignored | `guest.capture` | - |",
                    "| 3.2 | `thing.id` 08h, 8 bytes | absent: never read | - | - |",
                    "| 3.2, table 3-2-1 to table 3-2-2 | a rule | done | `Suite.Name` | `a/planted`, `a/instances` |"):
            self.assertIn(row, lines)

    def test_a_section_or_table_of_the_document_without_a_row(self):
        self.refused("no row has section 3.3", FILE.replace('"3.2", "table', '"3.2", "3.3", "table'))
        self.refused("no row has section table 3-2-3", FILE.replace('"table 3-2-2"]', '"table 3-2-2", "table 3-2-3"]'))

    def test_a_row_without_a_test(self):
        self.refused("`thing.spare` .*: ignored, and no test shows it", FILE.replace('unused = ["guest.capture"]\n', ""))
        self.refused("a rule: done, and no test shows it", FILE.replace('tests = ["Suite.Name"]\nmutants', 'words = "w"\nmutants'))
        self.refused("`thing.id` .*: absent, and no test", FILE.replace('words = "never read"\n', ""))

    def test_tests_and_mutants_that_do_not_exist(self):
        self.refused("there is no test Suite.Gone", FILE.replace('["Suite.Name"]\nmutants', '["Suite.Gone"]\nmutants'))
        self.refused("there is no mutant a/gone", FILE.replace("a/instances", "a/gone"))

    def test_a_mutant_that_none_of_the_tests_finds(self):
        self.refused("a rule: a/elsewhere fails none of the row's tests", FILE.replace("a/instances", "a/elsewhere"))

    def test_what_no_layout_has(self):
        self.refused("no layout has .*gone", FILE + "[layout.thing.gone]\nwords = 'w'\n")
        self.refused("layouts without a part or without a layout file", FILE + "[layout.gone]\n")
        self.refused("layouts without a part or without a layout file", FILE.replace('["state", "thing"]', '["thing"]'))

    def test_unknown_keys_and_states(self):
        self.refused("unknown .*wrods", FILE.replace('words = "never', 'wrods = "never'))
        self.refused("status maybe is none of", FILE.replace('status = "absent"', 'status = "maybe"'))


class Filters(unittest.TestCase):
    def test_instances_of_parameterized_suites_are_of_their_test(self):
        for filter_text in ("Suite.Name", "*Suite.Name/*", "All/Suite.Name/Of4", "Other.*:Suite.*"):
            self.assertTrue(feature_rows.runs(filter_text, "Suite.Name"), filter_text)
        for filter_text in ("Suite.Other", "Suite", "Name.Suite"):
            self.assertFalse(feature_rows.runs(filter_text, "Suite.Name"), filter_text)


class Mutants(unittest.TestCase):
    def test_those_of_the_tree(self):
        self.assertEqual(feature_rows.existing_mutants()["wire/pad_not_checked"], "IbPacket.PayloadAndPadAreAMultipleOf4Bytes")


if __name__ == "__main__":
    unittest.main()
