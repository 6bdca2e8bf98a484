#!/usr/bin/env python3
"""The inputs of the fuzzers: those that the scripts of this folder compute, and those that were found or recorded.

corpus.py write FOLDER          writes all as FOLDER/FUZZER/NAME; a build does this
corpus.py add FUZZER FILE...    keeps inputs that were found, in fuzz/corpus/FUZZER.base64

An archive has one line for each input, sorted: its name, and its bytes in base64.
"""

import base64
import importlib
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def archive(fuzzer):
    return HERE / "corpus" / f"{fuzzer}.base64"


def kept(fuzzer):
    """{name: bytes} of the archive."""
    if not archive(fuzzer).exists():
        return {}
    lines = (line.split(" ", 1) for line in archive(fuzzer).read_text().splitlines())
    return {name: base64.b64decode(data, validate=True) for name, data in lines}


def keep(fuzzer, inputs):
    """Adds `inputs`, {name: bytes}; one of the same name is replaced."""
    every = {**kept(fuzzer), **inputs}
    archive(fuzzer).write_text("".join(f"{name} {base64.b64encode(every[name]).decode()}\n" for name in sorted(every)))


def computed():
    """(fuzzer, name, bytes) of all scripts that need no recording."""
    for script in sorted(HERE.glob("*_seeds.py")):
        module = importlib.import_module(script.stem)
        if hasattr(module, "inputs"):
            yield from module.inputs()


def write(folder):
    every = [(file.stem, name, data) for file in sorted((HERE / "corpus").glob("*.base64"))
             for name, data in kept(file.stem).items()]
    shutil.rmtree(folder, ignore_errors=True)
    for fuzzer, name, data in [*every, *computed()]:
        (folder / fuzzer).mkdir(parents=True, exist_ok=True)
        (folder / fuzzer / name).write_bytes(data)


def main():
    what, where, files = sys.argv[1:2], sys.argv[2:3], [Path(file) for file in sys.argv[3:]]
    if what == ["write"] and where and not files:
        write(Path(where[0]))
    elif what == ["add"] and files:
        keep(where[0], {file.name: file.read_bytes() for file in files})
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main())
