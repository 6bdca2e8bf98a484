#!/usr/bin/env python3
"""An MPI job of two ranks that compares every byte: messages in both directions, collectives, one-sided operations."""

import array
import sys

from mpi4py import MPI

SIZES = (0, 1, 7, 64, 1000, 4096, 8193, 100_000, 1 << 20, 8 << 20)
ALPHABET = bytes(range(251))  # a prime length, so that no packet begins like the one before it

world = MPI.COMM_WORLD
rank = world.Get_rank()
peer = 1 - rank


def pattern(size, seed):
    start = seed % len(ALPHABET)
    return (ALPHABET * (size // len(ALPHABET) + 2))[start:start + size]


def expect(what, got, want):
    if got != want:
        print(f"rank {rank}: {what} differs", file=sys.stderr, flush=True)
        world.Abort(1)


def messages():
    for i, size in enumerate(SIZES):
        buffer = bytearray(size)
        if rank == 0:
            world.Send(pattern(size, i), dest=peer, tag=i)
            world.Recv(buffer, source=peer, tag=i)
            expect(f"what came back of {size} bytes", buffer, pattern(size, i + 1))
        else:
            world.Recv(buffer, source=peer, tag=i)
            expect(f"a message of {size} bytes", buffer, pattern(size, i))
            world.Send(pattern(size, i + 1), dest=peer, tag=i)


def many_at_once():
    size, count = 3000, 64
    incoming = [bytearray(size) for _ in range(count)]
    outgoing = [pattern(size, 10 * rank + i) for i in range(count)]
    requests = [world.Irecv(incoming[i], source=peer, tag=i) for i in reversed(range(count))]
    requests += [world.Isend(outgoing[i], dest=peer, tag=i) for i in range(count)]
    MPI.Request.Waitall(requests)
    for i in range(count):
        expect(f"message {i} of many", incoming[i], pattern(size, 10 * peer + i))


def collectives():
    for size in (1, 5000, 1 << 20):
        buffer = bytearray(pattern(size, size)) if rank == 0 else bytearray(size)
        world.Bcast(buffer, root=0)
        expect(f"a broadcast of {size} bytes", buffer, pattern(size, size))
    sums = array.array("q", [0] * 1000)
    world.Allreduce(array.array("q", range(rank, rank + 1000)), sums)
    expect("a sum", sums.tolist(), [2 * i + 1 for i in range(1000)])


def one_sided():
    size = 100_000
    memory = bytearray(size)
    window = MPI.Win.Create(memory, comm=world)
    origin = pattern(size // 2, rank)  # must not change before the fence, because MPI reads it until then
    window.Fence()
    window.Put(origin, peer)
    window.Fence()
    expect("what was put", memory[:size // 2], pattern(size // 2, peer))
    fetched = bytearray(size // 2)
    window.Fence()
    window.Get(fetched, peer)
    window.Fence()
    expect("what was got", fetched, pattern(size // 2, rank))
    window.Free()

    counter = array.array("q", [100 * rank])
    window = MPI.Win.Create(counter, disp_unit=8, comm=world)
    old, one = array.array("q", [0]), array.array("q", [1])
    window.Lock(0)
    window.Fetch_and_op(one, old, 0, op=MPI.SUM)
    window.Unlock(0)
    others = world.allgather(old[0])
    expect("what was fetched", sorted(others), [0, 1])
    if rank == 0:
        new, compare = array.array("q", [7]), array.array("q", [100])
        window.Lock(1)
        window.Compare_and_swap(new, compare, old, 1)
        window.Unlock(1)
        expect("what was compared", old[0], 100)
    world.Barrier()
    expect("a counter", counter[0], (2, 7)[rank])
    window.Free()


messages()
many_at_once()
collectives()
one_sided()
world.Barrier()
print(f"rank {rank}: all is well", flush=True)
