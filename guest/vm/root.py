"""The guest's root file system: Debian trixie (or sid) and the RDMA tools, as a read-only squashfs.

mmdebstrap builds it, as root or, for other users, in a user namespace. Neither kernel nor init
system is in it: kernel.py brings the one, init/ the other, so that changing either does not
rebuild this."""

import os
import shlex
import shutil
import subprocess

from . import apt, cache
from .report import Problem, say

PACKAGES = (
    "ethtool", "ibverbs-providers", "ibverbs-utils", "infiniband-diags", "iperf3", "iproute2",
    "iputils-ping", "kmod", "less", "pciutils", "perftest", "procps", "python3",
    "python3-pyverbs", "rdma-core", "rdmacm-utils", "strace", "tcpdump", "udev", "vim-tiny",
)
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


def get(extra=(), rebuild=False, suite=apt.SUITE):
    """The squashfs with PACKAGES and the extra ones."""
    packages = sorted({*PACKAGES, *extra})
    recipe = {"suite": suite, "packages": packages, "left out": LEFT_OUT, "format": 1}
    entry = cache.entry("root", recipe, lambda path: build(packages, extra, path, suite), rebuild)
    return entry / "root.sqfs"


def how():
    """The mmdebstrap mode that works here, and the command prefix it needs."""
    if not shutil.which("mmdebstrap"):
        raise Problem("mmdebstrap missing: run make deps")
    if os.geteuid() == 0:
        return "root", []
    if shutil.which("newuidmap") and subprocess.run(
            ["unshare", "--user", "--map-root-user", "true"], capture_output=True).returncode == 0:
        return "unshare", []
    if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"],
                                               capture_output=True).returncode == 0:
        return "root", ["sudo", "-n"]
    raise Problem("the guest image needs root or user namespaces to build. Either install "
                  "uidmap (make deps) and allow user namespaces, or build once with sudo:\n"
                  f"  sudo XDG_CACHE_HOME={cache.root().parent} guest/run --build")


def build(packages, extra, directory, suite):
    mode, prefix = how()
    source = apt.updated(suite)
    source.require(extra)
    say("guest image: building the Debian root"
        + ("" if suite == apt.SUITE else f" of {suite}")
        + (f" with {' '.join(extra)}" if extra else "") + " (once; takes one or two minutes, without further lines)")
    image = directory / "root.sqfs"
    log = directory / "build.log"
    make = [*prefix, "mmdebstrap", f"--mode={mode}", "--variant=minbase", "--format=tar",
            "--architectures=amd64", f"--include={','.join(packages)}",
            '--aptopt=Acquire::Languages "none"', "--aptopt=Acquire::Retries \"3\"",
            *[f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT],
            *[f"--aptopt={row}" for row in inherited_apt_options()],
            suite, "-", *source.mmdebstrap_sources()]
    pack = ["mksquashfs", "-", str(image), "-tar", "-comp", "lz4", "-quiet", "-no-progress"]
    with open(log, "w") as output:
        output.write(shlex.join(make) + "\n")
        output.flush()
        first = subprocess.Popen(make, stdout=subprocess.PIPE, stderr=output,
                                 stdin=subprocess.DEVNULL)
        second = subprocess.run(pack, stdin=first.stdout, stdout=output, stderr=output)
        first.stdout.close()
        code = first.wait()
    if code or second.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise Problem(f"building the guest image failed:\n{tail}")


def inherited_apt_options():
    """mmdebstrap's apt does not read this machine's apt.conf: hand it what reaches the mirror."""
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True).stdout
    rows = []
    for row in dump.splitlines():
        name = row.split(" ", 1)[0]
        value = row.split(" ", 1)[-1].strip('";')
        if not value:
            continue
        if name.startswith(("Acquire::http", "Acquire::https", "Acquire::ftp", "Acquire::Check",
                            "Acquire::ForceIPv", "Acquire::tor", "Acquire::AllowInsecure")):
            rows.append(row)
    for option, path in (("Dir::Etc::netrc", "/etc/apt/auth.conf"),
                         ("Dir::Etc::netrcparts", "/etc/apt/auth.conf.d")):
        if os.path.exists(path):
            rows.append(f'{option} "{path}";')
    return rows
