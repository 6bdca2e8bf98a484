"""Random writes of 1 to 8 bytes over a BAR: registers, command doorbells, UAR doorbells.

usage: scribble.py RESOURCE WRITES [doorbells]
doorbells: only those of SQs and CQs, for a function that its driver holds. Not the EQs': a driver whose EQ's
consumer index was overwritten waits a minute for each command, even if the guest is shutting down."""
import mmap
import os
import random
import struct
import sys

path, writes = sys.argv[1], int(sys.argv[2])
doorbells_only = sys.argv[3:] == ["doorbells"]
eq_doorbells = [] if doorbells_only else [0x40, 0x48]
seed = int(os.environ.get("SEED", "1"))
print(f"scribble: seed {seed}, {writes} writes on {path}")
source = random.Random(seed)
with open(path, "r+b") as bar_file:
    size = os.fstat(bar_file.fileno()).st_size
    bar = mmap.mmap(bar_file.fileno(), size)


def write(offset, width):
    value = source.getrandbits(8 * width)
    # Half of the doorbells name a number that may exist, half any number.
    if width == 8 and source.random() < 0.5:
        value = struct.unpack("<Q", struct.pack(">II", source.getrandbits(32), source.getrandbits(8) << 8 | 3))[0]
    struct.pack_into({1: "<B", 2: "<H", 4: "<I", 8: "<Q"}[width], bar, offset, value)


for _ in range(writes):
    kind = 0.5 if doorbells_only else source.random()
    if kind < 0.3:  # initialization segment
        offset, width = source.randrange(0, 0x2010, 4), 4
    elif kind < 0.7:  # doorbells
        page = source.randrange(3, 64) * 4096
        offset = page + source.choice([0x20] + eq_doorbells + [0x800 + 0x100 * i for i in range(8)])
        width = source.choice([4, 8])
    else:
        width = source.choice([1, 2, 4, 8])
        offset = source.randrange(0, size - 8) // width * width
    write(offset, width)
