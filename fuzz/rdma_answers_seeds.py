"""Seeds of rdma_answers_fuzzer: answers that come late, and known errors."""

import struct

HONEST, LIAR, TRAINS = 0, 1, 2
WRITE, SEND, READ, ADD, NOP, LOCAL = 0, 1, 4, 5, 6, 7
SIGNALED, FENCED, INLINE = 1, 2, 4
RUN, ALL, DRAIN = b"\x03", b"\x0b", b"\x0f\x01"
ERR, RTS, RESET = b"\x0f\x00", b"\x0f\x02", b"\x0f\x03"
ACK, RNR, NAK, FATAL, DATA = 0, 2, 4, 5 + 8 * 3 + 32 * 2, 6
EXPECTED = 48


def post(opcode, length, how=SIGNALED):
    return struct.pack("<BBBH", 0, opcode, how, length)


def carry(arrives=0xFF):
    return bytes([6, arrives])


def wait(us):
    return struct.pack("<BH", 12, us)


def answer(kind, ahead=0):
    return bytes([8, kind, EXPECTED + ahead])


# Everything has arrived, was sent again, and waits in the fabric.
AGAIN = RUN + carry() + wait(150) + RUN
SEEDS = {
    "all": post(WRITE, 1000) + post(SEND, 100, SIGNALED | 0xC0) + post(READ, 700) + post(ADD, 8) + post(NOP, 0)
    + post(LOCAL, 0) + post(SEND, 1400, 0) + RUN + carry() + ALL + RUN,
    "late_read_response": post(WRITE, 100) + post(READ, 700) + AGAIN + answer(DATA, -3) + answer(DATA, -2) + RUN,
    "late_atomic_response": post(WRITE, 100) + post(ADD, 8) + AGAIN + answer(DATA, -1) + RUN,
    "late_gap": post(WRITE, 1000) + post(SEND, 10) + AGAIN + answer(NAK, -1) + RUN + RUN + carry(),
    "late_gap_inline": post(WRITE, 900, SIGNALED | INLINE) + post(SEND, 10) + AGAIN + answer(NAK, -1) + RUN + RUN + carry(),
    "late_refusal": post(WRITE, 1000) + post(SEND, 10) + post(NOP, 0) + AGAIN + answer(FATAL, -1) + RUN + carry() + RUN + RESET,
    "late_error": post(WRITE, 1000) + post(READ, 10) + post(SEND, 10) + AGAIN + answer(DATA, -2) + ERR + RUN + carry() + RUN + ERR,
    "rnr": post(SEND, 1000) + RUN + carry(0xFE) + answer(RNR + 8) + answer(NAK) * 9 + wait(100) + RUN + carry(),
    "retries": post(SEND, 1000) + (RUN + carry(0) + wait(150)) * 6,
    "drained": post(SEND, 1000) + RUN + DRAIN + post(SEND, 10) + carry() + ALL + RUN + RTS,
    "key_goes": post(SEND, 1000) + RUN + carry(0xFD) + b"\x0e\x01" + answer(NAK) + RUN + carry(),
}


def inputs():
    for name, script in SEEDS.items():
        yield "rdma_answers", name, bytes([HONEST]) + script
        yield "rdma_answers", f"{name}_trains", bytes([TRAINS]) + script
    yield "rdma_answers", "liar", bytes([LIAR]) + SEEDS["all"] + SEEDS["late_gap"] + SEEDS["late_read_response"]
