"""A network of its own for a test in Python, where no other process has its ports."""
import os
import re
import sys
from pathlib import Path


def enter():
    """Starts this script again, in such a network."""
    if "OWN_NETWORK" in os.environ:
        return
    os.environ["OWN_NETWORK"] = "1"
    user = [] if os.geteuid() == 0 else ["--map-current-user", "--keep-caps"]
    os.execvp("unshare", ["unshare", "--net", *user, "sh", "-c", 'ip link set lo up; exec "$@"', "sh", sys.executable, *sys.argv])


def listens(port):
    """A program of this network listens at the TCP port."""
    line = re.compile(rf":{port:04X} [0-9A-F]*:0000 0A")
    return any(line.search(Path(f"/proc/net/{tcp}").read_text(encoding="utf-8")) for tcp in ("tcp", "tcp6"))
