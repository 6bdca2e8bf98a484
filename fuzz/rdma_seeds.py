"""Seeds of rdma_fuzzer: whole exchanges of two honest ends, and known errors."""

import struct

ROCE_V2, ROCE_V1, GLOBAL, LOCAL = range(4)
RC0, RC_SRQ, RC2, UC, UD, RC_RTR, XRC_INI, XRC_TGT, DCI = range(9)
RAW, FRAME, POST_SEND, POST_RECEIVE, MODIFY, KEY, TIME = 0, 1, 5, 6, 7, 8, 9
RESET, INIT, RTR, RTS, SQD, SQE, ERR = range(7)
# Opcodes of RC. UC adds 0x20, XRC 0xa0, DC 0xc0.
(SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_LAST_IMM, SEND_ONLY, SEND_ONLY_IMM, WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST,
 WRITE_LAST_IMM, WRITE_ONLY, WRITE_ONLY_IMM, READ, READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY, ACK, ATOMIC_ACK, SWAP,
 ADD) = range(21)
SIZE = {0: 0, 1: 1, 8: 2, 255: 3, 256: 4, 257: 5, 600: 6, 64: 7}
ACKNOWLEDGE, RNR, NAK = 0, 1, 3


def step(qp, action, *rest):
    return struct.pack("<HB", qp, action) + b"".join(rest)


def pieces(*sizes, key=1, at=0):
    return bytes([len(sizes)]) + b"".join(struct.pack("<BHH", key, at + 700 * i, size) for i, size in enumerate(sizes))


def post(qp, opcode, *sizes, fence=0, inline=1, mixed=1):
    return step(qp, POST_SEND, bytes([opcode]), pieces(*sizes), bytes([fence, inline, mixed, 0, 0]))


def receive(qp, *sizes):
    return step(qp, POST_RECEIVE, pieces(*sizes))


def frame(qp, opcode, size=0, psn=0, ack=1, key=1, where=0, length=0, aeth=(ACKNOWLEDGE, 31)):
    multicast = b"\0" if qp == UD else b""
    return step(qp, FRAME, bytes([opcode, 1]), multicast,
                struct.pack("<bBHBHBBBB", psn * 32, ack, key, where, length, 1, aeth[0], aeth[1], SIZE[size]))


def dc(opcode, size=0, how=0, peer=0, session=1, first=0, **more):
    """A request to the DC target; how: its PSN, 56 more with a wrong key, 128 more if it may not connect."""
    return frame(DCI, 0xc0 + opcode, size, **more) + bytes([how, peer, session, first])


def modify(qp, state):
    return step(qp, MODIFY, bytes([state, 1]))


def wait(us):
    return step(0, TIME, struct.pack("<H", us))


def exchange(qp, base=0):
    """Each operation once, received and sent."""
    return (receive(qp, 600, 100) + frame(qp, base + SEND_ONLY, 256) + receive(qp, 600)
            + frame(qp, base + SEND_FIRST, 256) + frame(qp, base + SEND_MIDDLE, 256) + frame(qp, base + SEND_LAST, 64)
            + frame(qp, base + WRITE_FIRST, 256, length=512) + frame(qp, base + WRITE_LAST, 256)
            + receive(qp) + frame(qp, base + WRITE_ONLY_IMM, 64, length=64)
            + b"".join(post(qp, opcode, 100, 200) for opcode in range(10)))


