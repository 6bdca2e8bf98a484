"""tests/repeat: it counts failures over calls, keeps the output of each, and starts again for other programs."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOADER = importlib.machinery.SourceFileLoader("repeat", str(ROOT / "tests/repeat"))
repeat = importlib.util.module_from_spec(importlib.util.spec_from_loader("repeat", LOADER))
LOADER.exec_module(repeat)

# `second` fails in its second run alone. The others of no concern would fail each time.
PROGRAM = "#!/bin/sh\necho x >>{count}\n[ $(wc -l <{count}) != 2 ] || {{ echo 'it broke'; exit 1; }}\n"
TESTS = """add_test(good /bin/true)
add_test(suite/second {program})
add_test(tidy /bin/false)
add_test(guest.boot /bin/false)
set_tests_properties(good suite/second tidy PROPERTIES LABELS unit)
set_tests_properties(guest.boot PROPERTIES LABELS guest)
"""


class RepeatTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name)
        self.program = self.build / "second"
        self.program.write_text(PROGRAM.format(count=self.build / "count"))
        self.program.chmod(0o755)
        (self.build / "CTestTestfile.cmake").write_text(TESTS.format(program=self.program))

    def run_it(self, runs, *options):
        """Status and output."""
        out = io.StringIO()
        words = ["repeat", str(self.build), str(runs), "--busy", "0", "--jobs", "1", *options]
        with mock.patch("sys.argv", words), contextlib.redirect_stdout(out):
            status = repeat.main()
        return status, out.getvalue()

    def test_runs_without_a_failure_are_counted_over_calls(self):
        self.assertEqual(self.run_it(1)[0], 0)
        status, out = self.run_it(1)
        self.assertEqual(status, 0)
        self.assertIn("1 runs of these programs are counted already, 0 failed", out)
        self.assertEqual((self.build / "count").read_text(), "x\n")

    def test_a_failure_is_counted_and_its_output_is_kept(self):
        self.assertEqual(self.run_it(1)[0], 0)
        status, out = self.run_it(3)
        self.assertEqual(status, 1)
        log = self.build / "repeat/2.suite_second.log"
        self.assertIn(f"FAILED: {log}\n", out)
        self.assertIn("3 of 3 runs, 1 failed; the last: 2 tests in", out)
        self.assertTrue(out.endswith("  suite/second: 1 of 3, in run 2\n"), out)
        self.assertEqual(log.read_text().strip(), "it broke")
        self.assertEqual(self.run_it(3)[0], 1, "it forgets no failure")
        self.assertEqual(self.run_it(1, "--fresh")[0], 0)

    def test_other_programs_are_counted_anew(self):
        self.run_it(2)
        os.utime(self.program, (1, 1))
        self.assertEqual(self.run_it(1)[0], 0)
        self.assertEqual(json.loads((self.build / "repeat/counts.json").read_text())["runs"], 1)

    def test_a_program_that_was_not_built_has_failed(self):
        with (self.build / "CTestTestfile.cmake").open("a") as out:
            out.write("add_test(x.NOT_BUILT missing)\nset_tests_properties(x.NOT_BUILT PROPERTIES LABELS unit)\n")
        self.assertEqual(self.run_it(1)[0], 1)

    def test_busy_loops_run_beside_the_tests(self):
        with repeat.busy_loops(1) as loops:
            self.assertIsNone(loops[0].poll())
        self.assertIsNotNone(loops[0].returncode)


if __name__ == "__main__":
    unittest.main()
