"""Runs a program of the tree, in Python, within this process: a start of the interpreter takes longer than most programs."""
import contextlib
import io
import runpy
import sys
from unittest import mock


def run_script(path, *arguments):
    """(exit status, standard output, standard error)"""
    out, errors = io.StringIO(), io.StringIO()
    status = 0
    with mock.patch.object(sys, "argv", [str(path), *map(str, arguments)]), \
            contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            status = end.code or 0
            if isinstance(status, str):
                print(status, file=sys.stderr)
                status = 1
    return status, out.getvalue(), errors.getvalue()
