"""tests/guest/boots: it counts boots over calls, and starts again if the guest has changed."""
import contextlib
import importlib.machinery
import importlib.util
import io
import pathlib
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOADER = importlib.machinery.SourceFileLoader("boots", str(ROOT / "tests/guest/boots"))
boots = importlib.util.module_from_spec(importlib.util.spec_from_loader("boots", LOADER))
LOADER.exec_module(boots)


class BootsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name)
        self.booted = []
        self.bad = set()

    def boot(self, _options, _share, kernel, number):
        self.booted.append((kernel, number))
        return (kernel, number) not in self.bad

    def run_it(self, count, *options):
        """Status and output."""
        out = io.StringIO()
        words = ["boots", str(self.build), str(count), "--jobs", "1", *options]
        with mock.patch("sys.argv", words), mock.patch.object(boots, "boot", self.boot), \
                mock.patch.object(boots.subprocess, "run"), contextlib.redirect_stdout(out):
            status = boots.main()
        return status, out.getvalue()

    def test_a_later_call_boots_what_is_left(self):
        self.assertEqual(self.run_it(2)[0], 0)
        status, out = self.run_it(3)
        self.assertEqual(status, 0)
        self.assertIn("counted already: trixie: 2 boots, 0 failed, backports: 2 boots, 0 failed", out)
        self.assertEqual(self.booted, [(kernel, number) for number in (1, 2, 3) for kernel in ("backports", "trixie")])

    def test_a_failed_boot_stays_counted(self):
        self.bad.add(("trixie", 1))
        status, out = self.run_it(1)
        self.assertEqual(status, 1)
        self.assertIn("FAILED: ", out)
        self.bad.clear()
        status, out = self.run_it(2)
        self.assertEqual(status, 1)
        self.assertIn("trixie: 2 boots, 1 failed\nbackports: 2 boots, 0 failed\n", out)
        self.assertEqual(self.run_it(1, "--fresh")[0], 0)

    def test_counts_start_again_for_another_guest(self):
        self.assertEqual(self.run_it(1)[0], 0)
        with mock.patch.object(boots, "key_of_guest", lambda: "another"):
            self.run_it(1, "--kernel", "trixie")
        self.assertEqual(self.booted, [("backports", 1), ("trixie", 1), ("trixie", 1)])


if __name__ == "__main__":
    unittest.main()
