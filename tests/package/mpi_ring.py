#!/usr/bin/env python3
"""An MPI job of any number of ranks: each sends to the next, and all send to all. Every byte is checked."""

import array

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size


def pattern(sender, size):
    return bytes((sender * 7 + i) % 251 for i in range(size))


for size in (1, 1000, 100_000, 1 << 20):
    got = bytearray(size)
    world.Sendrecv(pattern(rank, size), dest=(rank + 1) % ranks, recvbuf=got, source=(rank - 1) % ranks)
    if got != pattern((rank - 1) % ranks, size):
        print(f"rank {rank}: {size} bytes differ", flush=True)
        world.Abort(1)
for size in (1, 1000, 50_000):
    got = bytearray(size * ranks)
    world.Alltoall(b"".join(pattern(rank + to, size) for to in range(ranks)), got)
    if got != b"".join(pattern(sender + rank, size) for sender in range(ranks)):
        print(f"rank {rank}: {size} bytes from each differ", flush=True)
        world.Abort(1)
for count in (1, 1000, 50_000):
    sums = array.array("q", bytes(8 * count))
    world.Allreduce(array.array("q", range(rank, rank + count)), sums)
    if sums.tolist() != [ranks * i + ranks * (ranks - 1) // 2 for i in range(count)]:
        print(f"rank {rank}: {count} sums differ", flush=True)
        world.Abort(2)
if rank == 0:
    print(f"{ranks} ranks: right")
