"""tools/coverage.py: lines by folder, from reports in lcov's format."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import coverage  # noqa: E402


def report(**files):
    """`files`: {line: count} by the name of a file without its suffix, with __ for a slash."""
    return "".join(f"SF:{ROOT}/src/{name.replace('__', '/')}.cc\nFN:1,_Z1f\nFNDA:1,_Z1f\n" +
                   "".join(f"DA:{line},{count}\n" for line, count in counts.items()) + "LF:2\nLH:1\nend_of_record\n"
                   for name, counts in files.items())


class Lines(unittest.TestCase):
    by_who = {"tests": coverage.lines_of(report(wire__bth={1: 5, 2: 0, 3: 0, 7: 0}, connectx__qp__a={1: 1})),
              "fuzzers": coverage.lines_of(report(wire__bth={1: 1, 2: 9, 3: 0, 7: 0}, hub__hub={4: 0}))}

    def test_a_line_of_a_file_is_the_most_that_any_instance_has(self):
        self.assertEqual(coverage.lines_of(report(wire__bth={1: 0}) + report(wire__bth={1: 3, 2: 0})), {"src/wire/bth.cc": {1: 3, 2: 0}})

    def test_each_folder_has_a_row(self):
        rows = coverage.summarize(self.by_who, {"door", "wire"})
        self.assertEqual(rows[2:], ["| connectx/qp | 1 | 1 | 0 | 0 | 100.0 % |", "| door | 0 | 0 | 0 | 0 | - |", "| hub | 1 | 0 | 0 | 1 | 0.0 % |",
                                    "| wire | 4 | 1 | 2 | 2 | 50.0 % |", "| all | 6 | 2 | 2 | 3 | 50.0 % |"])

    def test_what_nobody_reaches(self):
        self.assertEqual(list(coverage.unreached(self.by_who)), ["src/hub/hub.cc: 4", "src/wire/bth.cc: 3, 7"])


if __name__ == "__main__":
    unittest.main()
