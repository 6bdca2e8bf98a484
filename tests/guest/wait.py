"""Waits for a condition, never for a time."""
import sys
import time


def wait_for(seconds, text, condition):
    """Waits until `condition` returns a true value, and returns it. Limits are long, because a busy machine is many times
    slower."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > end:
            sys.exit(f"FAIL: no {text} after {seconds} s")
        time.sleep(0.05)
    return result
