"""tests/oracle/compare.py: the differences it explains, and the errors it finds."""
import pathlib
import tempfile
import unittest

from run_script import run_script

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINES = "a.one/x = 0\na.one/y = EINVAL\nb.two/z = 5\n"


def run(guest, door, rules="", *options):
    """(exit status, output)."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder) / name for name in ("guest", "door", "page.md")]
        page = f"# Page\n<!-- rules -->\n| lines | Linux | door | why |\n|---|---|---|---|\n{rules}<!-- end of rules -->\n"
        for path, text in zip(paths, (guest, door, page)):
            path.write_text(text)
        status, out, errors = run_script(ROOT / "tests/oracle/compare.py", *paths[:2], "--rules", paths[2], *options)
        return status, out + errors


class CompareTest(unittest.TestCase):
    def test_equal_sides_pass(self):
        status, output = run(LINES, LINES)
        self.assertEqual(status, 0)
        self.assertIn("3 observations: 3 equal, 0 explained, 0 not", output)

    def test_order_does_not_matter(self):
        self.assertEqual(run(LINES, "".join(reversed(LINES.splitlines(True))))[0], 0)

    def test_a_difference_fails(self):
        status, output = run(LINES, LINES.replace("5", "6"))
        self.assertEqual(status, 1)
        self.assertIn("b.two/z: Linux 5; door 6", output)

    def test_a_line_of_one_side_fails(self):
        self.assertEqual(run(LINES, LINES + "b.two/w = 1\n")[0], 1)
        self.assertEqual(run(LINES + "b.two/w = 1\n", LINES)[0], 1)

    def test_a_rule_explains(self):
        status, output = run(LINES, LINES.replace("5", "6"), "| `b.two/.` | `5` | `6` | its number |\n")
        self.assertEqual(status, 0, output)
        self.assertIn("1 its number", output)

    def test_a_rule_is_about_the_whole_line(self):
        self.assertEqual(run(LINES, LINES.replace("5", "6"), "| `b.two` | `` | `` | its number |\n")[0], 1)
        self.assertEqual(run(LINES, LINES.replace("5", "66"), "| `b.*` | `5` | `6` | its number |\n")[0], 1)

    def test_a_rule_that_explains_nothing_fails(self):
        status, output = run(LINES, LINES, "| `b.*` | `` | `` | its number |\n")
        self.assertEqual(status, 1)
        self.assertIn("explains nothing", output)
        self.assertEqual(run(LINES, LINES, "| `b.*` | `` | `` | its number |\n", "--some")[0], 0)

    def test_a_bar_is_escaped(self):
        rule = "| `(b\\|c).two/z` | `` | `` | its number |\n"
        self.assertEqual(run(LINES, LINES.replace("5", "6"), rule)[0], 0)

    def test_an_answer_of_the_linux_that_the_door_follows_is_explained(self):
        with tempfile.NamedTemporaryFile("w", suffix=".lines") as reference:
            reference.write(LINES)
            reference.flush()
            option = ("--reference", reference.name)
            other = LINES.replace("5", "6") + "c.new/w = 1\n"
            status, output = run(other, LINES, "", *option)
            self.assertEqual(status, 0, output)
            self.assertIn("2 The Linux that the door follows answers", output)
            self.assertEqual(run(LINES, other, "", *option)[0], 1)

    def test_what_is_no_rule_is_told(self):
        self.assertEqual(run(LINES, LINES, "| `b.*` | `` | `` | |\n")[0], 2)
        self.assertEqual(run(LINES, LINES, "| `(` | `` | `` | its number |\n")[0], 2)

    def test_a_page_that_promises_more_lines_fails(self):
        for promised, status in (("0", 0), ("2,000", 1)):
            text = f"It prints more than {promised} lines.\n"
            self.assertEqual(run(LINES, LINES, text)[0], status)
            self.assertEqual(run(LINES, LINES, text, "--some")[0], 0)

    def test_a_side_without_lines_fails(self):
        self.assertEqual(run("", LINES)[0], 2)
        self.assertEqual(run(LINES, "")[0], 2)

    def test_a_name_that_occurs_twice_fails(self):
        status, output = run(LINES + "a.one/x = 1\n", LINES)
        self.assertEqual(status, 2)
        self.assertIn("a.one/x occurs twice", output)


if __name__ == "__main__":
    unittest.main()
