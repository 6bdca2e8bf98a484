#!/usr/bin/env python3
"""Kills one of two programs of `softhca run` at a random moment, again and again: kills.py SOFTHCA COUNT [SEED]

Every other kill comes at a step of their connection, the rest after a random number of packets. The surviving program must see
the same as on hardware: its QPs run out of retries, or its connection manager reports that the peer has disconnected. Then it
prints an error and ends. The hub and its shared memory must be as they were before."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import own_network  # noqa: E402
from eventually import PATIENCE, eventually  # noqa: E402

# Programs that run very long: server, client, and words of which the survivor prints one. A client of perftest always waits for
# an acknowledgement; its server notices the client's end by TCP.
PERFTEST = ["Completion with error", "Failed", "failed", "Couldn't"]
RPING = ["DISCONNECT", "retr", "UNREACHABLE", "REJECTED", "rror"]
PAIRS = [
    *((f"ib_{how} -d mlx5_0 -x 3 -F -n 5000000 -p PORT", f"ib_{how} -d mlx5_0 -x 3 -F -n 5000000 -p PORT localhost", PERFTEST)
      for how in ("write_bw -s 4096", "write_bw -q 4", "read_bw -s 65536", "atomic_bw")),
    ("rping -d -s -C 10000000 -p PORT", "rping -d -c -a 127.0.0.1 -C 10000000 -p PORT", RPING),
]


class Run:
    """The programs of one fabric."""

    def __init__(self, softhca, fabric, directory, folder):
        self.softhca, self.fabric, self.directory, self.folder = softhca, fabric, directory, folder
        self.control = folder / "control"

    def device(self):
        """The server's device as `softhca inspect` shows it; nothing while it has none."""
        asked = subprocess.run([self.softhca, "inspect", "--json", self.control, "mlx5_0"], capture_output=True, text=True, check=False)
        programs = json.loads(asked.stdout) if asked.returncode == 0 and asked.stdout else {}
        return next((device for device in programs.values() if isinstance(device, dict)), {})

    def packets(self):
        """The number of RDMA packets, in both directions."""
        port = self.device().get("port", {})
        return sum(port.get(way, {}).get("packets", 0) for way in ("rdma_received", "rdma_sent"))

    def states(self):
        """The states of its QPs, with counts."""
        return self.device().get("queue_pairs_by_state") or {}

    def identifiers(self, state):
        """The number of rdma_cm identifiers in this state."""
        asked = subprocess.run([self.softhca, "inspect", self.control, "rdma_cm"], capture_output=True, text=True, check=False)
        return len(re.findall(rf"state: {state}", asked.stdout))