ACKED = b"".join(frame(RC0, ACK) for _ in range(4))
SEEDS = {
    "rc": exchange(RC0) + frame(RC0, READ, length=600) + frame(RC0, ADD, where=2) + frame(RC0, SWAP, where=2)
    + post(RC0, 0, 600) + ACKED + post(RC0, 4, 600) + frame(RC0, READ_FIRST, 256) + frame(RC0, READ_MIDDLE, 256)
    + frame(RC0, READ_LAST, 64) + post(RC0, 5, 8) + frame(RC0, ATOMIC_ACK, 0) + ACKED,
    "srq": exchange(RC_SRQ) + receive(RC_SRQ, 64) + frame(RC_SRQ, SEND_ONLY, 64),
    "uc": exchange(UC, 0x20),
    "ud": receive(UD, 600) + frame(UD, 0x64, 256) + receive(UD, 40) + frame(UD, 0x64, 64) + post(UD, 0, 100) + post(UD, 0, 300),
    "xrc": exchange(XRC_TGT, 0xa0) + post(XRC_INI, 0, 600) + frame(XRC_INI, 0xa0 + ACK) + frame(XRC_TGT, 0xa0 + READ, length=64),
    "dc": receive(RC_SRQ, 600) + dc(SEND_ONLY, 256) + dc(WRITE_ONLY, 64, 1, length=64) + dc(READ, 0, 2, length=64)
    + dc(ADD, 0, 3, where=2) + dc(ADD, 0, 3, where=2) + post(DCI, 0, 600) + frame(DCI, 0xc0 + ACK) + post(DCI, 4, 64)
    + dc(0x1f) + dc(SEND_FIRST, 256, session=2, peer=1) + receive(RC_SRQ, 600) + dc(SEND_FIRST, 256, session=3)
    + modify(DCI, SQD) + dc(WRITE_ONLY, 64, length=64) + dc(WRITE_ONLY, 64, 56, length=64) + dc(WRITE_ONLY, 64, 128, 1),
    "retries": post(RC0, 0, 600) + wait(60) + wait(60) + wait(60) + wait(1000) + modify(RC0, RESET) + post(RC0, 0, 100) + ACKED,
    "rnr": frame(RC0, SEND_ONLY, 64) + receive(RC0, 100) + frame(RC0, SEND_ONLY, 64) + post(RC0, 0, 100)
    + frame(RC0, ACK, aeth=(RNR, 1)) + wait(100) + frame(RC0, ACK),
    "naks": b"".join(post(RC0, 0, 600) + frame(RC0, ACK, aeth=(NAK, code)) + modify(RC0, RESET) for code in range(5)),
    "out_of_order": frame(RC0, WRITE_ONLY, 64, psn=2, length=64) + frame(RC0, WRITE_ONLY, 64, psn=-1, length=64)
    + frame(RC0, READ, length=256) + frame(RC0, READ, psn=-1, length=256) + frame(RC0, SEND_MIDDLE, 256),
    "keys": step(0, KEY, b"\0") + frame(RC0, WRITE_ONLY, 64, length=64) + modify(RC0, RESET) + step(0, KEY, b"\1")
    + frame(RC0, WRITE_ONLY, 256, key=0, length=256) + step(0, KEY, b"\2") + frame(RC0, READ, key=0, length=64)
    + step(0, KEY, b"\3") + post(RC0, 6) + post(RC0, 8, 64),
    "states": b"".join(receive(RC2, 64) + post(RC2, 0, 64) + modify(RC2, state) + frame(RC2, SEND_ONLY, 64)
                       for state in (SQD, RTS, SQE, RTS, ERR, RESET, INIT, RTR, RTS)),
    "drained": post(RC0, 0, 600) + modify(RC0, SQD) + post(RC0, 0, 64) + ACKED + modify(RC0, RTS) + ACKED,
    "fence_and_inline": post(RC0, 4, 64) + post(RC0, 0, 64, fence=1) + post(RC0, 0, 64, inline=0) + post(RC0, 0, 64, mixed=0)
    + frame(RC0, READ_ONLY, 64) + ACKED,
    "not_yet_ready": receive(RC_RTR, 64) + frame(RC_RTR, SEND_ONLY, 64) + post(RC_RTR, 0, 64) + modify(RC_RTR, RTS),
    "raw": step(0, RAW, struct.pack("<H", 60), bytes(range(60))),
}


def inputs():
    for name, script in SEEDS.items():
        yield "rdma", name, bytes([ROCE_V2]) + script
    for name, link in (("v1", ROCE_V1), ("global", GLOBAL), ("local", LOCAL)):
        yield "rdma", f"rc_{name}", bytes([link]) + SEEDS["rc"]
        yield "rdma", f"ud_{name}", bytes([link]) + SEEDS["ud"]
