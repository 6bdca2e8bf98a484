"""Seeds of hub_fuzzer: processes that keep the rules, and each way not to."""

import struct

JOIN, TURN, HONEST_SENDS, HONEST_WORKS, HONEST_TALKS, HONEST_TRAIN = 0, 2, 3, 4, 5, 6
GO, INDEX, NEAR, BYTES, RECORD, RING_BELL, FILL_WAKE, TALK, TRUNCATE, SHUT = range(8, 18)
NOTE, MUCH, TAKE, LINK_INDEX, LINK_NEAR, LINK_BYTES, LINK_RECORD, LINK_WAKE, LINK_TRUNCATE = 18, 21, 23, 25, 26, 27, 28, 30, 31
IN_RING, TAIL, OTHER = 0x80, 0x40, 0x20
WILLING, INTRODUCED, READY, SWITCHED, GONE = range(1, 6)


def step(action, *parts, flags=0, client=0):
    return bytes([action | flags, client]) + b"".join(parts)


def turns(count=4):
    return bytes([TURN] * count)


def record(content, client=0):
    return step(RECORD, bytes([len(content) - 1]), content, client=client)


BROADCAST = b"\xff" * 6 + b"\x02\x5f\xcb\x00\x00\x03" + b"\x88\xb5" + b"x" * 46
BELL = step(RING_BELL)
WORK = bytes([HONEST_WORKS, HONEST_WORKS | OTHER])


def note(kind, to=0, client=0, name_of=None):
    """A note to an honest process (0, 1) or another (2, ...), in a third one's name."""
    return step(NOTE, bytes([kind, to]) + (b"" if name_of is None else bytes([name_of])),
                flags=0 if name_of is None else 0x40, client=client)


def much(to=0, client=0):
    return step(MUCH, bytes([to, 31]), client=client) + turns(2) + WORK


# The process that joins asks for links, gets one with an honest process, and reads what arrived.
LINK = bytes([JOIN]) + turns(2) + WORK + turns(2) + note(WILLING, 7) + much() + step(TAKE) + turns(2)
READY_LINK = LINK + note(READY) + BELL + turns() + WORK + note(SWITCHED) + BELL + turns() + WORK


def on_link(action, *parts, flags=0, link=0):
    return step(action, bytes([link]), *parts, flags=flags)

SEEDS = {
    "a_frame_for_all": bytes([JOIN]) + record(BROADCAST) + BELL + turns(),
    "three_who_talk_and_go": bytes([JOIN] * 3) + record(BROADCAST, 1) + step(RING_BELL, client=1) + turns()
    + step(GO, client=2) + turns() + step(GO) + turns(),
    "one_says_something": bytes([JOIN]) + step(TALK, b"\x05hello") + turns(),
    "an_index_far_away": bytes([JOIN]) + step(INDEX, struct.pack("<Q", 1 << 40)) + BELL + turns(),
    "an_index_that_goes_back": bytes([JOIN]) + record(BROADCAST) + BELL + turns()
    + step(NEAR, struct.pack("<H", 0)) + BELL + turns(),
    "the_other_ring_is_said_to_be_read": bytes([JOIN, HONEST_SENDS | 0x40, TURN])
    + step(INDEX, struct.pack("<Q", 1 << 30), flags=IN_RING | TAIL) + BELL + turns(),
    "a_record_of_no_length": bytes([JOIN]) + step(NEAR, struct.pack("<H", 2)) + BELL + turns(),
    "a_wake_that_is_full_and_waits": bytes([JOIN]) + step(FILL_WAKE, flags=0x40)
    + bytes([HONEST_SENDS | 0x40]) + turns(),
    "a_bell_without_end": bytes([JOIN]) + step(RING_BELL, struct.pack("<Q", 2**64 - 2), flags=0x40) + turns(),
    "a_ring_that_is_cut_off": bytes([JOIN]) + step(TRUNCATE, struct.pack("<I", 0)) + BELL + turns(),
    "a_socket_that_is_shut": bytes([JOIN]) + record(BROADCAST) + step(SHUT, flags=0x40) + turns(),
    "an_honest_pair_with_a_link": (bytes([HONEST_TALKS, 31] + [1] * 31) + WORK + turns()) * 2
    + bytes([HONEST_TALKS, 31] + [1] * 31) + turns() + WORK + turns() + WORK + bytes([HONEST_TRAIN, 1, 60]) + WORK,
    "a_link_with_an_honest_one": READY_LINK + on_link(LINK_RECORD, b"\0" * 4, bytes([59]), BROADCAST) + WORK
    + bytes([HONEST_TALKS, 31] + [2] * 31) + WORK,
    "ready_before_there_is_a_link": bytes([JOIN]) + note(READY) + note(SWITCHED) + BELL + turns() + WORK,
    "switched_before_ready": LINK + note(SWITCHED) + note(READY) + note(READY) + BELL + turns() + WORK,
    "a_note_in_anothers_name": READY_LINK + note(GONE, 0, 0, 1) + note(READY, 0, 0, 1) + BELL + turns() + WORK,
    "it_says_that_it_has_gone": READY_LINK + note(GONE) + note(INTRODUCED) + BELL + turns() + WORK,
    "a_link_whose_index_is_far_away": READY_LINK + on_link(LINK_INDEX, struct.pack("<Q", 1 << 40)) + WORK,
    "a_link_that_is_said_to_be_read": READY_LINK
    + on_link(LINK_INDEX, struct.pack("<Q", 1 << 40), flags=IN_RING | TAIL) + bytes([HONEST_TALKS, 31] + [2] * 31) + WORK,
    "a_train_of_nothing": READY_LINK + on_link(LINK_RECORD, b"\0\4\xff\2", bytes([59]), BROADCAST) + WORK,
    "a_link_that_is_cut_off": READY_LINK + on_link(LINK_TRUNCATE, struct.pack("<I", 0)) + WORK,
    "an_honest_wake_that_is_full_and_waits": READY_LINK + on_link(LINK_WAKE, flags=0x40)
    + bytes([HONEST_TALKS, 31] + [2] * 31) + turns() + WORK,
    "it_goes_with_a_link": READY_LINK + on_link(LINK_RECORD, b"\0" * 4, bytes([59]), BROADCAST) + step(GO) + turns() + WORK,
    "it_goes_while_a_link_is_made": LINK + step(GO) + turns() + WORK,
    "two_hostile_with_a_link": bytes([JOIN, JOIN]) + note(WILLING, 7) + note(WILLING, 7, 1) + much(3) + step(TAKE)
    + step(TAKE, client=1) + note(READY, 3) + BELL + turns(),
    "descriptors_that_nobody_wants": bytes([JOIN]) + step(TALK, b"\x05hello", flags=0x40) + turns(),
    "honest_ones_alone": bytes([HONEST_SENDS | 0x40, TURN, TURN, HONEST_WORKS | OTHER]),
}


def inputs():
    for name, data in SEEDS.items():
        yield "hub", name, data
