#!/usr/bin/env python3
"""An MPICH job of any number of ranks: each sends to the next, and all send to all. Every byte is checked.

Debian's mpi4py is Open MPI's only, so this calls libmpich by its C interface. The constants are those of its mpi.h; the MPICH ABI
Compatibility Initiative keeps their values.
"""
import ctypes

WORLD, BYTE, LONG, SUM = 0x44000000, 0x4C00010D, 0x4C000807, 0x58000003
STATUS_IGNORE = ctypes.c_void_p(1)
SIZES = (0, 1, 1000, 8193, 100_000, 1 << 20, 8 << 20)

mpi = ctypes.CDLL("libmpich.so.12")


def number(call):
    value = ctypes.c_int()
    call(WORLD, ctypes.byref(value))
    return value.value


def pattern(sender, size):
    block = bytes((sender * 7 + i) % 251 for i in range(251))
    return (block * (size // len(block) + 1))[:size]


mpi.MPI_Init(None, None)
rank, ranks = number(mpi.MPI_Comm_rank), number(mpi.MPI_Comm_size)
before = (rank - 1) % ranks
for size in SIZES:
    outgoing, incoming = ctypes.create_string_buffer(pattern(rank, size), size + 1), ctypes.create_string_buffer(size + 1)
    mpi.MPI_Sendrecv(outgoing, size, BYTE, (rank + 1) % ranks, size & 1023, incoming, size, BYTE, before, size & 1023, WORLD, STATUS_IGNORE)
    if incoming.raw[:size] != pattern(before, size):
        print(f"rank {rank}: {size} bytes differ", flush=True)
        mpi.MPI_Abort(WORLD, 1)

for size in (1, 1000, 50_000):
    outgoing = ctypes.create_string_buffer(b"".join(pattern(rank + to, size) for to in range(ranks)), size * ranks)
    incoming = ctypes.create_string_buffer(size * ranks)
    mpi.MPI_Alltoall(outgoing, size, BYTE, incoming, size, BYTE, WORLD)
    if incoming.raw != b"".join(pattern(sender + rank, size) for sender in range(ranks)):
        print(f"rank {rank}: {size} bytes from each differ", flush=True)
        mpi.MPI_Abort(WORLD, 1)
for count in (1, 1000, 50_000):
    terms, sums = (ctypes.c_long * count)(*range(rank, rank + count)), (ctypes.c_long * count)()
    mpi.MPI_Allreduce(terms, sums, count, LONG, SUM, WORLD)
    if list(sums) != [ranks * i + ranks * (ranks - 1) // 2 for i in range(count)]:
        print(f"rank {rank}: {count} sums differ", flush=True)
        mpi.MPI_Abort(WORLD, 2)
mpi.MPI_Barrier(WORLD)
print(f"rank {rank} of {ranks}: right", flush=True)
mpi.MPI_Finalize()
