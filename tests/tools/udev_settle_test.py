"""guest/init/udev-settle, with a udevadm of this test in its place."""

import os
import pathlib
import subprocess
import tempfile
import unittest

SETTLE = pathlib.Path(__file__).resolve().parents[2] / "guest/init/udev-settle"


class UdevSettle(unittest.TestCase):
    def settle(self, udevadm):
        """Runs udev-settle with a udevadm that counts its calls in the file calls."""
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "udevadm")
            program.write_text(f"#!/bin/sh\necho \"$*\" >>{folder}/calls\ncalls=$(wc -l <{folder}/calls)\n{udevadm}\n")
            program.chmod(0o755)
            run = subprocess.run([SETTLE, "7"], env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
                                 capture_output=True, text=True, check=False, timeout=60)
            return run, pathlib.Path(folder, "calls").read_text().splitlines()

    def test_asks_again_when_udevd_has_refused_the_request(self):
        run, calls = self.settle("[ $calls -eq 3 ] || { echo 'Failed to wait for daemon to reply: Broken pipe' >&2; exit 1; }")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertEqual(calls, ["settle --timeout=7"] * 3)

    def test_does_not_ask_again_when_the_time_is_over(self):
        run, calls = self.settle("exit 1")
        self.assertEqual((run.returncode, run.stderr), (1, "udev-settle: udev has not handled all events within 7 s\n"))
        self.assertEqual(len(calls), 1)


if __name__ == "__main__":
    unittest.main()
