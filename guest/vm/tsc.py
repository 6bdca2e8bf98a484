"""The frequency of this machine's time stamp counter. An emulated guest reads the same counter, but would measure its
frequency by an emulated timer: on a busy machine its clock would then run many times too fast."""

import ctypes
import functools
import mmap
import time

READ_TSC = bytes.fromhex("0f31"      # rdtsc
                         "48c1e220"  # shl rdx, 32
                         "4809d0"    # or rax, rdx
                         "c3")       # ret
MEASURE_SECONDS = 0.1


@functools.cache
def khz():
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(READ_TSC)
    read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(page)))

    def moment():
        """(nanoseconds, ticks), read as close to each other as a few tries allow."""
        tries = []
        for _ in range(20):
            before = time.monotonic_ns()
            ticks = read()
            after = time.monotonic_ns()
            tries.append((after - before, (before + after) // 2, ticks))
        return min(tries)[1:]

    begin, first = moment()
    time.sleep(MEASURE_SECONDS)
    end, last = moment()
    return round((last - first) * 1e6 / (end - begin))
