#!/usr/bin/env python3
"""softhca perf, as its users call it: tables, JSON and drawing for every verb, service and device; what a device cannot
do in words; exit codes; Ctrl-C."""
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import own_network  # noqa: E402
from eventually import PATIENCE, eventually  # noqa: E402

own_network.enter()
PROGRAM = sys.argv.pop(1)
FEW = ["-n", "20"]
SVG = "{http://www.w3.org/2000/svg}"


def perf(*args):
    return subprocess.run([PROGRAM, "perf", *args], capture_output=True, text=True, timeout=PATIENCE)


def serves(sockets):
    eventually(lambda: all(pathlib.Path(one).exists() for one in sockets), "the sockets of the server")


def catches(process, number):
    """The process has a handler for the signal."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"^SigCgt:\s*(\w+)", status, re.M)[1], 16) >> (number - 1) & 1


def rows(text):
    """The lines of numbers."""
    return [line.split() for line in text.splitlines() if re.match(r" \d", line)]


class Perf(unittest.TestCase):
    def check_runs(self, device, test, service, sizes):
        done = perf(test, "--device", device, "-c", service, *FEW)
        self.assertEqual(done.returncode, 0, (device, test, service, done.stderr))
        for row, size in zip(rows(done.stdout), sizes, strict=True):
            self.assertEqual(row[0], str(size), done.stdout)
            self.assertTrue(all(float(cell) >= 0 for cell in row), done.stdout)
            self.assertGreater(float(row[-1]), 0, done.stdout)

    def test_every_verb_service_and_device_has_its_tables(self):
        for device in ("connectx", "rsnic", "jingzhao"):
            for test in ("send", "write", "read"):
                self.check_runs(device, test, "RC", [2, 65536])
            self.check_runs(device, "send", "UD", [2, 4096])
        for device in ("connectx", "jingzhao"):
            for test in ("send", "write"):
                self.check_runs(device, test, "UC", [2, 65536])
            self.check_runs(device, "atomic", "RC", [8, 8])

    def test_all_sizes_are_those_of_perftest(self):
        done = perf("write_lat", "-a", "-n", "5")
        self.assertEqual([int(row[0]) for row in rows(done.stdout)], [2**i for i in range(1, 24)])
        done = perf("send_bw", "-a", "-c", "UD", "-m", "1024", "-n", "5")
        self.assertEqual([int(row[0]) for row in rows(done.stdout)], [2**i for i in range(1, 11)])

    def test_json_and_drawing_have_what_was_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            numbers, drawing = pathlib.Path(folder, "a.json"), pathlib.Path(folder, "a.svg")
            done = perf("send", "-a", "-n", "5", "--device", "connectx", "--device", "rsnic",
                        "--json", str(numbers), "--plot", str(drawing))
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads(numbers.read_text())
            self.assertEqual((found["device"], found["peer"]), ("connectx", "rsnic"))
            self.assertEqual(len(found["bandwidth"]), 23)
            self.assertEqual(len(found["latency_us"]), 23)
            for one in found["latency_us"]:
                order = [one[name] for name in ("min", "median", "p90", "p99", "p99_9", "max")]
                self.assertEqual(order, sorted(order))
            root = xml.parse(drawing).getroot()
            lines = root.findall(f".//{SVG}polyline")
            self.assertEqual([len(line.get("points").split()) for line in lines], [23] * 4)

    def test_results_go_to_standard_output_and_then_the_tables_do_not(self):
        done = perf("write_lat", "--json", "-", *FEW)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(json.loads(done.stdout)["latency_us"]), 1)
        self.assertEqual(len(rows(done.stderr)), 1)
        done = perf("write_lat", "--plot", "-", *FEW)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(xml.fromstring(done.stdout).tag, SVG + "svg")
        self.assertEqual(len(rows(done.stderr)), 1)
        done = perf("write_lat", "--json", "-", "--plot", "-", *FEW)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("only one of them can go to standard output", done.stderr)
        self.assertFalse(pathlib.Path("-").exists())

    def test_what_a_device_cannot_do_is_refused_in_words(self):
        for args, words in (
                (("atomic", "--device", "rsnic"), "RSNIC-IP has no atomics.*RSNIC-IP Table 2-1-1"),
                (("send_bw", "-c", "UC", "--device", "rsnic"), "RSNIC-IP has no UC.*RSNIC-IP Table 2-1-1"),
                (("write_bw", "-c", "UD"), "UD has SENDs only"),
                (("read_bw", "-c", "UC"), "UC has no READs"),
                (("send_bw", "-c", "UD", "-s", "8192"), "one packet: 4096 bytes"),
                (("atomic_bw", "-s", "16"), "an atomic has 8 bytes"),
                (("write_lat", "-b"), "-b: ")):
            done = perf(*args, *FEW)
            self.assertEqual(done.returncode, 1, args)
            self.assertRegex(done.stderr, words)
            self.assertEqual(rows(done.stdout), [])

    def test_queues_may_be_as_short_and_as_long_as_the_options_say(self):
        for device, most in (("connectx", "8192"), ("rsnic", "8192"), ("jingzhao", "8191")):
            for depths in (("-t", "1", "-r", "1"), ("-t", "3", "-Q", "2"), ("-t", most, "-r", most, "-Q", "1024")):
                for test in ("send", "write", "read"):
                    done = perf(test, "--device", device, *depths, *FEW)
                    self.assertEqual((done.returncode, done.stderr), (0, ""), (device, test, depths))
                    self.assertEqual(len(rows(done.stdout)), 2)

    def test_an_infiniband_link_is_jingzhaos_alone(self):
        for test in ("send", "write", "read", "atomic"):
            done = perf(test, "--device", "jingzhao", "--link", "infiniband", *FEW)
            self.assertEqual((done.returncode, done.stderr), (0, ""), test)
            self.assertRegex(done.stdout, "Link type +: IB")
            self.assertEqual(len(rows(done.stdout)), 2)
        done = perf("write", "--device", "connectx", "--link", "infiniband", *FEW)
        self.assertEqual(done.returncode, 1)
        self.assertIn("its port is Ethernet", done.stderr)

    def test_a_device_is_one_word_and_there_are_two_at_most(self):
        done = perf("--device", "jingzhao", "write_bw", *FEW)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, "Device +: jingzhao")
        done = perf("write_bw", *(["--device", "jingzhao"] * 3), *FEW)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--device: once, or twice", done.stderr)

    def test_files_that_cannot_be_written_are_told_before_anything_runs(self):
        for option in ("--json", "--plot"):
            done = perf("write_bw", option, "/nowhere/a", *FEW)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("/nowhere/a: cannot be written", done.stderr)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "a.json")
            self.assertEqual(perf("write_bw", "-c", "UD", "--json", str(path)).returncode, 1)
            self.assertFalse(path.exists(), "nothing was measured")

    def test_wrong_words_are_not_taken(self):
        for args in ((), ("scend_bw",), ("write_bw", "-m", "1500"), ("write_bw", "--device", "sdxi"), ("write_bw", "-n", "x")):
            self.assertEqual(perf(*args).returncode, 1, args)

    def test_both_ways_move_bytes_both_ways(self):
        done = perf("send_bw", "-b", *FEW)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Bidirectional", done.stdout)

    def test_options_that_scripts_for_perftest_have_are_taken(self):
        done = perf("send_bw", "-F", "-N", "-u", "10", *FEW)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        row = [float(cell) for cell in rows(done.stdout)[0]]
        self.assertEqual(row[2], 0)
        self.assertGreater(row[3], 0)
        self.assertEqual(perf("send_bw", "-u", "32", *FEW).returncode, 1)

    def test_a_duration_ends(self):
        done = perf("write_bw", "-s", "64", "-D", "0.2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(int(rows(done.stdout)[0][1]), 100)

    def test_functions_of_a_server_are_measured_in_one_process_and_in_two(self):
        with tempfile.TemporaryDirectory() as folder:
            sockets = [str(pathlib.Path(folder, name)) for name in ("jz0", "jz1", "cx")]
            devices = ["--device", "jingzhao", "--socket", sockets[0], "--device", "jingzhao", "--socket", sockets[1],
                       "--device", "connectx", "--socket", sockets[2]]
            server = subprocess.Popen([PROGRAM, "serve", *devices], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                serves(sockets)
                for test in ("send", "write", "read", "atomic"):
                    done = perf(test, "--at", sockets[0], "--at", sockets[1], *FEW)
                    self.assertEqual(done.returncode, 0, (test, done.stderr))
                    self.assertEqual(len(rows(done.stdout)), 2, done.stdout)
                    self.assertRegex(done.stdout, "Device +: jingzhao")
                # A JingZhao and a ConnectX, one process each.
                for test, service in (("send", "RC"), ("send", "UD"), ("write", "UC"), ("write", "RC"), ("read", "RC"), ("atomic", "RC")):
                    words = [test, "-c", service, *FEW, "-p", "18533"]
                    other = subprocess.Popen([PROGRAM, "perf", *words, "--at", sockets[2], "--listen"],
                                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                    done = perf(*words, "--at", sockets[0], "127.0.0.1")
                    _, errors = other.communicate(timeout=PATIENCE)
                    self.assertEqual((done.returncode, done.stderr), (0, ""), words)
                    self.assertEqual((other.returncode, errors), (0, ""), words)
                    self.assertEqual(len(rows(done.stdout)), 2, done.stdout)
            finally:
                server.terminate()
                server.wait(timeout=PATIENCE)

    def test_both_processes_measure_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            words = ["-p", "18534", *FEW]
            other = subprocess.Popen([PROGRAM, "perf", "send_bw", *words, "--at", folder + "/none", "--listen"],
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            done = perf("write_bw", *words, "--at", folder + "/none", "127.0.0.1")
            _, errors = other.communicate(timeout=PATIENCE)
            self.assertEqual((done.returncode, other.returncode), (1, 1))
            self.assertIn("the peer measures 'Send bandwidth", done.stderr)
            self.assertIn("the peer measures 'RDMA_Write bandwidth", errors)

    def test_where_the_ends_are_must_be_clear(self):
        for args in (("--at", "/a"), ("--at", "/a", "--at", "/b", "--at", "/c"), ("--listen",), ("somewhere",),
                     ("--at", "/a", "--listen", "somewhere"), ("--at", "/a", "--at", "/b", "somewhere"),
                     ("--at", "/a", "--listen", "-b"), ("--at", "/a", "--at", "/b", "--device", "rsnic")):
            done = perf("write_bw", *args, *FEW)
            self.assertEqual(done.returncode, 1, (args, done.stderr))
            self.assertRegex(done.stderr, "--at|--listen|-b:", args)

    def test_on_a_terminal_rows_stand_alone_on_their_lines(self):
        ours, its = pty.openpty()
        running = subprocess.Popen([PROGRAM, "perf", "write", "-D", "0.5"], stdout=its, stderr=its)
        os.close(its)
        seen = b""
        try:
            while part := os.read(ours, 65536):
                seen += part
        except OSError:  # what a terminal says when its other end is closed
            pass
        os.close(ours)
        self.assertEqual(running.wait(timeout=PATIENCE), 0)
        self.assertRegex(seen, rb"latency, 2 bytes: \d+ %")
        # Each line as it stays on screen: the text after the last erasure.
        lines = [line.split(b"\x1b[K")[-1].strip(b"\r") for line in seen.split(b"\n")]
        self.assertEqual(sum(re.match(rb" (2|65536) ", line) is not None for line in lines), 2, lines)
        self.assertFalse([line for line in lines if b"%" in line and b"percentile" not in line])

    def test_control_c_ends_it_with_130(self):
        running = subprocess.Popen([PROGRAM, "perf", "write_bw", "-D", "60"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        for line in running.stdout:
            if "#bytes" in line:
                break
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=PATIENCE)
        self.assertEqual(running.returncode, 130)
        self.assertIn("interrupted", errors)


    def test_control_c_ends_the_wait_for_a_peer(self):
        with tempfile.TemporaryDirectory() as folder:
            for ends in (("--listen",), ("127.0.0.1",)):
                running = subprocess.Popen([PROGRAM, "perf", "write_bw", "--at", folder + "/none", "-p", "18535", *ends],
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                eventually(lambda: catches(running, signal.SIGINT) and ("--listen" not in ends or own_network.listens(18535)),
                           "it waits")
                running.send_signal(signal.SIGINT)
                _, errors = running.communicate(timeout=PATIENCE)
                self.assertEqual((running.returncode, errors), (130, "softhca: interrupted\n"), ends)

    def test_a_server_that_is_gone_ends_it_in_words(self):
        for test in ("send_lat", "write_lat", "read_lat", "send_bw", "write_bw"):
            with tempfile.TemporaryDirectory() as folder:
                sockets = [str(pathlib.Path(folder, name)) for name in ("jz0", "jz1")]
                control = str(pathlib.Path(folder, "control"))
                server = subprocess.Popen([PROGRAM, "serve", "--control", control, "--device", "jingzhao", "--socket", sockets[0],
                                           "--device", "jingzhao", "--socket", sockets[1]],
                                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                serves(sockets)
                running = subprocess.Popen([PROGRAM, "perf", test, "-D", "60", "--at", sockets[0], "--at", sockets[1]],
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                for line in running.stdout:
                    if "#bytes" in line:
                        break
                # Rings move while it measures.
                inspect = lambda: subprocess.run([PROGRAM, "inspect", control, "jingzhao0"],  # noqa: E731
                                                 capture_output=True, check=True).stdout
                before = inspect()
                eventually(lambda: inspect() != before, "messages")
                server.kill()
                server.wait()
                _, errors = running.communicate(timeout=PATIENCE)
                self.assertEqual(running.returncode, 1, test)
                self.assertIn("softhca: the device is gone", errors, test)


if __name__ == "__main__":
    unittest.main()
