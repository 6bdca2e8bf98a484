"""How scripts wait: for a condition, never for a time."""
import sys
import time


def wait_for(seconds, text, condition):
    """What `condition` returns, when that is true. A busy machine is many times slower: be patient."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > end:
            sys.exit(f"FAIL: no {text} after {seconds} s")
        time.sleep(0.05)
    return result
