"""How a test in Python waits for another program where nothing says when: it looks."""
import time

PATIENCE = 60


def eventually(look, what):
    """The first value of look() that is true. A minute without one is a failure."""
    end = time.monotonic() + PATIENCE
    while not (value := look()):
        if time.monotonic() >= end:
            raise SystemExit(f"in vain for {PATIENCE} s: {what}")
        time.sleep(0.01)
    return value
