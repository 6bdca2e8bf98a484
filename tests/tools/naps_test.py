"""tools/naps.py: which naps and second tries it finds, and what the list of exceptions may say."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import naps  # noqa: E402


def problems(name, text, listed=None):
    return naps.check({name: text}, listed or {})[0]


class Found(unittest.TestCase):
    def bites(self, name, line):
        found = problems(name, f"first\n{line}\n")
        return bool(found) and found[0].startswith(f"{name}:2: ")

    def test_naps(self):
        for name, line in (("tests/unit/a_test.cc", "  std::this_thread::sleep_for(5ms);"),
                           ("tests/unit/a_test.cc", "std::this_thread::sleep_until(end);"),
                           ("tests/unit/a_test.cc", "::usleep(1000);"), ("tests/unit/a_test.cc", "::sleep(1);"),
                           ("tests/unit/a_test.cc", 'start({"sh", "-c", "echo on; sleep 9"});'),
                           ("bench/a.h", "::nanosleep(&time, nullptr);"), ("tests/guest/a.py", "    time.sleep(0.5)"),
                           ("tests/guest/a.sh", "server & sleep 1; client"), ("tests/guest/a_test", "sleep $pause"),
                           ("tests/guest/a_test", "sleep .1"), ("Makefile", "\tsleep 3"), (".ci/run", "sleep 3")):
            self.assertTrue(self.bites(name, line), line)

    def test_second_tries(self):
        for name, line in (("tests/guest/a_test", "for try in 1 2 3 4 5; do"), ("tests/a.sh", "for i in 1 2 3; do client && break; done"),
                           ("Makefile", "\tctest --repeat until-pass:3"), (".ci/run", "ctest --rerun-failed"),
                           ("tests/a.sh", "echo 'once more'"), ("tests/a.py", "# the best of three"), ("tests/a.sh", "# it tries again"),
                           ("tests/unit/a_test.cc", "for (int attempts = 0; attempts < 3 && !good(); ++attempts) {")):
            self.assertTrue(self.bites(name, line), line)

    def test_what_is_none(self):
        for name, line in (("tests/unit/a_test.cc", "// it does not sleep 5 ms, and not once more"), ("tests/a.sh", "wait  # sleep 5 would do"),
                           ("tests/unit/a_test.cc", 'start({"sh", "-c", "echo on; exec sleep 100"});'),
                           ("tests/unit/a_test.cc", "while (b->sleep()) b->prepare_to_sleep();"),
                           ("tests/unit/a_test.cc", "attributes.retry_count = 3;"), ("tests/unit/a_test.cc", 'EXPECT_EQ(a, 0) << "once more";'),
                           ("tests/a.sh", "for i in 1 2; do both; done"), ("src/door/a.cc", "::usleep(1000);"),
                           ("tests/README.md", "sleep 5"), ("tests/mutations/door.toml", "::usleep(1000);")):
            self.assertEqual(problems(name, line), [], line)


class Listed(unittest.TestCase):
    def test_an_exception_is_for_so_many_with_a_reason(self):
        name, text = "tests/a.sh", "sleep 1\nsleep 2\n"
        self.assertEqual(len(problems(name, text)), 2)
        self.assertEqual(problems(name, text, {name: (2, "why")}), [])
        self.assertIn("(1 are listed)", problems(name, text, {name: (1, "why")})[0])
        self.assertEqual(problems(name, text, {name: (2, "")}), ["tests/naps.txt: tests/a.sh: no reason"])

    def test_what_the_list_no_longer_needs_is_told(self):
        notes = naps.check({"tests/a.sh": "sleep 1\n"}, {"tests/a.sh": (2, "why"), "tests/gone.sh": (1, "why")})[1]
        self.assertEqual(notes, ["tests/naps.txt: tests/a.sh has 1, not 2", "tests/naps.txt: there is no tests/gone.sh"])

    def test_the_list(self):
        self.assertEqual(naps.exceptions("# a comment\n\ntests/a.sh | 2 | why not\n"), {"tests/a.sh": (2, "why not")})
        self.assertEqual(naps.read(ROOT / "none"), {})
        self.assertIn("tests/unit/eventually.h", naps.read(ROOT / naps.LIST))


if __name__ == "__main__":
    unittest.main()
