"""A cache of directories under ${XDG_CACHE_HOME:-~/.cache}/softhca, one for each recipe.

An entry is `<name>-<key>`, the key being a hash of everything that decides its content. It is
built in a temporary directory beside it and renamed into place when complete, under a lock, so
that a reader never sees half of it and two runs never build the same thing twice."""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path


def root():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = Path(base).resolve() / "softhca"
    path.mkdir(parents=True, exist_ok=True)
    return path


def key(recipe):
    text = json.dumps(recipe, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextlib.contextmanager
def lock(name):
    with open(root() / f"{name}.lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def entry(name, recipe, build, rebuild=False):
    """Returns the directory of (name, recipe), calling build(directory) if it is not there."""
    path = root() / f"{name}-{key(recipe)}"
    if path.is_dir() and not rebuild:
        return path
    with lock(path.name):
        if path.is_dir() and not rebuild:  # another run built it meanwhile
            return path
        for abandoned in root().glob(f".{path.name}.*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=root()))
        try:
            build(temporary)
            (temporary / "recipe.json").write_text(json.dumps(recipe, indent=1) + "\n")
            temporary.chmod(0o755)
            if path.is_dir():
                # Guests that still run from the old entry keep its files open.
                old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=root()))
                path.rename(old / "old")
                shutil.rmtree(old, ignore_errors=True)
            temporary.rename(path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return path
