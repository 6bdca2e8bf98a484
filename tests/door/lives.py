"""Runs the cases of lives.cc: lives.py SOFTHCA LIVES [CASE...]

Each case runs alone under `softhca run`. Its output and status must be those of Linux with hardware. A case that hangs fails, with
the system call in which each of its threads waits.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

OK = 0
SEGV = -signal.SIGSEGV

REMOTE = "remote access error"
EFAULT = "Bad address"
REFUSED = f"{EFAULT}\n"
NO_FILE = "No such file or directory\n"

# case: (number of runs, status, output, and words of the library's log lines)
CASES = {
    "exit-in-handler": (30, OK, ""),
    "exit-beside-polls": (10, OK, ""),
    "exit-in-library": (1, OK, "closed\n"),
    "exit-of-a-clone": (1, OK, "all have ended\n"),
    "fork-beside-opens": (1, OK, "0 wrong\n"),
    "uses-in-fork": (1, OK, 2 * "success, queried\nGID: ok\nopen: ok\n" + "status of the child: 0\n"),
    "opens-in-child-of-fork": (1, OK, "status of the child: 0\n"),
    "fork-in-fork": (1, OK, "status of the inner child: 0\nstatus of the child: 0\nopen: ok\n"),
    "fork-in-first-open": (1, OK, "opened\n"),
    "fork-in-slow-open": (1, OK, "opened\n"),
    "handler-in-open": (
        1,
        OK,
        "file: ok\nGID: ok\nstat: ok\naccess: ok\nstream: ok\ndirectory: ok\n"
        "/sys/devices/pci5348:00/5348:00:00.0/infiniband/mlx5_0\nchdir: ok\n"
        "/sys/devices/pci5348:00/5348:00:00.0/infiniband/mlx5_0\ndevice: Device or resource busy\nthen: ok\n",
    ),
    "mappings-are-read": (1, OK, "before\nafter\n"),
    "library-is-loaded": (1, OK, "goes on\n"),
    "opens-again": (1, OK, "opened\n"),
    "child-of-a-listener": (1, OK, "listens\n"),
    "guarded": (
        1,
        OK,
        f"read of a guard page: {REMOTE}, ---p\nwrite to a guard page: {REMOTE}, ---p\n"
        f"read of a constant: success, r--p\nc\nwrite to a constant: {REMOTE}, r--p\nc\n"
        f"write to a page to be read: {REMOTE}, r--p\nstores fault: 1 1\n",
    ),
    "read-only-file": (1, OK, f"write: {REMOTE}, r--s\n"),
    "hole": (1, OK, f"hole: {REMOTE}\nbeside it: success 42\nfilled: success 43\n"),
    "protected-later": (
        1,
        OK,
        "write, to be read: success, r--p\nstores fault, w\nwrite, guarded: success, ---p\nstores fault, w\n"
        "read, guarded: success, ---p\nstores fault, o\nwrite, code: success, r-xp\nstores fault, w\n"
        "write, shared: success, r--s\nstores fault, w\n",
    ),
    "cut-off": (1, OK, "an error, rw-s\nb\n"),
    "memory-keys": (1, OK, "success, r\n"),
    "no-zeros": (1, OK, 3 * "an error, t\n"),
    "registrations": (
        1,
        OK,
        "".join(
            f"{kind}: {EFAULT}\n{kind}: ok, again: -4 Permission denied\n"
            for kind in ("to be read", "private file", "shared file", "read-only file", "constant")
        )
        + f"guard: {EFAULT}\nguard: {EFAULT}\n"
        + "to be written: ok\nto be written: ok, again: -4 Permission denied\n"
        + "memory: ok\nmemory: ok, again: -4 Permission denied\n"
        + f"window: {EFAULT}\nempty: Invalid argument\nkernel: {EFAULT}\nno address: {EFAULT}\n",
    ),
    "reset-handler": (1, SEGV, "x\n"),
    "sysv-handler": (1, SEGV, "x\n"),
    "fault-in-handler": (1, SEGV, "x\n"),
    "nested-handler": (1, 7, "x\nx\nx\n"),
    "jumps": (1, OK, "x\nx\nx\n"),
    "masked": (1, OK, "handler\nusr1\n"),
    "reads-in-handler": (1, OK, "read\n"),
    "arms-in-handler": (1, OK, "armed\n"),
    "own-stack": (1, OK, "own stack\nother stack\n"),
    "blocks-early": (1, OK, "0 1\n0 1\n"),
    "small-stack": (1, OK, "opened\nstat\nstatx\nreadlink\nreadlinkat\nfaccessat\nchdir\ngetcwd\n"),
    "cancelled": (1, OK, "goes on\n"),
    "cancelled-asker": (1, OK, "timed out\n"),
    "cancelled-waiter": (1, OK, "all have ended\n"),
    "cancelled-early": (1, OK, "20 cancelled, 0 more\n"),
    "nobody": (1, OK, 2 * "timed out\n"),
    "closed": (1, OK, "0 more\n"),
    "device-file": (
        1,
        OK,
        "read: Invalid argument\nwrite: Invalid argument\nwritev: Invalid argument\nlseek: Illegal seek\n"
        "truncation: Invalid argument\nsync: Invalid argument\nFIONREAD: Inappropriate ioctl for device\n"
        "a byte of an event: Resource temporarily unavailable\nanother file: ok\nits context: none\n",
    ),
    "events-one-by-one": (1, OK, "16 bytes\n16 bytes\nthen: Resource temporarily unavailable\n"),
    "channel-file": (
        1,
        OK,
        "read: Invalid argument\nlseek: Illegal seek\nsync: Invalid argument\n"
        "FIONREAD: Inappropriate ioctl for device\n",
    ),
    "replaced": (1, OK, "7 bytes, 7 of them in a message\n"),
    "sysfs-file": (
        1,
        OK,
        "to read: ok\nto write: Permission denied\nstream to write: Permission denied\n"
        "stream anew to write: Permission denied\nsize: 4096\nnames: 1\n"
        "GID that is none: ok\nits type: Invalid argument\n",
    ),
    "armed-twice": (1, OK, "woken\n"),
    "no-streams": (1, OK, "0 streams\n"),
    "small-files": (1, OK, "not opened\n", "ulimit -f"),
    "locks-much": (1, OK, "registered\n", "a card refuses this"),
    "locks-too-much": (1, OK, "Cannot allocate memory\n", "ulimit -l"),
    "little-memory": (1, OK, "not opened\n", "ulimit -v"),
    "no-threads": (1, OK, "not opened\n", "ulimit -u"),
    "walks": (
        1,
        OK,
        "/sys/class/infiniband/mlx5_0\ngid_attrs\n0\n"
        "infiniband: 2 and others\ninfiniband: 2 and others\n5348:00:00.0: 2 and others\nsysfs\nsysfs\nstatvfs: ok\n"
        "creat: ok\nftw: ok\nnftw: ok\n0000:0000:0000:0000:0000\n",
    ),
    "outlives": (1, OK, "0 devices\n", "has ended"),
    "asks": (1, OK, "many many\n"),
    "registers": (1, OK, "region: many\numem: many\nprefetched: many\n"),
    "hub-ends": (1, -signal.SIGKILL, "port error\ndown\n" + 2 * "1: DOWN\n3: Disabled\n", "the hub has gone"),
    "hub-stops": (1, OK, "waits\nopened\n"),
    "closes-unknown": (1, OK, 3 * "success, 0 bytes\n" + "0, 0 bytes\n"),
    "closed-errors": (1, OK, "0 bytes\n"),
    "closes-errors": (1, OK, "0 bytes\n"),
    "no-copies": (1, OK, "not opened\n", "process_vm_readv"),
    "looks-at-gids": (
        1,
        OK,
        "0000:0000:0000:0000:0000:0000:0000:0000\nIB/RoCE v1\nRoCE v2\nlo\nInvalid argument\n"
        f"{NO_FILE}1\n0000:0000:0000:0000:0000:ffff:c6\n2\n{NO_FILE}{NO_FILE}",
    ),
    "listings": (
        1,
        OK,
        "infiniband: read 1, by descriptor 1, 0 wrong\ninfiniband: read 1, by descriptor 1, 0 wrong\n"
        "5348:00:00.0: read 1, by descriptor 1, 0 wrong\n",
    ),
    "doorbell-page": (1, OK, "".join(f"access {access}: {EFAULT}\n" for access in (0, 1, 7)) + "umem: Bad address\n"),
    "another-user": (1, OK, "0 devices\n", "another user's"),
}
OPTIONS = {"hub-ends": ["--private"], "hub-stops": ["--private", "--devices", "2"]}
# Run as another user in a run of root. This needs root.
OF_ANOTHER_USER = {"another-user"}
# Run as root, too: root may write to any file except these.
ALSO_AS_ROOT = {"sysfs-file"}

# Limits (setrlimit) do not apply to root, so the cases run as another user.
USER = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.getuid() == 0 else []
# Seconds after which a case hangs. On a busy machine, some cases take long.
HANGS = 40
# `softhca run` ends with status 128 + signal.
RUN_SIGNAL = 128
SHOWN = 16000  # characters of a failure's output


def first_line(path):
    try:
        return path.read_text().splitlines()[0]
    except (OSError, IndexError):
        return "?"


def backtraces(process):
    """The stacks of all threads, if there is gdb."""
    if shutil.which("gdb") is None:
        return ""
    words = ["gdb", "--batch", "--nx", "-p", process, "-ex", "thread apply all backtrace 16"]
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=HANGS, check=False).stdout
    except subprocess.TimeoutExpired:
        return "gdb hangs\n"


def waits_of(group):
    """The system call of each thread of a process group, with arguments, and the kernel's function in which it waits."""
    out = ""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(process.name)) != group:
                continue
        except ProcessLookupError:
            continue
        for task in process.glob("task/*"):
            out += (f"  process {process.name} thread {task.name} {first_line(task / 'comm')}: "
                    f"in {first_line(task / 'wchan')}, system call {first_line(task / 'syscall')}\n")
        out += backtraces(process.name)
    return out


