"""guest/: what a guest that cannot boot says, what its end says then, and how a guest in the background is asked."""
import fcntl
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import types
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "guest"))
from vm import apt, cache, kernel, machine, qemu, report, resident, session  # noqa: E402

INT3 = """[    1.2] clocksource: Switched to clocksource tsc
[    1.2] Oops: int3: 0000 [#1] SMP
[    1.2] RIP: 0010:ktime_get_update_offsets_now+0x46/0x110
[    1.3] Kernel panic - not syncing: Fatal exception in interrupt
"""


class PackageLists(unittest.TestCase):
    """Every run writes the lists and the configuration of apt, which all share: their users hold the lock."""

    def test_every_use_of_apt_has_the_lock(self):
        used = []

        def run(_, *arguments, **options):
            with open(cache.root() / "apt.lock", "w") as other, self.assertRaises(BlockingIOError, msg=arguments):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            used.append(options.get("program", "apt-get"))
            return 0, "Package: one\n"

        with tempfile.TemporaryDirectory() as folder, \
                unittest.mock.patch.dict(os.environ, {"XDG_CACHE_HOME": folder}), \
                unittest.mock.patch.object(apt.Apt, "_run", run), \
                unittest.mock.patch.dict(apt._updated, clear=True), unittest.mock.patch.object(apt, "say"):
            source = apt.updated()
            self.assertEqual(source.candidate("one"), {"Package": "one"})
            source.require(["one"])
            source.download(["one"], pathlib.Path(folder) / "debs")
        self.assertEqual(used, ["apt-get", "apt-cache", "apt-cache", "apt-get"])


