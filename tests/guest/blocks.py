#!/usr/bin/env python3
"""Writes a block device at random, past the page cache and from several threads, and reads all of it back.

blocks.py DEVICE MIB THREADS WRITES [SEED]: each thread has its own part of the first MIB of the device, writes all of it
once, then WRITES times a piece of 512 bytes to 256 KiB anywhere in its part. Meanwhile it compares pieces that it has
written before. In the end every byte is compared. The exit status is 0 if all were right.
"""

import mmap
import os
import random
import sys
import threading

BLOCK = 512
PIECE_MAX = 256 << 10


class Part(threading.Thread):
    """One thread's part of the device, and a copy of its expected contents."""

    def __init__(self, path, begin, size, writes, seed):
        super().__init__()
        self.device = os.open(path, os.O_RDWR | os.O_DIRECT)
        self.begin, self.size, self.writes = begin, size, writes
        self.random = random.Random(seed)
        self.wanted = bytearray(size)
        # Aligned, and in pages that are not contiguous in the machine's memory.
        self.buffer = mmap.mmap(-1, PIECE_MAX + 4096)
        self.wrong = None

    def piece(self, offset, size):
        shift = self.random.randrange(0, 4096, BLOCK)
        return memoryview(self.buffer)[shift:shift + size]

    def write(self, offset, size):
        data = self.random.randbytes(size)
        piece = self.piece(offset, size)
        piece[:] = data
        self.wanted[offset:offset + size] = data
        if os.pwritev(self.device, [piece], self.begin + offset) != size:
            raise OSError(f"a short write at {self.begin + offset}")

    def compare(self, offset, size):
        piece = self.piece(offset, size)
        piece[:] = b"\xa5" * size
        if os.preadv(self.device, [piece], self.begin + offset) != size:
            raise OSError(f"a short read at {self.begin + offset}")
        if piece != self.wanted[offset:offset + size]:
            raise ValueError(f"other bytes than were written, at {self.begin + offset} of {size}")

    def each(self, action):
        for offset in range(0, self.size, PIECE_MAX):
            action(offset, min(PIECE_MAX, self.size - offset))

    def any(self):
        size = BLOCK * self.random.choice([1, 1, 8, 8, 8, 16, 64, 256, 511, 512])
        return self.random.randrange(0, self.size - size + BLOCK, BLOCK), size

    def run(self):
        try:
            self.each(self.write)
            for _ in range(self.writes):
                self.write(*self.any())
                self.compare(*self.any())
            self.each(self.compare)
        except (OSError, ValueError) as wrong:
            self.wrong = wrong


def main():
    path, mib, threads, writes = sys.argv[1], *map(int, sys.argv[2:5])
    seed = int(sys.argv[5]) if len(sys.argv) > 5 else 1
    size = (mib << 20) // threads // BLOCK * BLOCK
    parts = [Part(path, i * size, size, writes, seed + i) for i in range(threads)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
    for part in parts:
        if part.wrong:
            sys.exit(f"{path}: {part.wrong}")
    print(f"{path}: {mib} MiB are as they were written, by {threads} threads and {threads * writes} writes more")


main()