def run(softhca, lives, case, user):
    """The status of one case (a text if it hangs), its output and its errors."""
    words = [softhca, "run", *OPTIONS.get(case, []), "--"]
    words = [*words, *user] if case in OF_ANOTHER_USER else [*user, *words]
    program = subprocess.Popen(
        [*words, lives, case],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "HOME": "/tmp", "XDG_RUNTIME_DIR": ""},
    )
    try:
        out, errors = program.communicate(timeout=HANGS)
    except subprocess.TimeoutExpired:
        waits = waits_of(program.pid)
        os.killpg(program.pid, signal.SIGKILL)
        return f"it hangs\n{waits}", *program.communicate()
    status = program.returncode
    return (RUN_SIGNAL - status if status > RUN_SIGNAL else status), out, errors


def failure_of(case, got):
    """How a run differs from what its case expects, or nothing."""
    _, status, output, *words = CASES[case]
    missing = [word for word in words if word not in got[2]]
    if got[:2] == (status, output) and not missing:
        return ""
    without = f" without {', '.join(missing)}" if missing else ""
    return f"status {got[0]}, expected {status}\n--- output:\n{got[1]}--- expected:\n{output}--- errors{without}:\n{got[2]}"


def main():
    softhca, lives, *wanted = sys.argv[1:]
    failed = False
    for case in wanted or CASES:
        if case in OF_ANOTHER_USER and not USER:
            continue
        runs = [USER] * CASES[case][0] + ([[]] if USER and case in ALSO_AS_ROOT else [])
        for number, user in enumerate(runs, 1):
            begun = time.monotonic()
            if failure := failure_of(case, run(softhca, lives, case, user)):
                failed = True
                load = " ".join(f"{of:.1f}" for of in os.getloadavg())
                print(f"FAILED: {case}: run {number} of {len(runs)}, {time.monotonic() - begun:.1f} s, load {load}: {failure[:SHOWN]}")
                break
        else:
            print(f"ok: {case}")
        sys.stdout.flush()
    return failed


if __name__ == "__main__":
    sys.exit(main())
