"""Seeds of trunk_fuzzer: a hub with the key that keeps the rules, and each way not to."""

import struct

RAW, SESSION, REPEAT, TIME, BEGIN, WITH_KEY, SEND, SKIP = range(8)
HELLO, CHALLENGE, WELCOME, REFUSE, ACK, MEMBERS, FRAMES, PIECE, PROBE, PROBED, GOODBYE = range(1, 12)
HERE, OWN = bytes.fromhex("025fcb000301"), bytes.fromhex("025fcb001401")


def sized(body):
    return struct.pack("<H", len(body)) + body


def session(kind, body=b"", ack=0):
    return bytes([SESSION, kind]) + struct.pack("<H", ack) + sized(body)


def with_key(kind, body, sender=8):
    return bytes([WITH_KEY, kind, sender]) + sized(body)


def begin(other=False):
    return bytes([BEGIN, 0 if other else 1])


def wait(milliseconds):
    return bytes([TIME]) + struct.pack("<H", milliseconds)


def members(*blocks):
    return session(MEMBERS, bytes([len(blocks)]) + b"".join(bytes([block]) + b"\x02" + bytes(31) for block in blocks))


def frame(to=HERE, of=OWN, size=50, kind=b"\x88\xb5"):
    return to + of + kind + bytes(size)


def frames(*all_of_them):
    return session(FRAMES, b"".join(struct.pack(">H", len(one)) + one for one in all_of_them))


def piece(number, total, offset, body):
    return session(PIECE, struct.pack(">III", number, total, offset) + body)


JOINED = begin() + members(20)
SEEDS = {
    "joined": JOINED + frames(frame(), frame()) + wait(1000) + session(GOODBYE),
    "joined_again": JOINED + begin() + members(20) + begin(other=True) + members(20) + frames(frame()),
    "silent": JOINED + wait(2999) + wait(2999),
    "pieces": JOINED + piece(1, 2000, 1000, frame(size=986)) + piece(1, 2000, 0, frame(size=986)) + b"".join(
        piece(number, 16384, 0, bytes(1000)) for number in range(40)),
    "pieces_that_lie": JOINED + piece(1, 100, 90, bytes(20)) + piece(1, 0, 0, bytes(20)) + piece(1, 2**32 - 1, 0, bytes(20)) +
                       piece(1, 100, 0, bytes(60)) + piece(1, 100, 0, bytes(60)),
    "names_of_others": JOINED + frames(frame(of=HERE), frame(of=bytes.fromhex("025fcb000905")), frame(to=OWN), frame(kind=b"\x88\xb6")),
    "multicast": JOINED + frames(frame(to=b"\xff" * 6), frame(of=b"\xff" * 6), frame(of=bytes(6))),
    "frames_that_lie": JOINED + session(FRAMES, b"\xff\xff\0") + session(FRAMES, b"\0\0") + session(FRAMES, b"\0\x03abc\0"),
    "the_same_numbers": begin() + members(3) + wait(500),
    "many_blocks": begin() + members(*range(10, 42)) + session(MEMBERS, b"\xff" + bytes(2000)) + session(MEMBERS),
    "probes": JOINED + session(PROBE, bytes(1000)) + session(PROBED, b"\xff\xff") + session(PROBED, b"\x05\xac") + session(PROBED),
    "acknowledges_all": JOINED + session(ACK, ack=65535) + session(ACK, ack=1),
    "skips": JOINED + bytes([SKIP]) + struct.pack("<I", 2**32 - 1) + session(ACK) + frames(frame()),
    "replays": JOINED + b"".join(bytes([REPEAT, at, 0, 1]) for at in range(24)),
    "changed": JOINED + b"".join(bytes([REPEAT, at, 1]) + struct.pack("<H", 5 * at) + b"\1" for at in range(24)),
    "elsewhere": JOINED + b"".join(bytes([REPEAT, at, 0, 0, 77]) for at in range(24)),
    "hellos": b"".join(with_key(HELLO, bytes([number]) + bytes(127), number) for number in range(80)),
    "answers": b"".join(with_key(kind, bytes(size), 2) for kind in (CHALLENGE, WELCOME, REFUSE) for size in (17, 32, 64)),
    "short": b"".join(bytes([RAW, 9]) + sized(b"SHTR\x01" + bytes([kind]) + bytes(size)) for kind in range(14) for size in (0, 50, 178)),
    "station": JOINED + b"".join(bytes([SEND]) + to[::-1] + b"\0\0" + struct.pack("<H", size)
                                 for to in (OWN, HERE, b"\xff" * 6) for size in (10, 9000, 19000)),
}


def inputs():
    for name, content in SEEDS.items():
        yield "trunk", name, content
