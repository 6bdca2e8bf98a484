"""QEMU: the machine's own when it has vfio-user-pci, else one from Debian backports.

The latter is unpacked into the cache and run with its own dynamic loader and libraries: no
chroot, no root rights, nothing installed."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from . import apt, cache
from .report import Problem, say

MINIMUM = (10, 1)
PROGRAM = "qemu-system-x86_64"
FAILED = "a boot with /dev/kvm has failed here (nested virtualization?)"


class Qemu:
    """How to start it: a command prefix, and the version as text."""

    def __init__(self, command, version):
        self.command = command
        self.version = version


def get(rebuild=False):
    chosen = os.environ.get("SOFTHCA_QEMU")
    if chosen:
        reason = unsuitable([chosen])
        if reason:
            raise Problem(f"SOFTHCA_QEMU={chosen}: {reason}")
        return Qemu([chosen], version([chosen]))
    system = shutil.which(PROGRAM)
    if system and not unsuitable([system]):
        return Qemu([system], version([system]))
    recipe = {"qemu": apt.BACKPORTS, "packages": ["qemu-system-x86"], "format": 1}
    directory = cache.entry("qemu", recipe, build, rebuild)
    command = private_command(directory)
    return Qemu(command, (directory / "version").read_text().strip())


def version(command):
    try:
        text = subprocess.run([*command, "--version"], capture_output=True, text=True).stdout
    except OSError:
        return None
    found = re.search(r"version (\d+(?:\.\d+)+)", text)
    return found and found[1]


def unsuitable(command):
    """Why this QEMU cannot be used, or None."""
    found = version(command)
    if not found:
        return "it does not run"
    if tuple(int(part) for part in found.split(".")[:2]) < MINIMUM:
        return f"it is version {found}; vfio-user-pci came with {'.'.join(map(str, MINIMUM))}"
    devices = subprocess.run([*command, "-device", "help"], capture_output=True, text=True).stdout
    if '"vfio-user-pci"' not in devices:
        return f"version {found} was built without vfio-user-pci"
    return None


def private_command(directory):
    """The loader is started by name, so that nothing of the machine's libraries is used."""
    tree = directory / "tree"
    libraries = [tree / "usr/lib/x86_64-linux-gnu", tree / "usr/lib"]
    loader = tree / "usr/lib64/ld-linux-x86-64.so.2"
    if not loader.exists():
        loader = tree / "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
    command = [str(loader), "--library-path", ":".join(map(str, libraries)),
               str(tree / "usr/bin" / PROGRAM)]
    for data in ("usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"):
        if (tree / data).is_dir():
            command += ["-L", str(tree / data)]
    return command


def build(directory):
    source = apt.updated()
    say("QEMU: the system has none with vfio-user-pci; fetching Debian's backport (once)")
    debs = source.download(["qemu-system-x86"], directory / "debs", apt.BACKPORTS, closure=True)
    apt.extract(debs, directory / "tree")
    flatten_symlinks(directory / "tree")
    shutil.rmtree(directory / "debs")
    command = private_command(directory)
    reason = unsuitable(command)
    if reason:
        raise Problem(f"the QEMU of {apt.BACKPORTS} cannot be used: {reason}")
    (directory / "version").write_text(version(command) + "\n")


def flatten_symlinks(tree):
    """Absolute links between the unpacked packages would lead out of the tree."""
    for path in tree.rglob("*"):
        if path.is_symlink() and os.readlink(path).startswith("/"):
            target = os.readlink(path)
            path.unlink()
            path.symlink_to(os.path.relpath(tree / target.lstrip("/"), path.parent))


def why_not_kvm(qemu, kernel):
    """Why KVM cannot run this kernel, or None. Tries it, and remembers the result until the next reboot.

    /dev/kvm may exist and still not do (nested virtualisation, sandboxes), so nothing less than
    a kernel that reaches its init counts."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "you may not open /dev/kvm (join the group kvm)" if os.path.exists("/dev/kvm") else "there is no /dev/kvm"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    memory = cache.root() / f"kvm-{cache.key([qemu.command, qemu.version])}"
    if memory.exists() and memory.read_text().startswith(boot):
        return None if memory.read_text() == f"{boot} works\n" else FAILED
    say("trying whether KVM works here")
    command = [*qemu.command, "-nodefaults", "-no-user-config", "-machine", "q35", "-accel", "kvm",
               "-cpu", "host", "-m", "256M", "-display", "none", "-no-reboot",
               "-kernel", str(kernel.vmlinuz), "-initrd", str(kernel.initrd),
               "-append", "console=ttyS0 loglevel=3 panic=-1 rdinit=/bin/busybox",
               "-serial", "stdio"]
    # busybox as init without an applet name prints its usage, exits, and so panics the kernel:
    # either text shows that the kernel came all the way to user space.
    try:
        output = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, timeout=10).stdout
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout or b""
    works = b"BusyBox" in output or b"Attempted to kill init" in output
    memory.write_text(f"{boot} {'works' if works else 'fails'}\n")
    return None if works else FAILED