class Program:
    def __init__(self, run, command, name):
        self.pid_file, self.output = run.folder / f"{name}.pid", run.folder / f"{name}.out"
        self.pid_file.unlink(missing_ok=True)
        control = ["--control", run.control] if name == "server" else []
        with open(self.output, "w", encoding="utf-8") as output:
            self.process = subprocess.Popen(
                [run.softhca, "run", "--fabric", run.fabric, *control, "--", "sh", "-c", f"echo $$ >{self.pid_file}; exec {command}"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

    def kill(self):
        pid = eventually(lambda: self.pid_file.exists() and self.pid_file.read_text(encoding="utf-8").strip(), "its number")
        if self.process.poll() is None:
            os.kill(int(pid), signal.SIGKILL)
        self.process.wait(PATIENCE)

    def ends(self):
        """Whether it ends by itself."""
        try:
            self.process.wait(PATIENCE)
            return True
        except subprocess.TimeoutExpired:
            return False

    def has_ended(self):
        return self.process.poll() is not None

    def text(self):
        return self.output.read_text(encoding="utf-8", errors="replace")


def hub_of(fabric):
    """The hub's entry in /proc. The hub has its log open in the directory of the fabric."""
    for entry in Path("/proc").iterdir():
        try:
            if (entry / "comm").read_text(encoding="utf-8").strip() != "softhca-hub":
                continue
            if any(f"fabric-{fabric}/" in os.readlink(fd) for fd in (entry / "fd").iterdir()):
                return entry
        except OSError:
            continue
    raise SystemExit("where is the hub?")


def size_of(hub, directory):
    """The number of the hub's descriptors and mappings, and of the run's address files."""
    mapped = sum("memfd" in line for line in (hub / "maps").read_text(encoding="utf-8").splitlines())
    return len(list((hub / "fd").iterdir())), mapped, len(list(directory.glob("address-*")))


def settled(hub, directory, most):
    """Whether nothing has grown. Files of two processes may be left: the next processes remove them."""
    now = size_of(hub, directory)
    return now[0] <= most[0] and now[1] <= most[1] and now[2] <= most[2] + 2


def kill_one(run, dice, while_connecting):
    """Returns a description of the failure; empty if there is none."""
    server, client, words = dice.choice(PAIRS)
    port = dice.randrange(20000, 30000)
    server, client = server.replace("PORT", str(port)), client.replace("PORT", str(port))
    by_rdma_cm = words is RPING
    one = Program(run, server, "server")
    eventually(lambda: one.has_ended() or (run.identifiers("listening") if by_rdma_cm else own_network.listens(port)), f"{server}: it listens")
    before = run.packets()
    two = Program(run, client, "client")
    # Before the client connects, the server cannot notice anything.
    called = lambda: run.identifiers("(?!listening)") if by_rdma_cm else not own_network.listens(port)  # noqa: E731
    eventually(lambda: one.has_ended() or two.has_ended() or called(), f"{client}: it calls")
    if while_connecting:
        moment, reached = dice.choice([("it calls", called), ("a QP is there", lambda: called() and run.states()),
                                       ("a QP receives", lambda: any(state in run.states() for state in ("RTR", "RTS")))])
    else:
        count = int(10 ** dice.uniform(0, 4))
        moment, reached = f"{count} packets", lambda: run.packets() >= before + count
    eventually(lambda: one.has_ended() or two.has_ended() or reached(), f"{client}: {moment}")
    if one.has_ended() or two.has_ended():
        return f"{server}: it has ended before anything was killed:\n{one.text()[-1000:]}\n{two.text()[-1000:]}"
    victim, other = (one, two) if dice.random() < 0.5 else (two, one)
    victim.kill()
    if not other.ends():
        other.kill()
        return f"{server}: after {moment} who was left does not end:\n{other.text()[-2000:]}"
    # 255 is rping's own -1.
    if 128 < other.process.returncode < 255:
        return f"{server}: after {moment} who was left has crashed ({other.process.returncode}):\n{other.text()[-2000:]}"
    if not any(word in other.text() for word in words):
        return f"{server}: after {moment} who was left has not noticed ({other.process.returncode}):\n{other.text()[-2000:]}"
    return ""


def main():
    own_network.enter()
    softhca, count = sys.argv[1], int(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else int(time.time())
    print(f"seed {seed}", flush=True)
    dice = random.Random(seed)
    fabric = f"kills-{os.getpid()}"
    with tempfile.TemporaryDirectory() as name:
        # Keeps the fabric between the kills.
        keeper_line = [softhca, "run", "--fabric", fabric, "--", "sh", "-c", "echo $SOFTHCA_DOOR; exec sleep 1000000"]
        with subprocess.Popen(keeper_line, stdout=subprocess.PIPE, text=True) as keeper:
            directory = Path(keeper.stdout.readline().strip())
            hub = hub_of(fabric)
            try:
                # With its first process, the hub takes a block of numbers.
                subprocess.run([softhca, "run", "--fabric", fabric, "--", "ibv_devinfo"], check=True, stdout=subprocess.DEVNULL)
                # The hub may not have released that process yet, so compare with the lowest numbers seen so far.
                most = size_of(hub, directory)
                run = Run(softhca, fabric, directory, Path(name))
                for i in range(count):
                    wrong = kill_one(run, dice, while_connecting=i % 2 == 1)
                    if wrong:
                        print(f"FAILED after {i} kills: {wrong}")
                        return 1
                    eventually(lambda: settled(hub, directory, most),
                               f"after {i} kills: the hub has {size_of(hub, directory)}, and had {most}")
                    most = (*map(min, most[:2], size_of(hub, directory)), most[2])
                    if (i + 1) % 50 == 0:
                        print(f"{i + 1} kills of {count}", flush=True)
            finally:
                keeper.terminate()
    print(f"{count} kills")
    return 0


if __name__ == "__main__":
    sys.exit(main())
