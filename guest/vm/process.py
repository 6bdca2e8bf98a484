"""Child processes that end with this one at the latest."""

import ctypes
import os
import signal
import subprocess

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _die_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start(command, **options):
    """Starts the command in its own session, so that a Ctrl-C at the terminal reaches only this program, which ends the
    children in order."""
    return subprocess.Popen(command, start_new_session=True, preexec_fn=_die_with_parent,
                            env=dict(os.environ), **options)


def end(process, grace=5.0):
    """Sends SIGTERM, then SIGKILL if the process does not end. Returns the exit status."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


def tail(path, lines=15):
    try:
        with open(path, errors="replace") as file:
            text = file.read()
    except OSError:
        return ""
    return "\n".join(text.replace("\r", "").rstrip().splitlines()[-lines:])
