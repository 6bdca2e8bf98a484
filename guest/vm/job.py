"""The job of a guest: a script with a file of the host, for the initramfs of a boot or as an order to a guest that is up."""

import base64
import os
import shlex
import stat
from pathlib import Path

from .cpio import Writer
from .report import Problem

INIT = Path(__file__).resolve().parent.parent / "init"
ORDER_BYTES_MAX = 1 << 20  # the guest's shell reads it byte by byte


def job_archive(settings, script):
    """The part of the initramfs that changes between runs."""
    archive = Writer()
    archive.file("init", (INIT / "init").read_bytes(), 0o755)
    for name in ("start", "udev-settle"):
        archive.file(f"softhca/{name}", (INIT / name).read_bytes(), 0o755)
    archive.file("softhca/settings",
                 "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in settings.items()))
    if script:
        file, line = job_of(script)
        if file:
            archive.file(f"softhca/script/{file.name}", content(file), 0o755)
        archive.file("softhca/job", job_text(line), 0o755)
    return archive.finish()


def job_text(line):
    return f"#!/bin/bash\n{line}\n"


def job_order(script):
    """The line that sends a script to a running guest."""
    file, line = job_of(script)
    parts = [job_text(line).encode()]
    if file:
        parts += [file.name.encode(), content(file)]
    order = "job " + " ".join(base64.b64encode(part).decode() for part in parts) + "\n"
    if len(order) > ORDER_BYTES_MAX:
        raise Problem(f"{file or 'the script'}: too long to be brought to a guest that is up; use --share")
    return order


def job_of(script):
    """(host file to take along or None, shell text to run in the guest)."""
    words = script
    if len(script) == 1 and not is_file(script[0]):
        try:
            words = shlex.split(script[0])
        except ValueError:
            words = []
        if not words or not is_file(words[0]):
            return None, script[0]
        rest = script[0].lstrip()[len(words[0]):]  # keep the shell's syntax in what follows
        if not script[0].lstrip().startswith(words[0]):
            rest = " " + shlex.join(words[1:])
    else:
        rest = "".join(" " + shlex.quote(word) for word in words[1:])
    if not is_file(words[0]):
        return None, "exec " + shlex.quote(words[0]) + rest
    file = Path(words[0])
    inside = shlex.quote(f"/usr/lib/softhca/script/{file.name}")
    runs_alone = content(file, 4).startswith((b"#!", b"\x7fELF"))
    return file, (inside if runs_alone else f"bash {inside}") + rest


def content(file, size=-1):
    try:
        with open(file, "rb") as opened:
            return opened.read(size)
    except OSError as error:
        raise Problem(f"{file}: {error.strerror}") from None


def is_file(name):
    try:
        return stat.S_ISREG(os.stat(name).st_mode)
    except (OSError, ValueError):
        return False
