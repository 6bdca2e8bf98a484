#!/usr/bin/env python3
"""Runs the oracle under `softhca run`, in the user space of the guests: FOLDER/door.lines.

    door.py --softhca PROGRAM --oracle PROGRAM --output FOLDER [--suite trixie] [CHAPTER...]

The guests' root file system (guest/vm/root.py, with tests/guest/packages.txt) of the suite is unpacked below FOLDER, once, and
entered with chroot, so that both sides have the same libraries.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "guest"))

from vm import apt, root as guest_root  # noqa: E402

CHAPTERS = ROOT / "tests/oracle/chapters"
PACKAGES = ROOT / "tests/guest/packages.txt"
# The second device's address is the second one's in the guest.
RUN = ["run", "--devices", "2", "--address", "198.19.1.1,198.19.2.1", "--"]
# Libraries of libc and the compiler, which every root has itself.
COMMON = re.compile(r"/(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)|ld-linux-x86-64)\.so")
# Own mount name space, so that its mounts disappear with it. For a user who is not root, it comes with a user name space in
# which they are root.
SPACE = ["unshare", "--mount", "--pid", "--fork", "--kill-child",
         *([] if os.geteuid() == 0 else ["--map-root-user", "--map-auto"])]
ENTER = """set -e
root=$1 files=$2; shift 2
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
mount --bind /tmp "$root/tmp"
for folder in "$@"; do
  [ "$folder" != -- ] || break
  mkdir -p "$root$folder"
  mount --bind "$folder" "$root$folder"
done
while [ "$1" != -- ]; do shift; done
shift
softhca=$1 oracle=$2; shift 2
exec "$softhca" """ + " ".join(RUN) + """ env LD_LIBRARY_PATH="$files" chroot "$root" "$oracle" "$@"
"""


def unpacked(folder, suite):
    """The suite's guest root, unpacked below `folder`."""
    image = guest_root.get(PACKAGES.read_text().split(), suite=suite)
    root = folder / image.parent.name
    if not (root / "usr").exists():
        new = folder / f"{image.parent.name}.new"
        subprocess.run([*SPACE, "unsquashfs", "-quiet", "-no-progress", "-force", "-d", new, image], check=True,
                       stdout=subprocess.DEVNULL)
        new.rename(root)
    return root


def libraries(softhca, folder):
    """A folder with the libraries that libsofthca.so needs and a root may lack."""
    folder.mkdir(parents=True, exist_ok=True)
    listed = subprocess.run(["ldd", softhca.parent / "libsofthca.so"], capture_output=True, text=True, check=True).stdout
    for path in re.findall(r"=> (/\S+)", listed):
        if not COMMON.search(path):
            (folder / os.path.basename(path)).write_bytes(pathlib.Path(path).read_bytes())
    return folder


def run(options, chapters):
    """Writes the door's lines. Returns the exit status of the program."""
    environment = {**os.environ, "SOFTHCA_LOG": "error", "XDG_RUNTIME_DIR": ""}
    root = unpacked(options.output, options.suite)
    files = libraries(options.softhca, options.output / "lib")
    shown = {str(path) for path in (options.softhca.parent, options.oracle.parent, files)}
    command = [*SPACE, "sh", "-c", ENTER, "sh", root, files, *sorted(shown), "--", options.softhca, options.oracle, *chapters]
    lines = options.output / "door.lines"
    with open(lines, "wb") as output, open(options.output / "door.log", "wb") as log:
        status = subprocess.run(command, stdout=output, stderr=log, stdin=subprocess.DEVNULL, env=environment).returncode
    if status:
        print(f"door.py: exit status {status}; {options.output}/door.log says:")
        sys.stdout.write((options.output / "door.log").read_text(errors="replace")[-4000:])
    return status


def main():
    parser = argparse.ArgumentParser()
    for name in ("softhca", "oracle", "output"):
        parser.add_argument(f"--{name}", type=lambda word: pathlib.Path(word).absolute(), required=True)
    parser.add_argument("--suite", default=apt.SUITE, choices=apt.SUITES)
    parser.add_argument("chapters", nargs="*", help="those of tests/oracle/chapters, without any")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    return run(options, options.chapters or CHAPTERS.read_text().split())


if __name__ == "__main__":
    sys.exit(main())
