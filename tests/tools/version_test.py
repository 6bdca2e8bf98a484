"""The version: that of CMakeLists.txt is the changelog's newest release, and the one that the ConnectX driver of src/driver reports."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def found(pattern, path):
    return re.findall(pattern, (ROOT / path).read_text(), re.M)


class Version(unittest.TestCase):
    def setUp(self):
        self.version = found(r"^project\(softhca VERSION ([0-9.]+) ", "CMakeLists.txt")[0]

    def test_the_newest_release_of_the_changelog_has_it(self):
        self.assertEqual(found(r"^## ([0-9.]+)$", "CHANGELOG.md")[0], self.version)

    def test_the_driver_reports_it(self):
        self.assertEqual(found(r'"Linux,softhca,([0-9.]+)"', "src/driver/connectx/bring_up.cc"), [self.version])


if __name__ == "__main__":
    unittest.main()
