#!/usr/bin/env python3
"""Kills one of two programs of `softhca run` at a random moment, again and again: kills.py SOFTHCA COUNT [SEED]

The other one sees what the death of a peer gives on hardware: its QPs run out of retries, or its connection manager says
that the peer has disconnected. Then it ends. The hub and its shared memory are as they were before."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Programs that go on and on: server, client, and what the one that is left may say. A client of perftest always waits for an
# acknowledgement; its server hears of its end by TCP.
PERFTEST = ["Completion with error", "Failed", "failed", "Couldn't"]
RPING = ["DISCONNECT", "retr", "UNREACHABLE", "REJECTED", "rror"]
PAIRS = [
    *((f"ib_{how} -d mlx5_0 -x 3 -F -n 5000000 -p PORT", f"ib_{how} -d mlx5_0 -x 3 -F -n 5000000 -p PORT localhost", PERFTEST)
      for how in ("write_bw -s 4096", "write_bw -q 4", "read_bw -s 65536", "atomic_bw")),
    ("rping -d -s -C 10000000 -p PORT", "rping -d -c -a 127.0.0.1 -C 10000000 -p PORT", RPING),
]
PATIENCE = 40


class Program:
    def __init__(self, softhca, fabric, command, folder, name):
        self.pid_file, self.output = folder / f"{name}.pid", folder / f"{name}.out"
        self.pid_file.unlink(missing_ok=True)
        with open(self.output, "w", encoding="utf-8") as output:
            self.process = subprocess.Popen(
                [softhca, "run", "--fabric", fabric, "--", "sh", "-c", f"echo $$ >{self.pid_file}; exec {command}"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

    def kill(self):
        while not (self.pid_file.exists() and self.pid_file.read_text(encoding="utf-8").strip()):
            time.sleep(0.01)
        if self.process.poll() is None:
            os.kill(int(self.pid_file.read_text(encoding="utf-8")), signal.SIGKILL)
        self.process.wait(PATIENCE)

    def ends(self, patience=PATIENCE):
        """By itself."""
        try:
            self.process.wait(patience)
            return True
        except subprocess.TimeoutExpired:
            return False


def hub_of(fabric):
    """The process of the hub, which has its log open there."""
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
    """What it has open and mapped, and the files of the run."""
    mapped = sum("memfd" in line for line in (hub / "maps").read_text(encoding="utf-8").splitlines())
    return len(list((hub / "fd").iterdir())), mapped, len(list(directory.glob("address-*")))


def settled(hub, directory, before):
    """As before, but for the files of two processes, which the next ones remove."""
    for _ in range(200):
        now = size_of(hub, directory)
        if now[:2] == before[:2] and now[2] <= before[2] + 2:
            return True
        time.sleep(0.02)
    return False


def kill_one(softhca, fabric, folder, dice):
    """Returns what is wrong; empty if nothing."""
    server, client, words = dice.choice(PAIRS)
    port = str(dice.randrange(20000, 30000))
    server, client = server.replace("PORT", port), client.replace("PORT", port)
    one = Program(softhca, fabric, server, folder, "server")
    time.sleep(dice.uniform(0.3, 0.6))
    two = Program(softhca, fabric, client, folder, "client")
    time.sleep(dice.uniform(0.05, 0.8))
    victim, other = (one, two) if dice.random() < 0.5 else (two, one)
    victim.kill()
    if victim is two and not other.ends(8):
        # The client went before it had called. Another one has the time.
        third = Program(softhca, fabric, client, folder, "client")
        time.sleep(3)
        third.kill()
    if not other.ends():
        other.kill()
        return f"{server}: who was left does not end:\n{other.output.read_text(encoding='utf-8', errors='replace')[-2000:]}"
    text = other.output.read_text(encoding="utf-8", errors="replace")
    # 255 is rping's own -1.
    if 128 < other.process.returncode < 255:
        return f"{server}: who was left has crashed ({other.process.returncode}):\n{text[-2000:]}"
    if other.process.returncode == 0 and not any(word in text for word in words):
        return f"{server}: who was left has not noticed:\n{text[-2000:]}"
    return ""


def enter_own_network():
    """Where nobody else has a port of perftest's."""
    if "OWN_NETWORK" in os.environ:
        return
    os.environ["OWN_NETWORK"] = "1"
    user = [] if os.geteuid() == 0 else ["--map-current-user", "--keep-caps"]
    os.execvp("unshare", ["unshare", "--net", *user, "sh", "-c", 'ip link set lo up; exec "$@"', "sh", sys.executable, *sys.argv])


def main():
    enter_own_network()
    softhca, count = sys.argv[1], int(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else int(time.time())
    print(f"seed {seed}", flush=True)
    dice = random.Random(seed)
    fabric = f"kills-{os.getpid()}"
    with tempfile.TemporaryDirectory() as name:
        # Keeps the fabric meanwhile.
        keeper_line = [softhca, "run", "--fabric", fabric, "--", "sh", "-c", "echo $SOFTHCA_DOOR; exec sleep 1000000"]
        with subprocess.Popen(keeper_line, stdout=subprocess.PIPE, text=True) as keeper:
            directory = Path(keeper.stdout.readline().strip())
            hub = hub_of(fabric)
            try:
                # The hub has a block of numbers from the first process on.
                subprocess.run([softhca, "run", "--fabric", fabric, "--", "ibv_devinfo"], check=True, stdout=subprocess.DEVNULL)
                before = size_of(hub, directory)
                for i in range(count):
                    wrong = kill_one(softhca, fabric, Path(name), dice)
                    if not wrong and not settled(hub, directory, before):
                        wrong = f"the hub has {size_of(hub, directory)}, and had {before}"
                    if wrong:
                        print(f"FAILED after {i} kills: {wrong}")
                        return 1
                    if (i + 1) % 50 == 0:
                        print(f"{i + 1} kills of {count}", flush=True)
            finally:
                keeper.terminate()
    print(f"{count} kills")
    return 0


if __name__ == "__main__":
    sys.exit(main())
