"""tools/command_roles.py: the tables it makes of the roles of opcodes and of references, and the errors it reports."""
import pathlib
import tempfile
import unittest

from run_script import run_script

ROOT = pathlib.Path(__file__).resolve().parents[2]

LAYOUT = """document connectx big
enum object_kind 8 "a"
  PD 0x0
  QP 0x1 "a pair"
  SQ 0x2 as QP
  PART 0x3
enum command_opcode 16 "a"
  END_QP 0x3 ends QP in qpn with type,bytes
  MAKE_QP 0x1 makes QP in qpn "a note"
  MOVE_QP 0x2 changes QP in qpn not devx
  MAKE_PART 0x4 makes PART in part of QP in qpn
  ASK 0x5 open not uid
  NOTHING 0x6 "no role"
  MAKE_OTHER 0x7 makes SQ not uid
struct context 0x10 "a"
  valid 0x000 31
  pd 0x004 23:0 ref PD if valid change PD or 0 "the domain"
  other 0x008 31:24 ref PD unless valid
struct make_qp_in 0x30 "a"
  type 0x008 7:4
  bytes bytes 0x010 8
  sub context 0x20 context
struct make_qp_out 0x10 "a"
  qpn 0x008 23:0
struct move_qp_in 0x20 "a"
  qpn 0x008 23:0
  sub context 0x10 context
struct end_qp_in 0x30 "a"
  type 0x00c 3:0
  qpn 0x008 15:0
  bytes bytes 0x020 8
struct make_part_in 0x20 "a"
  qpn 0x008 23:0
  part 0x00c 31:0
struct make_part_out 0x10 "a"
"""


def run(layout):
    """(exit status, messages, {table: rows})"""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "a.layout").write_text(layout)
        ended, _, errors = run_script(ROOT / "tools/command_roles.py", folder, folder / "roles.inc")
        tables = {}
        if ended == 0:
            for line in (folder / "roles.inc").read_text().splitlines():
                if line.startswith("constexpr"):
                    rows = tables.setdefault(line.split()[2], [])
                elif line.startswith("    "):
                    rows.append(line.strip().replace("command_opcode::", "").replace("object_kind::", ""))
        return ended, errors, tables


class CommandRolesTest(unittest.TestCase):
    def table(self, name, opcode):
        status, errors, tables = run(LAYOUT)
        self.assertEqual((status, errors), (0, ""))
        return [row for row in tables[name] if row.startswith(f"{{{opcode},")]

    def error(self, old, new):
        self.assertEqual(LAYOUT.count(old), 1)
        status, errors, _ = run(LAYOUT.replace(old, new))
        self.assertEqual(status, 1)
        return errors

    def test_the_number_of_a_made_object_is_in_the_output(self):
        qp = "{Verb::kMakes, QP, {0x8, 0, 0xffffff}, true}"
        self.assertEqual(self.table("kRoles", "MAKE_QP"), [f"{{MAKE_QP, {qp}, {qp}, 0x30, true, true}},"])

    def test_a_part_changes_its_whole_and_can_have_its_number_in_the_input(self):
        self.assertEqual(self.table("kRoles", "MAKE_PART"), [
            "{MAKE_PART, {Verb::kMakes, PART, {0xc, 0, 0xffffffff}, false}, "
            "{Verb::kChanges, QP, {0x8, 0, 0xffffff}, false}, 0x20, true, true},"])

    def test_a_role_says_who_may_not_send(self):
        self.assertTrue(self.table("kRoles", "MOVE_QP")[0].endswith("true, false},"))
        self.assertTrue(self.table("kRoles", "ASK")[0].endswith("false, true},"))

    def test_rows_are_sorted_by_opcode(self):
        _, _, tables = run(LAYOUT)
        self.assertEqual([row.split(",")[0] for row in tables["kRoles"]],
                         ["{MAKE_QP", "{MOVE_QP", "{END_QP", "{MAKE_PART", "{ASK", "{MAKE_OTHER"])

    def test_a_command_that_makes_an_object_has_the_references_of_its_context(self):
        self.assertEqual(self.table("kReferences", "MAKE_QP"), [
            "{MAKE_QP, PD, {0x24, 0, 0xffffff}, false, When::kIf, {0x20, 31, 0x1}},",
            "{MAKE_QP, PD, {0x28, 24, 0xff}, false, When::kUnless, {0x20, 31, 0x1}},"])

    def test_a_command_that_changes_an_object_has_others(self):
        self.assertEqual(self.table("kReferences", "MOVE_QP"),
                         ["{MOVE_QP, PD, {0x14, 0, 0xffffff}, true, When::kAlways, {}},"])

    def test_an_ending_command_shares_fields_and_bytes(self):
        self.assertEqual(self.table("kSharedFields", "END_QP"), [
            "{END_QP, {0x8, 4, 0xf}, {0xc, 0, 0xf}},",
            "{END_QP, {0x10, 0, 0xffffffff}, {0x20, 0, 0xffffffff}},",
            "{END_QP, {0x14, 0, 0xffffffff}, {0x24, 0, 0xffffffff}},"])

    def test_unknown_names_are_errors(self):
        self.assertIn("there is no object_kind CQ", self.error("changes QP in", "changes CQ in"))
        self.assertIn("there is no field nothing", self.error("MAKE_QP 0x1 makes QP in qpn", "MAKE_QP 0x1 makes QP in nothing"))
        self.assertIn("there is no object_kind CQ", self.error("ref PD if valid", "ref CQ if valid"))
        self.assertIn("there is no field nothing", self.error("ref PD if valid", "ref PD if nothing"))
        self.assertIn("there is no field nothing", self.error("with type,bytes", "with nothing"))
        self.assertIn(": not kernel:", self.error("not devx", "not kernel"))
        self.assertIn("unknown words after fi", self.error("ref PD if valid", "ref PD fi valid"))

    def test_a_number_has_at_most_32_bits(self):
        self.assertIn("more than 32 bits", self.error("pd 0x004 23:0", "pd 0x004 32:0"))

    def test_notes_follow_roles_and_references(self):
        with tempfile.TemporaryDirectory() as name:
            layout, header = pathlib.Path(name) / "a.layout", pathlib.Path(name) / "a.h"
            layout.write_text(LAYOUT)
            self.assertEqual(run_script(ROOT / "tools/layout_compiler.py", layout, header)[0], 0)
            text = header.read_text()
        self.assertIn("MAKE_QP = 0x1,  ///< a note", text)
        self.assertIn("/// the domain", text)
        self.assertIn("case object_kind::SQ: return object_kind::QP;", text)


if __name__ == "__main__":
    unittest.main()
