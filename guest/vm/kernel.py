"""Debian's own kernels: vmlinuz, all its modules as a squashfs, and a small initramfs.

The kernel packages are unpacked, not installed: no bootloader, no initramfs-tools. The modules
are as Debian built and signed them, only stored uncompressed so that loading is quick under
emulation, with the index that depmod makes of them."""

import re
import shutil
import struct
import subprocess

from . import apt, cache
from .cpio import Writer
from .report import Problem, say

RELEASES = {"trixie": None, "backports": apt.BACKPORTS}
EARLY_MODULES = ("virtio_pci", "virtio_blk", "squashfs", "overlay")
# No guest has such hardware; leaving it out halves the time to build.
LEFT_OUT = ("drivers/gpu", "drivers/media", "drivers/net/wireless", "drivers/staging",
            "drivers/iio", "drivers/isdn", "drivers/hwmon", "drivers/bluetooth",
            "net/bluetooth", "drivers/comedi", "sound")
UNPACKERS = {b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz"}  # by the first bytes of what they unpack
# The ELF note by which QEMU starts an unpacked kernel: the owner "Xen" has 4 bytes, the address 8, the type is PHYS32_ENTRY.
ENTRY_NOTE = struct.pack("<III4s", 4, 8, 18, b"Xen")


class Kernel:
    def __init__(self, directory):
        self.vmlinuz = directory / "vmlinuz"
        self.unpacked = directory / "vmlinux"  # the same, for an emulator that would take long to unpack it
        self.initrd = directory / "initrd"
        self.modules = directory / "modules.sqfs"
        self.release = (directory / "release").read_text().strip()


def get(which, rebuild=False):
    recipe = {"kernel": which, "early": EARLY_MODULES, "left out": LEFT_OUT, "format": 2}
    return Kernel(cache.entry(f"kernel-{which}", recipe, lambda path: build(which, path), rebuild))


def build(which, directory):
    source = apt.updated()
    release = RELEASES[which]
    depends = source.candidate("linux-image-amd64", release)["Depends"]
    image = re.search(r"linux-image-\d[^\s,]*", depends)[0]
    say(f"kernel {which}: fetching {image}")
    # Newer packages split modules, binary and module lists off.
    names = [image, *re.findall(r"linux-(?:modules|binary|base)-\d[^\s,]+",
                                source.candidate(image, release).get("Depends", ""))]
    work = directory / "work"
    tree = work / "tree"
    apt.extract(source.download(names + ["busybox-static"], work / "debs", release), tree)
    vmlinuz, version = find_kernel(tree)
    modules = next(path for path in (tree / "usr/lib/modules", tree / "lib/modules")
                   if path.is_dir()) / version

    say(f"kernel {which}: packing the modules of {version}")
    for name in LEFT_OUT:
        shutil.rmtree(modules / "kernel" / name, ignore_errors=True)
    decompress(modules)
    depmod(modules, version)
    initramfs(directory / "initrd", modules, tree)
    shutil.move(vmlinuz, directory / "vmlinuz")
    (directory / "vmlinux").write_bytes(unpacked((directory / "vmlinuz").read_bytes()))
    subprocess.run(["mksquashfs", str(modules), str(directory / "modules.sqfs"), "-all-root",
                    "-quiet", "-no-progress", "-comp", "lz4"], check=True,
                   stdout=subprocess.DEVNULL)
    (directory / "release").write_text(version + "\n")
    shutil.rmtree(work)


def find_kernel(tree):
    """6.12 has boot/vmlinuz-VERSION, newer packages usr/lib/modules/VERSION/vmlinuz."""
    for path in (tree / "boot").glob("vmlinuz-*"):
        return path, path.name.removeprefix("vmlinuz-")
    for path in tree.glob("usr/lib/modules/*/vmlinuz"):
        return path, path.parent.name
    raise Problem("no vmlinuz in Debian's kernel packages: has their layout changed? "
                  "See find_kernel in guest/vm/kernel.py")


def unpacked(vmlinuz):
    """The ELF file that a vmlinuz holds (Documentation/arch/x86/boot.rst of Linux: setup_sects, payload_offset, payload_length)."""
    (sectors,), (offset, length) = vmlinuz[0x1f1:0x1f2], struct.unpack_from("<II", vmlinuz, 0x248)
    begin = 512 * (sectors + 1) + offset
    payload = vmlinuz[begin:begin + length - 4]  # the last four bytes are the length of what it unpacks to
    tool = next((tool for first, tool in UNPACKERS.items() if payload.startswith(first)), None)
    if not tool:
        raise Problem(f"Debian's kernel is packed in an unknown way ({payload[:4].hex()}). See UNPACKERS in guest/vm/kernel.py")
    if not shutil.which(tool):
        raise Problem(f"{tool} missing: run make deps")
    elf = subprocess.run([tool, "-dc"], input=payload, stdout=subprocess.PIPE, check=True).stdout
    if ENTRY_NOTE not in elf:
        raise Problem("Debian's kernel has no entry for PVH. See ENTRY_NOTE in guest/vm/kernel.py")
    return elf


def decompress(modules):
    packed = [str(path) for path in modules.rglob("*.ko.xz")]
    if packed:
        subprocess.run(["xargs", "-0", "-P2", "-n200", "xz", "-d"], check=True,
                       input="\0".join(packed).encode())


def depmod(modules, version):
    """depmod wants lib/modules/<version> under a base directory."""
    base = modules.parent.parent.parent
    if modules.parent.parent.parent.name == "usr":
        base = base.parent
        if not (base / "lib").exists():
            (base / "lib").symlink_to("usr/lib")
    tool = shutil.which("depmod", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if not tool:
        raise Problem("depmod missing (package kmod): run make deps")
    subprocess.run([tool, "-b", str(base), version], check=True)


def initramfs(path, modules, tree):
    """busybox and the modules that reach the root file system, in the order to insert them."""
    archive = Writer()
    archive.file("bin/busybox", (tree / "usr/bin/busybox" if (tree / "usr/bin/busybox").exists()
                                 else tree / "bin/busybox").read_bytes(), 0o755)
    archive.symlink("bin/sh", "busybox")
    for name in ("dev", "proc", "sys", "root", "modules", "run"):
        archive.directory(name)
    archive.device("dev/console", 5, 1)
    files = load_order(modules, EARLY_MODULES)
    for file in files:
        archive.file(f"early/{file.rsplit('/', 1)[-1]}", (modules / file).read_bytes())
    archive.file("early/order", "".join(f"{file.rsplit('/', 1)[-1]}\n" for file in files))
    path.write_bytes(archive.finish())


def load_order(modules, wanted):
    """The files of the wanted modules and of what they depend on, dependencies first."""
    depends = {}
    for row in (modules / "modules.dep").read_text().splitlines():
        file, needs = row.split(":", 1)
        depends[file] = needs.split()
    by_name = {re.sub(r"\.ko.*", "", file.rsplit("/", 1)[-1]).replace("-", "_"): file
               for file in depends}
    order = []
    for name in wanted:
        if name not in by_name:  # built in
            continue
        for file in [*reversed(depends[by_name[name]]), by_name[name]]:
            if file not in order:
                order.append(file)
    return order
