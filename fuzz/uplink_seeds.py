"""Seeds of uplink_fuzzer: a hub that keeps the rules, and each way not to."""

import struct

LINK, BAD, NOTE, CARRY, KEEP, REPLAY, SEND, TRAIN, TURN = 0, 1, 2, 3, 5, 6, 7, 8, 9
IDLE, ASK, LINK_POKE, POKE, TRUNCATE, FILL, SOCKET, GO = 11, 12, 13, 15, 16, 17, 18, 19
SECOND, FLAG = 0x20, 0x80
WILLING, INTRODUCED, READY, SWITCHED, GONE = range(1, 6)


def turns(count=1):
    return bytes([TURN, 255, TURN | SECOND, 255]) * count


def carry():
    return bytes([CARRY, 31, CARRY | SECOND, 31])


def rounds(count=2):
    return (turns() + carry()) * count + turns()


def note(kind, about=2, member=0):
    return bytes([NOTE | member, kind, about])


def send(count=1, member=0):
    return bytes([SEND | member, 1 if member else 2]) * count


def introduced(*files, about=2, shape=0, member=0):
    """An introduction with these files and their parameters."""
    return bytes([BAD | member, about, shape]) + b"".join(files)


GOOD, WAKE = b"\0", b"\x0b"
LINKED = bytes([LINK]) + rounds()
UNFIT = {
    "unsealed": b"\1", "may_grow": b"\2", "may_shrink": b"\3", "sealed_against_writing": b"\4",
    "of_some_size": b"\5" + struct.pack("<I", 200000), "small": b"\6\x0c", "too_large_to_map": b"\6\x2b",
    "of_a_size_that_overflows": b"\7\x3e", "read_only": b"\x08", "an_eventfd": b"\x0c\0", "a_pipe": b"\x0d\0",
    "a_socket": b"\x0e", "a_device": b"\x0f",
}

SEEDS = {
    "a_link": LINKED + send(9) + bytes([TRAIN, 2, 60, TRAIN | SECOND, 1, 60]) + rounds(),
    "no_link": send(9) + rounds(),
    "a_link_told_twice": LINKED + bytes([LINK]) + rounds() + send(9) + rounds(),
    "a_link_told_twice_at_once": bytes([LINK, LINK]) + rounds() + send(9) + rounds(),
    "a_link_to_oneself": bytes([LINK | FLAG]) + rounds() + bytes([SEND, 1] * 9) + rounds(),
    "ready_before_the_link": note(READY) + note(SWITCHED) + LINKED,
    "gone_before_the_link": note(GONE) + LINKED + send(),
    "gone_and_a_new_one_at_once": LINKED + send(9) + note(GONE) + bytes([LINK]) + rounds() + send(9) + rounds(),
    "gone_while_frames_are_queued": LINKED + bytes([TRAIN | SECOND, 1, 60, TURN | SECOND, 255, IDLE, 20]) + note(GONE)
    + bytes([IDLE, 255]) + turns(),
    "notes_in_any_order": LINKED + b"".join(note(kind, about) for kind in (5, 4, 3, 2, 1, 0, 6) for about in range(4)) + turns(),
    "a_note_again": bytes([LINK]) + turns() + bytes([KEEP, KEEP, KEEP]) + b"".join(
        bytes([REPLAY | SECOND, which]) for which in (0, 1, 2, 2, 1, 0)) + turns(2) + send(9) + rounds(),
    "one_goes_in_the_middle": bytes([LINK]) + turns() + bytes([GO | SECOND]) + carry() + rounds() + send(9) + rounds(),
    "one_goes_with_a_link": LINKED + send(9, SECOND) + bytes([GO | SECOND]) + note(GONE) + turns() + send(9) + rounds(),
    "indexes_while_frames_flow": LINKED + send(9) + bytes([LINK_POKE | FLAG, 0, 0x80]) + struct.pack("<Q", 1 << 40) + rounds()
    + bytes([LINK_POKE | FLAG, 1, 0xC0]) + struct.pack("<Q", 1 << 40) + send(9) + rounds(),
    "bytes_while_frames_flow": LINKED + send(9) + bytes([LINK_POKE, 0, 8, *range(8), 0, 0]) + rounds(),
    "a_ring_of_the_hub_scribbled_on": bytes([POKE | 0x40 | FLAG, 0x80]) + struct.pack("<Q", 1 << 40) + LINKED,
    "a_link_that_is_cut_off": LINKED + bytes([TRUNCATE, 0, 0, 0, 0, 0]) + send(9) + rounds(),
    "a_wake_that_is_full_and_waits": LINKED + bytes([ASK | SECOND, 0, 0, 0, 0, FILL | SECOND | FLAG]) + send(9) + rounds(),
    "the_hub_talks": bytes([SOCKET, 5]) + b"hello" + LINKED,
    "the_hub_hangs_up": LINKED + bytes([SOCKET | FLAG]) + note(INTRODUCED) + rounds(),
    "too_few_descriptors": introduced(GOOD, GOOD, shape=0x42) + turns(),
    "no_descriptors": introduced(shape=0x40) + turns(),
    "too_many_descriptors": introduced(GOOD, GOOD, WAKE, WAKE, shape=0x44) + turns(),
    "a_message_of_another_size": introduced(b"\7", GOOD, GOOD, WAKE, shape=0x80) + turns(),
    "its_own_ring_as_a_link": introduced(b"\x09\0", b"\x09\1", WAKE) + rounds() + note(READY) + rounds() + send(9) + rounds(),
    "one_ring_for_both_ways": introduced(GOOD, b"\x0a\0", WAKE) + introduced(b"\x0a\0", b"\x0a\0", WAKE) + turns()
    + note(READY) + rounds() + send(9) + rounds(2),
    **{f"a_ring_{name}": introduced(file, GOOD, WAKE) + introduced(GOOD, file, WAKE) + turns() for name, file in UNFIT.items()},
    **{f"a_wake_{name}": introduced(GOOD, GOOD, file) + turns() + note(READY) + turns()
       + bytes([LINK_POKE | FLAG, 0, 0xC0]) + bytes(8) + send(9) + rounds() for name, file in UNFIT.items()},
}


def inputs():
    for name, data in SEEDS.items():
        yield "uplink", name, data
