"""tools/refusal_table.py: the refusals it finds in sources, and the errors it reports."""
import pathlib
import re
import tempfile
import unittest

from run_script import run_script

ROOT = pathlib.Path(__file__).resolve().parents[2]

LIST = '''
DONE(MAKE, make, "PRM 1.1", kAlways)
PARTLY(DROP, drop, kDriver, kAlways,
    "not all")
'''
LAYOUT = 'document connectx big\nstruct reg_a 0x10 "PRM Table 7"\n  field 0x0 3:0\n'


def run(source, other=""):
    """(exit status, messages, rows) of a program of one or two files."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "a.layout").write_text(LAYOUT)
        (folder / "list.inc").write_text(LIST)
        (folder / "a.cc").write_text("namespace softhca {\n" + source + "\n}  // namespace softhca\n")
        (folder / "b.cc").write_text("namespace softhca {\n" + other + "\n}  // namespace softhca\n")
        ended, _, errors = run_script(
            ROOT / "tools/refusal_table.py", "--layouts", folder, "--commands", folder / "list.inc", "--folder", folder,
            "--output", folder / "out.inc", folder / "a.cc", folder / "b.cc")
        rows = []
        if ended == 0:
            for line in (folder / "out.inc").read_text().splitlines()[1:]:
                number, status, *texts = re.match(
                    r'\{(\w+), Status::(\w+), "(.*)", "(.*)", "(.*)", "(.*)"\},', line).groups()
                rows.append((int(number, 16), status, *texts))
        return ended, errors, rows


def refusals(source, other=""):
    status, messages, rows = run(source, other)
    assert status == 0, messages
    return [row[1:5] for row in rows]


class RefusalTable(unittest.TestCase):
    def test_literals(self):
        self.assertEqual(refusals('CommandResult make(D& d, C& c) { if (x) return refuse(Status::BAD, "PRM 9", "a " "b"); }'),
                         [("BAD", "PRM 9", "a b", "MAKE")])

    def test_the_number_is_the_hash_that_the_device_makes(self):
        # softhca's own syndrome_of("PRM 12.3.14", "this number is not in use").
        _, _, rows = run('CommandResult make(D& d) { return refuse(Status::B, "PRM 12.3.14", "this number is not in use"); }')
        self.assertEqual(rows[0][0], 0x38bb3f8d)

    def test_constants_of_function_and_file(self):
        self.assertEqual(
            refusals('constexpr std::string_view kText = "words";\n'
                     'CommandResult make(D& d) { constexpr std::string_view kSection = "PRM 9";\n'
                     '  return refuse(Status::BAD, kSection, kText); }'),
            [("BAD", "PRM 9", "words", "MAKE")])

    def test_a_parameter_has_the_values_that_callers_give(self):
        found = refusals('namespace {\nCommandResult unknown(std::string_view section) {\n'
                         '  return refuse(Status::BAD, section, "unknown"); }\n}\n'
                         'CommandResult make(D& d) { return unknown("PRM 1.1"); }\n'
                         'CommandResult drop(D& d) { return unknown("PRM 1.2"); }')
        self.assertEqual(sorted(found), [("BAD", "PRM 1.1", "unknown", "MAKE"), ("BAD", "PRM 1.2", "unknown", "DROP")])

    def test_two_parameters_stay_together(self):
        found = refusals('CommandResult no(std::string_view s, std::string_view t) { return refuse(Status::BAD, s, t); }\n'
                         'CommandResult make(D& d) { return no("PRM 1.1", "one"); }\n'
                         'CommandResult drop(D& d) { return no("PRM 1.2", "two"); }')
        self.assertEqual(sorted(found), [("BAD", "PRM 1.1", "one", "MAKE"), ("BAD", "PRM 1.2", "two", "DROP")])

    def test_the_section_of_a_structure(self):
        self.assertEqual(refusals('CommandResult make(D& d) { using R = spec::reg_a;\n'
                                  '  return refuse(Status::BAD, R::kSection, "w"); }'),
                         [("BAD", "PRM Table 7", "w", "MAKE")])

    def test_either_of_two(self):
        found = refusals('CommandResult make(D& d) { return refuse(Status::BAD, x ? "PRM 1" : "PRM 2", "w"); }')
        self.assertEqual(sorted(found), [("BAD", "PRM 1", "w", "MAKE"), ("BAD", "PRM 2", "w", "MAKE")])

    def test_words_of_a_table(self):
        self.assertEqual(refusals('constexpr Row kRows[] = {{.text = "w"}};\n'
                                  'CommandResult make(D& d) { return refuse(Status::BAD, "PRM 1", row.text); }'),
                         [("BAD", "PRM 1", "w", "MAKE")])

    def test_commands_are_found_through_methods_of_other_files(self):
        found = refusals('CommandResult make(D& d) { return d.port().set(1); }\n'
                         'CommandResult drop(D& d) { return d.queues().set(1); }',
                         'CommandResult Port::set(int x) { return refuse(Status::BAD, "PRM 2", "w"); }\n'
                         'CommandResult Queue::set(int x) { return {}; }')
        self.assertEqual(found, [("BAD", "PRM 2", "w", "MAKE")])

    def test_a_section_of_one_command_names_it(self):
        self.assertEqual(refusals('CommandResult anywhere(D& d) { return refuse(Status::BAD, "PRM 1.1", "w"); }'),
                         [("BAD", "PRM 1.1", "w", "MAKE")])

    def test_what_cannot_be_resolved_is_an_error(self):
        status, messages, _ = run('CommandResult make(D& d) { return refuse(Status::BAD, "PRM 1", text()); }')
        self.assertEqual(status, 1)
        self.assertIn("what is text ( )", messages)

    def test_a_parameter_that_nobody_gives_is_an_error(self):
        status, messages, _ = run('CommandResult no(std::string_view s) { return refuse(Status::BAD, s, "w"); }')
        self.assertEqual(status, 1)
        self.assertIn("nobody gives s", messages)

    def test_a_refusal_of_another_form_is_an_error(self):
        status, messages, _ = run('CommandResult make(D& d) { return refuse(status, "PRM 1", "w"); }')
        self.assertEqual(status, 1)
        self.assertIn("not refuse(Status::NAME, section, words)", messages)

    def test_one_number_for_two_refusals_is_an_error(self):
        status, messages, _ = run('CommandResult make(D& d) { if (x) return refuse(Status::BAD, "PRM 1", "w");\n'
                                  '  return refuse(Status::WORSE, "PRM 1", "w"); }')
        self.assertEqual(status, 1)
        self.assertIn("is the number of", messages)


if __name__ == "__main__":
    unittest.main()
