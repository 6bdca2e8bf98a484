"""tests/main/skips.txt: it has the message of each GTEST_SKIP and each disabled test, and no others. The tests in Python skip nothing."""
import pathlib
import re
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
SKIP = re.compile(r'GTEST_SKIP\(\)(?:\s*<<\s*"([^"]*)"\s*$|\s*<<\s*"([^"]*)";)?', re.M)
DISABLED = re.compile(r"^TEST(?:_F|_P)?\((\w+),\s*(DISABLED_\w+)\)", re.M)
PYTHON_SKIP = re.compile(r"\bskipTest\(|\bSkipTest\b|@(?:unittest\.)?(?:skip|expectedFailure)|\bpytest\.skip")


def rows():
    lines = (TESTS / "main/skips.txt").read_text().splitlines()
    return [tuple(part.strip() for part in line.split("|")) for line in lines if not line.startswith("#")]


def sources():
    for suffix in ("*.cc", "*.h"):
        for path in sorted(TESTS.rglob(suffix)):
            yield path, path.read_text()


class Skips(unittest.TestCase):
    def test_each_row_names_tests_a_message_and_a_reason(self):
        for row in rows():
            self.assertEqual((len(row), all(row)), (3, True), row)

    def test_the_messages_of_the_sources_are_those_of_the_list(self):
        found = {}
        for path, text in sources():
            for match in SKIP.finditer(text):
                found[match[1] or match[2]] = f"{path.relative_to(TESTS)}:{text.count(chr(10), 0, match.start()) + 1}"
        self.assertNotIn(None, found, "a GTEST_SKIP without a message")
        listed = {message for _, message, _ in rows()} - {"disabled"}
        self.assertEqual({message: found[message] for message in set(found) - listed}, {}, "not in main/skips.txt")
        self.assertEqual(listed - set(found), set(), "in main/skips.txt, and no test has it")

    def test_the_disabled_tests_are_those_of_the_list(self):
        found = {f"{match[1]}.{match[2]}" for _, text in sources() for match in DISABLED.finditer(text)}
        self.assertEqual(found, {name for name, message, _ in rows() if message == "disabled"})

    def test_no_test_in_python_is_skipped(self):
        for path in sorted(TESTS.rglob("*.py")):
            if path != pathlib.Path(__file__).resolve():
                self.assertIsNone(PYTHON_SKIP.search(path.read_text()), path)


if __name__ == "__main__":
    unittest.main()
