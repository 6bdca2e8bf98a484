#!/usr/bin/env python3
"""Writes the seeds of hub_fuzzer to fuzz/corpus/hub: processes that keep the rules, and each way not to."""

import struct
from pathlib import Path

JOIN, TURN, HONEST_SENDS, HONEST_WORKS, GO = 0, 2, 3, 4, 5
INDEX, NEAR, BYTES, RECORD, RING_BELL, FILL_WAKE, TALK, TRUNCATE, SHUT, BLOCKING = range(6, 16)
IN_RING, TAIL = 0x80, 0x40


def step(action, *parts, flags=0, client=0):
    return bytes([action | flags, client]) + b"".join(parts)


def turns(count=4):
    return bytes([TURN] * count)


def record(content, client=0):
    return step(RECORD, bytes([len(content) - 1]), content, client=client)


BROADCAST = b"\xff" * 6 + b"\x02\x5f\xcb\x00\x00\x03" + b"\x88\xb5" + b"x" * 46
BELL = step(RING_BELL)

SEEDS = {
    "a_frame_for_all": bytes([JOIN]) + record(BROADCAST) + BELL + turns(),
    "three_who_talk_and_go": bytes([JOIN] * 3) + record(BROADCAST, 1) + step(RING_BELL, client=1) + turns()
    + step(GO, client=2) + turns() + step(GO) + turns(),
    "one_says_something": bytes([JOIN]) + step(TALK, b"\x05hello") + turns(),
    "an_index_far_away": bytes([JOIN]) + step(INDEX, struct.pack("<Q", 1 << 40)) + BELL + turns(),
    "an_index_that_goes_back": bytes([JOIN]) + record(BROADCAST) + BELL + turns()
    + step(NEAR, struct.pack("<H", 0)) + BELL + turns(),
    "the_other_ring_is_said_to_be_read": bytes([JOIN, HONEST_SENDS | 0x20, TURN])
    + step(INDEX, struct.pack("<Q", 1 << 30), flags=IN_RING | TAIL) + BELL + turns(),
    "a_record_of_no_length": bytes([JOIN]) + step(NEAR, struct.pack("<H", 2)) + BELL + turns(),
    "a_wake_that_is_full_and_waits": bytes([JOIN]) + step(FILL_WAKE) + step(BLOCKING, flags=0x40)
    + bytes([HONEST_SENDS | 0x20]) + turns(),
    "a_bell_without_end": bytes([JOIN]) + step(RING_BELL, struct.pack("<Q", 2**64 - 2), flags=0x40) + turns(),
    "a_ring_that_is_cut_off": bytes([JOIN]) + step(TRUNCATE, struct.pack("<I", 0)) + BELL + turns(),
    "a_socket_that_is_shut": bytes([JOIN]) + record(BROADCAST) + step(SHUT, flags=0x40) + turns(),
    "honest_ones_alone": bytes([HONEST_SENDS | 0x20, TURN, TURN, HONEST_WORKS | 0x10]),
}

corpus = Path(__file__).parent / "corpus/hub"
corpus.mkdir(parents=True, exist_ok=True)
for name, seed in SEEDS.items():
    (corpus / name).write_bytes(seed)
