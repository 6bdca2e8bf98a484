#!/usr/bin/env python3
"""Runs rdma-core's pyverbs tests, and prints a verdict for each, whatever a test does to its interpreter.

FOLDER holds the package `tests` of rdma-core. Prints a line for each test: verdict, name, and the reason in one line.
The verdict is ok, skip, FAIL, ERROR, CRASH (the interpreter died) or HANG. The tests run in a child process. After a
test that has killed it, another child continues. The exit status is 0 if none failed, and with --skips if none was
skipped for a reason that does not begin as a line of these files does.
"""

import argparse
import fnmatch
import os
import signal
import subprocess
import sys
import unittest

VERDICTS = ("ok", "skip", "FAIL", "ERROR")


def cases(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from cases(item)
        else:
            yield item


def load(options):
    sys.path[:0] = [os.path.join(options.folder, "tests"), options.folder]
    from args_parser import parser
    sys.argv[1:] = ["--dev", options.dev] if options.dev else []
    parser.parse_args()
    import tests
    give_macs()
    found = []
    for module in tests.__test_modules__:
        found += cases(unittest.TestLoader().loadTestsFromModule(module))
    patterns = options.only or ["*"]
    return [case for case in found if any(fnmatch.fnmatch(case.id(), pattern) for pattern in patterns)]


def give_macs():
    """Adds the MAC to the link-local GID of a device without its own network interface (softhca run): tests that address a
    peer by its MAC find none otherwise."""
    import pyverbs.device
    from tests.base import RDMATestCase
    ask = RDMATestCase._get_ip_mac

    def ask_or_derive(case, dev, port, index):
        ask(case, dev, port, index)
        *rest, mac = case.args[-1]
        if mac is None or not int(mac.replace(":", ""), 16):
            end = bytes.fromhex(pyverbs.device.Context(name=dev).query_gid(port, 0).gid.replace(":", ""))[8:]
            case.args[-1] = [*rest, (bytes([end[0] ^ 2]) + end[1:3] + end[5:]).hex(":")]

    RDMATestCase._get_ip_mac = ask_or_derive


class Verdicts(unittest.TestResult):
    def startTest(self, test):
        super().startTest(test)
        self.verdict, self.reason = "ok", ""
        print(f"START {test.id()}", flush=True)

    def stopTest(self, test):
        print(f"{self.verdict} {test.id()} {self.reason}", flush=True)
        super().stopTest(test)

    def tell(self, verdict, reason):
        if self.verdict not in ("FAIL", "ERROR"):
            self.verdict, self.reason = verdict, " ".join(reason.split())

    def addSkip(self, test, reason):
        self.tell("skip", reason)

    def addError(self, test, err):
        self.tell("ERROR", self.place(err))

    def addFailure(self, test, err):
        self.tell("FAIL", self.place(err))

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.tell("FAIL", self.place(err))

    def addUnexpectedSuccess(self, test):
        self.tell("FAIL", "unexpected success")

    @staticmethod
    def place(err):
        kind, value, trace = err
        text = ""
        while trace:
            code = trace.tb_frame.f_code
            if "/tests/" in code.co_filename:
                text = f"{os.path.basename(code.co_filename)}:{trace.tb_lineno}"
            trace = trace.tb_next
        return f"{text} {kind.__name__}: {value}"


def child(options):
    """Runs the tests whose names come on stdin."""
    wanted = set(sys.stdin.read().split())
    result = Verdicts()
    for case in load(options):
        if case.id() in wanted:
            signal.alarm(options.limit)  # which kills
            case.run(result)
            signal.alarm(0)


class Run:
    """The output lines of all child processes in order, and the remaining tests."""

    def __init__(self, names, skips):
        self.left = names
        self.skips = skips
        self.failed = False
        self.running = None

    def tell(self, verdict, line):
        print(line, flush=True)
        reason = line.partition(" ")[2].partition(" ")[2]
        if verdict == "skip" and self.skips and not reason.startswith(self.skips):
            print(f"skipped for a reason that is not known: {reason}", flush=True)
            verdict = "FAIL"
        self.failed = self.failed or verdict not in ("ok", "skip")
        self.left.remove(self.running)
        self.running = None

    def follow(self, command):
        """Follows one child. The rest of its output gives the reason if it dies."""
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace")
        process.stdin.write("\n".join(self.left))
        process.stdin.close()
        noise = ""
        for line in map(str.strip, process.stdout):
            word, _, rest = line.partition(" ")
            if word == "START":
                self.running, noise = rest, ""
            elif word in VERDICTS and self.running and rest.split(" ")[0] == self.running:
                self.tell(word, line)
            else:
                noise = line
        status = process.wait()
        if self.running:
            verdict = "HANG" if status == -signal.SIGALRM else "CRASH"
            self.tell(verdict, f"{verdict} {self.running} status {status} {noise}")
        elif self.left:
            sys.exit(f"{len(self.left)} tests were not run: status {status} {noise}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder")
    arguments.add_argument("--dev", help="RDMA device")
    arguments.add_argument("--only", action="append", metavar="PATTERN", help="names of tests")
    arguments.add_argument("--limit", type=int, default=120, help="seconds for a test")
    arguments.add_argument("--skips", action="append", default=[], metavar="FILE", help="how known reasons begin")
    arguments.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.child:
        return child(options)
    command = [sys.executable, __file__, *sys.argv[1:], "--child"]
    skips = [line for name in options.skips for line in open(name).read().splitlines() if line and line[0] != "#"]
    run = Run([case.id() for case in load(options)], tuple(skips))
    while run.left:
        run.follow(command)
    sys.exit(run.failed)


if __name__ == "__main__":
    main()
