"""tools/nightly: it goes on after a failure, and its status says whether there was one."""
import contextlib
import importlib.machinery
import importlib.util
import io
import pathlib
import re
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOADER = importlib.machinery.SourceFileLoader("nightly", str(ROOT / "tools/nightly"))
nightly = importlib.util.module_from_spec(importlib.util.spec_from_loader("nightly", LOADER))
LOADER.exec_module(nightly)

# `once` fails if it is made a second time.
MAKEFILE = ".PHONY: once\ngood:\n\t@echo fine\nbad:\n\t@echo it broke\n\t@exit 3\nonce:\n\t@mkdir once\n"


class Nightly(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "Makefile").write_text(MAKEFILE)

    def run_steps(self, *names, options=()):
        """Status and output, where the steps are those targets."""
        out = io.StringIO()
        logs = self.root / "logs"
        with (mock.patch.multiple(nightly, ROOT=self.root, LOGS=logs, PASSED=logs / "passed.json",
                                  steps=lambda seed, tests: [(n, [n]) for n in names]),
              mock.patch("sys.argv", ["nightly", *options]), contextlib.redirect_stdout(out)):
            status = nightly.main()
        self.assertLessEqual(set(names), {log.stem for log in logs.iterdir()})
        return status, out.getvalue()

    def test_all_pass(self):
        status, out = self.run_steps("good")
        self.assertEqual(status, 0)
        self.assertRegex(out, r"passed +0:00:0\d  good +no commit\n1 of 1 steps have passed; this run took 0:00:0\d\n$")
        self.assertNotIn("fine", out)

    def test_it_resumes_with_what_has_not_passed(self):
        self.assertEqual(self.run_steps("once", "bad")[0], 1)
        status, out = self.run_steps("once", "bad", options=["--resume"])
        self.assertEqual(status, 1)
        self.assertIn("it broke", out)
        self.assertNotIn("make once", out)
        self.assertIn("1 of 2 steps have passed", out)
        self.assertEqual(self.run_steps("once", options=["--resume"])[0], 0)
        self.assertEqual(self.run_steps("once")[0], 1)
        self.assertEqual(self.run_steps("once", options=["--resume"])[0], 1)

    def test_it_goes_on_after_a_failure_and_says_so(self):
        status, out = self.run_steps("bad", "good")
        self.assertEqual(status, 1)
        self.assertIn("it broke", out)
        self.assertRegex(out, r"\nFAILED +0:00:0\d  bad .*\npassed +0:00:0\d  good .*\n1 of 2 steps have passed")

    def test_each_step_is_a_target(self):
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
        plain, whole = dict(nightly.steps(1, None)), dict(nightly.steps(1, "rdma-core/tests"))
        self.assertLessEqual({arguments[0] for arguments in whole.values()}, targets)
        self.assertEqual({name for name in whole if name not in plain}, {"pyverbs-host", "pyverbs.trixie", "pyverbs.backports"})

    def test_times(self):
        self.assertEqual(nightly.duration(3 * 3600 + 61.9), "3:01:01")


if __name__ == "__main__":
    unittest.main()
