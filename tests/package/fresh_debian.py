"""A minimal Debian in which tests run scripts. mmdebstrap makes it from the mirror of this machine's apt. It is kept as an
archive beside the guests' images (guest/vm/cache.py), and unpacked for each script. The archive has the package lists, so
that `apt-get update` only fetches changes."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "guest"))

from vm import apt, cache, root as guest_root  # noqa: E402

# Separate namespaces, so that the mounts disappear with the system. A user who is not root also gets a user namespace, and
# is root in it.
OWN_SPACE = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
AS_ROOT = [] if os.geteuid() == 0 else ["--map-root-user", "--map-auto"]
# The first argument is the system's folder.
ENTER = """set -e
mount --bind "$1" "$1" && cd "$1"
mount -t proc proc proc
mount --rbind /dev dev
mount --rbind /sys sys
mount -t tmpfs tmpfs tmp && chmod 1777 tmp && mkdir tmp/files
cp -L /etc/resolv.conf etc/resolv.conf
echo '127.0.0.1 localhost' >>etc/hosts
printf '#!/bin/sh\\nexit 101\\n' >usr/sbin/policy-rc.d && chmod 755 usr/sbin/policy-rc.d
# The system is deleted afterwards, so its files need not reach the disk.
mkdir -p etc/dpkg/dpkg.cfg.d && echo force-unsafe-io >etc/dpkg/dpkg.cfg.d/unsafe-io
root=$1; shift
cp "$@" tmp/files/
exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 bash /tmp/files/script
"""


def archive(suite):
    """The path of the system's archive, made if it is not there."""
    lines = apt.sources_lines(suite)

    def build(folder):
        options = [f"--aptopt={row}" for row in guest_root.inherited_apt_options()]
        with open(folder / "system.tar", "wb") as system:
            subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "--format=tar", "--skip=cleanup/apt/lists", *options,
                            suite, "-", *lines], stdout=system, check=True, stdin=subprocess.DEVNULL, timeout=600)

    return cache.entry("fresh", {"suite": suite, "sources": lines, "format": 1}, build) / "system.tar"


def run(script, files=(), suite="bookworm", timeout=300, output=None):
    """Runs the bash `script` as root in a fresh `suite` that holds `files` in /tmp/files, with apt working. Returns
    (exit status, output). `output`: a file that gets the output as it comes, instead."""
    system = archive(suite)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = Path(folder) / "script"
        path.write_text(script)
        root = Path(folder) / "root"
        root.mkdir()
        space = [*OWN_SPACE, *AS_ROOT]
        try:
            subprocess.run([*space, "tar", "-xf", system, "--exclude=./dev/*", "-C", root], check=True)
            done = subprocess.run([*space, "sh", "-c", ENTER, "sh", root, path, *files], text=True,
                                  stdin=subprocess.DEVNULL, stdout=output or subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=timeout)
            return done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            return 124, (late.stdout or b"").decode(errors="replace")
        finally:
            subprocess.run([*space, "rm", "-rf", root], check=False)
            shutil.rmtree(root, ignore_errors=True)