class CommandLine(unittest.TestCase):
    def test_numbers_without_a_sense_are_refused(self):
        for option, value in (("--guests", "0"), ("--guests", "100"), ("--guests", "x"), ("--boots", "0"), ("--restarts", "-1"),
                              ("--cpus", "0"), ("--cpus", "-2"), ("--timeout", "-5"), ("--timeout", "nan"),
                              ("--timeout", "inf"), ("--server-max", "-1"), ("--memory", "-1G"), ("--memory", "64M")):
            done = subprocess.run([ROOT / "guest/run", option, value, "--", "true"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, (option, value, done.stderr))
            self.assertRegex(done.stderr, rf"error: (argument )?{option}", (option, value))


class Console(unittest.TestCase):
    def failure(self, text, up=False):
        with tempfile.TemporaryDirectory() as folder:
            console = pathlib.Path(folder) / "console"
            console.write_text(text)
            guest = types.SimpleNamespace(console=console, _console_seen=0, name="guest", up=up, failure=None)
            machine.Guest._watch_console(guest)
            return guest.failure

    def test_a_boot_that_the_emulator_broke_is_named_as_such(self):
        failure = self.failure(INT3)
        self.assertIn("Oops: int3", failure)
        self.assertIn("a fault of QEMU's TCG", failure)

    def test_another_panic_is_the_kernels(self):
        failure = self.failure("[    1.3] Kernel panic - not syncing: no init found\n")
        self.assertIn("no init found", failure)
        self.assertNotIn("TCG", failure)

    def test_a_fault_after_the_boot_is_not_excused(self):
        self.assertNotIn("TCG", self.failure(INT3, up=True))

    def test_a_console_without_one_is_no_failure(self):
        self.assertIsNone(self.failure("[    1.2] Freeing unused kernel image\n"))


class UnpackedKernel(unittest.TestCase):
    """An emulator starts the ELF file out of the vmlinuz."""
    ELF = b"\x7fELF" + bytes(1000) + kernel.ENTRY_NOTE + bytes(100)

    @staticmethod
    def vmlinuz(payload):
        sectors, offset = 3, 700
        begin = 512 * (sectors + 1) + offset
        image = bytearray(begin) + payload + b"more"
        image[0x1f1] = sectors
        struct.pack_into("<II", image, 0x248, offset, len(payload))
        return bytes(image)

    def packed(self, elf, *tool):
        packed = subprocess.run(tool, input=elf, stdout=subprocess.PIPE, check=True).stdout
        return self.vmlinuz(packed + struct.pack("<I", len(elf)))

    def test_is_what_was_packed(self):
        for tool in ("xz", "zstd"):
            if shutil.which(tool):
                self.assertEqual(kernel.unpacked(self.packed(self.ELF, tool, "-c")), self.ELF)

    def test_that_cannot_be_started_is_refused(self):
        with self.assertRaisesRegex(report.Problem, "no entry for PVH"):
            kernel.unpacked(self.packed(b"\x7fELF" + bytes(1000), "xz", "-c"))

    def test_packed_in_another_way_is_refused(self):
        with self.assertRaisesRegex(report.Problem, "unknown way"):
            kernel.unpacked(self.vmlinuz(b"BZh9 and more"))


class End(unittest.TestCase):
    def end(self, path):
        return subprocess.run([ROOT / "guest/in", path, "--end"], capture_output=True, check=False).returncode

    def test_of_a_guest_that_did_not_come_up_is_no_second_failure(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "guest"
            resident.failed(path).touch()
            self.assertEqual(self.end(path), 0)

    def test_of_a_guest_that_has_gone_is_one(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertNotEqual(self.end(pathlib.Path(folder) / "guest"), 0)


class Kvm(unittest.TestCase):
    """A run without KVM gives the reason each time, also the one that an earlier run found."""

    def test_the_reason_is_remembered(self):
        emulator = qemu.Qemu(["/nosuch/qemu"], "10.1")
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, {"XDG_CACHE_HOME": folder}), \
                unittest.mock.patch("os.access", return_value=True):
            memory = cache.root() / f"kvm-{cache.key([emulator.command, emulator.version])}"
            for result, reason in (("works", None), ("fails", qemu.FAILED)):
                memory.write_text(f"{boot} {result}\n")
                self.assertEqual(qemu.why_not_kvm(emulator, None), reason)

    def test_the_run_says_why_and_that_its_figures_are_emulated(self):
        for reason, lines in ((None, 1), ("there is no /dev/kvm", 2)):
            plan = session.Plan(devices=[], guests=0, shell=False, keep=False, boots=1, restarts=0, kvm=reason is None, no_kvm=reason,
                                kernel=types.SimpleNamespace(release="6.12"), qemu=types.SimpleNamespace(version="10.1"))
            with unittest.mock.patch.object(session, "Hub"), unittest.mock.patch.object(session, "say") as say, \
                    tempfile.TemporaryDirectory() as folder, unittest.mock.patch("tempfile.mkdtemp", return_value=folder):
                run = session.Session(plan)
                run._start()
                run.selector.close()
            self.assertEqual(say.call_count, lines)
            if reason:
                self.assertIn(f"KVM is not used: {reason}. QEMU emulates", say.call_args.args[0])


class CommandLine(unittest.TestCase):
    def run_it(self, *arguments):
        return subprocess.run([ROOT / "guest/run", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    def test_a_shell_without_a_terminal_is_refused_before_the_boot(self):
        done = self.run_it("--shell")
        self.assertEqual((done.returncode, done.stdout), (125, ""))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("standard input is neither a terminal nor a pipe", done.stderr)

    def test_a_part_of_an_option_is_no_option(self):
        for words, option in ((("run", "--devic", "connectx"), "--devic"), (("in", "/nosuch", "--en"), "--en")):
            done = subprocess.run([ROOT / "guest" / words[0], *words[1:], "--", "true"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"unrecognized arguments: {option}", done.stderr)

    def test_help_lists_the_status_of_a_wrong_command_line(self):
        self.assertIn("\n  2    the command line is wrong\n", self.run_it("--help").stdout)


class Question(unittest.TestCase):
    def test_may_be_answered_before_the_asker_has_returned_from_sending_it(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            path = str(pathlib.Path(folder) / "guest")
            listener.bind(path)
            listener.listen()

            def answer():
                connection, _ = listener.accept()
                with connection:
                    for descriptor in socket.recv_fds(connection, 65536, 2)[1]:
                        os.close(descriptor)
                    connection.sendall(b'{"status": 0, "text": "control"}\n')

            thread = threading.Thread(target=answer)
            thread.start()
            send_fds = socket.send_fds

            def send_and_wait(*arguments):
                sent = send_fds(*arguments)
                thread.join()
                return sent

            with unittest.mock.patch("socket.send_fds", send_and_wait):
                self.assertEqual(resident.ask(path, {"control": True})["text"], "control")


if __name__ == "__main__":
    unittest.main()
