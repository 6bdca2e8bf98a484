"""Progress on stderr, and the only exception whose text is meant for users."""

import sys
import time

_quiet = False
_started = time.monotonic()


class Problem(Exception):
    """Something the user can act on. The text says what happened and what to do."""

    def __init__(self, text, status=125):
        super().__init__(text)
        self.status = status


def set_quiet(quiet):
    global _quiet
    _quiet = quiet


def say(text):
    if not _quiet:
        print(f"guest/run [{time.monotonic() - _started:5.1f} s] {text}",
              file=sys.stderr, flush=True)


def warn(text):
    print(f"guest/run: warning: {text}", file=sys.stderr, flush=True)
