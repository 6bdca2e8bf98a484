"""Seeds of ring_fuzzer: links as two honest processes use them, and each way to break the rules."""

import struct

INDEX, NEAR, WORD, SEND, RECEIVE, DELIVER, TRANSMIT, SLEEP = range(8)
FROM_HONEST, TO_HONEST = 0, 0x80  # whose ring is written to
HEAD, TAIL = 0, 0x40  # which of its indices
TRAIN = 0x40  # instead of a frame
WIRE, PROCESS = b"\0", b"\1"  # how frames cross: an input begins so
WHOLE, WITHOUT_ICRC, TRAIN_RECORD = 0, 1 << 24, 2 << 24  # notes


def step(action, argument=b"", flags=0):
    return bytes([action | flags]) + argument


def index(value, flags):
    return step(INDEX, struct.pack("<Q", value), flags)


def near(distance, flags):
    return step(NEAR, struct.pack("<h", distance), flags)


def word(at, value, flags=TO_HONEST):
    return step(WORD, struct.pack("<II", value, at), flags)


def send(size, note=WHOLE):
    return step(SEND, struct.pack("<II", size, note))


def send_train(packets, first=True, note_errors=0, errors=()):
    """`errors`: (at, value) pairs, at most three, of bytes of the head that are changed by an exclusive or."""
    script = bytes([0 if first else 1, packets - 2]) + struct.pack("<IB", note_errors, len(errors))
    return step(SEND, script + b"".join(bytes(pair) for pair in errors), TRAIN)


def transmit_train(packets, first=True):
    return step(TRANSMIT, bytes([0 if first else 1, packets - 2]), TRAIN)


def receive(most=255):
    return step(RECEIVE, bytes([most]))


def deliver(frames=255):
    return step(DELIVER, bytes([frames]))


def transmit(size):
    return step(TRANSMIT, struct.pack("<H", size))


PING_PONG = b"".join(transmit(size) + deliver() + send(size) + receive() + deliver() + step(SLEEP)
                     for size in (46, 64, 1000, 4096 + 58, 9000))
TRAINS = b"".join(transmit_train(packets) + deliver() + send_train(packets, packets % 2 == 0) + receive() + deliver() + step(SLEEP)
                  for packets in (2, 3, 16, 63))
BETWEEN_PROCESSES = {
    "ping_pong_of_processes": PING_PONG,
    "trains_of_packets": TRAINS,
    "longest_train": transmit_train(80) + deliver(),
    "trains_that_lie": b"".join(send_train(8, note_errors=error) + receive() + deliver()
                                for error in (1, 0x400, 0xc00, 0x1_0000, 0x8_0000, 0x100_0000, 0x400_0000)),
    "trains_of_other_opcodes": b"".join(send_train(8, errors=[(42, error)]) + receive() + deliver() for error in range(1, 32)),
    "trains_of_other_headers": b"".join(send_train(4, errors=[(at, 0x55)]) + receive() + deliver() for at in range(12, 58)),
    "crcs_left_out": b"".join(send(size, WITHOUT_ICRC) + receive() + deliver() for size in (1, 13, 60, 300, 9000)),
    "train_of_nothing": send(4000, TRAIN_RECORD) + receive() + send(100, TRAIN_RECORD | 4 << 16 | 4096) + receive(),
}
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


def inputs():
    for form, seeds in ((WIRE, SEEDS), (PROCESS, BETWEEN_PROCESSES)):
        for name, content in seeds.items():
            yield "ring", name, form + content
