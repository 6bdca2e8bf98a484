#!/usr/bin/env python3
"""An MPI job of any number of ranks: each sends to the next, and every byte is checked."""

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
if world.allreduce(rank) != ranks * (ranks - 1) // 2:
    world.Abort(2)
if rank == 0:
    print(f"{ranks} ranks: right")
