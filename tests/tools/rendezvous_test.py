"""tests/door/rendezvous.sh and tests/guest/wait.sh: what is waited for in vain ends in a failure that names it."""
import pathlib
import subprocess
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
# The pauses of a wait let its minutes pass.
LATE = "sleep() { SECONDS=1000; }; export -f sleep; "


def bash(script):
    """(exit status, standard output, standard error)"""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60, cwd=TESTS)
    return done.returncode, done.stdout, done.stderr


class Rendezvous(unittest.TestCase):
    def run_script(self, script):
        return bash(". door/rendezvous.sh; " + script)

    def test_a_condition_that_holds_succeeds(self):
        self.assertEqual(self.run_script("eventually true"), (0, "", ""))

    def test_a_condition_in_vain_is_named(self):
        self.assertEqual(self.run_script(LATE + "eventually has /none listening"),
                         (1, "", "in vain for a minute: has /none listening\n"))

    def test_both_ends_succeed(self):
        self.assertEqual(self.run_script("meet true true 'echo client'"), (0, "client\n", ""))

    def test_the_status_of_each_end_counts(self):
        self.assertEqual(self.run_script("meet true 'bash -c \"exit 3\"' true")[0], 3)
        self.assertEqual(self.run_script("meet true true 'bash -c \"exit 4\"'")[0], 4)

    def test_without_its_server_no_client_starts(self):
        status, out, errors = self.run_script("meet false false 'echo client'")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("before: false: false", errors)

    def test_a_server_that_never_listens_is_ended(self):
        status, out, errors = self.run_script(LATE + "meet false 'tail -f /dev/null' 'echo client'")
        self.assertEqual((status, out), (1, ""))
        self.assertRegex(errors, r"^in vain for a minute: holds_or_ended \d+ false\n$")


class Wait(unittest.TestCase):
    START = '. guest/wait.sh; fail() { echo "FAIL: $*" >&2; exit 1; }; '

    def test_a_condition_that_holds_succeeds(self):
        self.assertEqual(bash(self.START + "wait_for 60 'file' true"), (0, "", ""))

    def test_a_condition_in_vain_is_named(self):
        self.assertEqual(bash(self.START + LATE + "wait_for 60 'carrier' false"), (1, "", "FAIL: no carrier after 60 s\n"))


if __name__ == "__main__":
    unittest.main()
