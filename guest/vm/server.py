"""`softhca serve`: all devices of all guests in one process."""

import json
import os
import shlex
import subprocess
import time
from pathlib import Path

from . import process
from .report import Problem, say

READY_SECONDS = 60
INSPECT_SECONDS = 20


def program():
    """The command of the softhca program: $SOFTHCA, else the one of this repository's build."""
    chosen = os.environ.get("SOFTHCA")
    if chosen:
        return [chosen] if os.path.exists(chosen) else shlex.split(chosen)
    built = Path(__file__).resolve().parents[2] / "build" / "softhca"
    if not built.exists():
        raise Problem(f"{built} missing: run make (or set SOFTHCA to the program)")
    return [str(built)]


class Server:
    def __init__(self, devices, guests, directory, log, pcap=None, extra=(), ports=()):
        """Starts it and waits until every socket listens. With --isolate the devices of each guest have a process.
        `ports`: one for each of `devices`, in each guest; the last one is also for the rest."""
        self.log = log
        self.sockets = []  # one list for each guest
        command = [*program(), "serve"]
        for guest in range(1, guests + 1):
            mine = []
            for index, device in enumerate(devices):
                mine.append(str(directory / f"guest{guest}-device{index}"))
                owner = f",guest=guest{guest}" if "--isolate" in extra and ",guest=" not in device else ""
                command += ["--device", device + owner, "--socket", mine[-1]]
                if ports:
                    command += ["--port", ports[min(index, len(ports) - 1)]]
            self.sockets.append(mine)
        if pcap:
            command += ["--pcap", str(pcap)]
        self.control = str(directory / "control")
        if "--control" in extra:
            self.control = extra[extra.index("--control") + 1]
        else:
            command += ["--control", self.control]
        command += extra
        say("server: " + shlex.join(command))
        with open(log, "wb") as errors:
            try:
                self.process = process.start(command, stdin=subprocess.DEVNULL,
                                             stdout=subprocess.PIPE, stderr=errors)
            except OSError as error:
                raise Problem(f"cannot start {command[0]}: {error.strerror}") from None
        self._output = open(log, "ab", buffering=0)
        os.set_blocking(self.process.stdout.fileno(), False)
        try:
            self._wait_until_ready()
        except BaseException:
            self.end()
            raise

    def _wait_until_ready(self):
        deadline = time.monotonic() + READY_SECONDS
        seen = b""
        while b"ready" not in seen.split():
            seen += self.read_output()
            if self.process.poll() is not None:
                raise Problem(f"softhca serve ended at once with status "
                              f"{self.process.returncode}:\n{process.tail(self.log)}")
            if time.monotonic() > deadline:
                raise Problem(f"softhca serve did not print 'ready' within {READY_SECONDS} s:\n"
                              f"{process.tail(self.log)}")
            time.sleep(0.01)

    def read_output(self):
        """Its output since the last call, which also goes to the log."""
        try:
            data = os.read(self.process.stdout.fileno(), 65536)
        except BlockingIOError:
            return b""
        self._output.write(data)
        return data

    def dead(self):
        """Why the server has ended, or None."""
        self.read_output()
        if self.process.poll() is None:
            return None
        return f"softhca serve ended with status {self.process.returncode}"

    def own_kib(self):
        """Private memory of the server and its processes, without guest memory and files."""
        total, processes = 0, [self.process.pid]
        while processes:
            here = Path(f"/proc/{processes.pop()}")
            try:
                total += int((here / "status").read_text().split("RssAnon:")[1].split()[0])
                processes += (here / "task" / here.name / "children").read_text().split()
            except (OSError, IndexError):
                pass  # it has ended
        return total

    def heap_kib(self):
        """Heap in use, in KiB. RssAnon would include what the allocator keeps for later. None if there is no answer."""
        try:
            answer = subprocess.run([*program(), "inspect", self.control, "loop", "--json"], capture_output=True,
                                    timeout=INSPECT_SECONDS, check=True).stdout
            return _sum_of("heap_bytes", json.loads(answer)) // 1024
        except (OSError, subprocess.SubprocessError, ValueError):
            return None

    def end(self):
        status = process.end(self.process, grace=20)
        try:
            while self.read_output():
                pass
        except OSError:
            pass
        self._output.close()
        return status


def _sum_of(name, tree):
    """Sums all its values: with --isolate each process has one."""
    if isinstance(tree, list):
        return sum(_sum_of(name, branch) for branch in tree)
    if isinstance(tree, dict):
        return sum(branch if key == name else _sum_of(name, branch) for key, branch in tree.items())
    return 0
