#!/usr/bin/env python3
"""Writes the seeds of ring_fuzzer to fuzz/corpus/ring: links as two honest processes use them, and each way to lie."""

import struct
from pathlib import Path

INDEX, NEAR, WORD, SEND, RECEIVE, DELIVER, TRANSMIT, SLEEP = range(8)
FROM_HONEST, TO_HONEST = 0, 0x80  # whose ring is written to
HEAD, TAIL = 0, 0x40  # which of its indices


def step(action, argument=b"", flags=0):
    return bytes([action | flags]) + argument


def index(value, flags):
    return step(INDEX, struct.pack("<Q", value), flags)


def near(distance, flags):
    return step(NEAR, struct.pack("<h", distance), flags)


def word(at, value, flags=TO_HONEST):
    return step(WORD, struct.pack("<IH", value, at), flags)


def send(size):
    return step(SEND, struct.pack("<H", size))


def receive(most=255):
    return step(RECEIVE, bytes([most]))


def deliver(frames=255):
    return step(DELIVER, bytes([frames]))


def transmit(size):
    return step(TRANSMIT, struct.pack("<H", size))


PING_PONG = b"".join(transmit(size) + deliver() + send(size) + receive() + deliver() + step(SLEEP)
                     for size in (46, 64, 1000, 4096 + 58, 9000))
SEEDS = {
    "ping_pong": PING_PONG,
    "wraps": b"".join(send(3000) + receive() + deliver() for _ in range(60)),
    "full_towards_us": b"".join(send(9000) for _ in range(12)) + receive(1) + deliver(1) + receive() + deliver(),
    "full_from_us": b"".join(transmit(9000) for _ in range(12)) + deliver() + transmit(100) + deliver(),
    "trains": b"".join(send(1082) for _ in range(30)) + receive(16) + deliver(16) + receive(16) + deliver() + step(SLEEP),
    "sleeps": step(SLEEP) + step(SLEEP) + send(60) + step(SLEEP) + receive() + step(SLEEP),
    "shortest_and_longest": send(1) + send(13) + send(14) + send(0xffff) + receive() + deliver(),
    "size_beyond_the_ring": send(60) + word(0, 0xffffffff) + receive() + step(SLEEP),
    "size_of_zero": send(60) + word(0, 0) + receive() + deliver(),
    "size_beyond_what_is_there": send(60) + word(0, 2000) + receive() + deliver(),
    "pad_that_is_no_pad": b"".join(send(3000) for _ in range(4)) + word(3008, 0x80000000) + receive() + deliver(),
    "index_runs_ahead": send(60) + near(8, TO_HONEST | HEAD) + receive() + send(60) + receive(),
    "index_runs_back": send(60) + receive() + near(-72, TO_HONEST | HEAD) + receive() + step(SLEEP),
    "index_unaligned": send(60) + near(3, TO_HONEST | HEAD) + receive() + deliver(),
    "index_far_away": index(2**63, TO_HONEST | HEAD) + receive() + index(2**64 - 1, TO_HONEST | HEAD) + receive(),
    "our_room_lies": transmit(100) + deliver() + index(2**64 - 8, FROM_HONEST | TAIL) + transmit(100) + deliver(),
    "our_room_runs_ahead": transmit(100) + deliver() + near(30000, FROM_HONEST | TAIL) + transmit(100) + deliver(),
    "our_index_is_overwritten": transmit(100) + deliver() + index(0, FROM_HONEST | HEAD) + transmit(100) + deliver(),
    "changes_under_the_reader": send(200) + receive(1) + word(8, 0x41414141) + word(0, 100) + deliver() + receive(),
    "after_the_end": send(60) + word(0, 0xffffffff) + receive() + PING_PONG,
}


def main():
    folder = Path(__file__).resolve().parent / "corpus" / "ring"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in SEEDS.items():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
