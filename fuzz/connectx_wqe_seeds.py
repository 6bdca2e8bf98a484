"""Seeds of connectx_wqe_fuzzer: WQEs as drivers write them."""

import struct

NOP, SEND_INVAL, WRITE, WRITE_IMM, SEND, SEND_IMM, READ, CS, FA = (
    0x00, 0x01, 0x08, 0x09, 0x0A, 0x0B, 0x10, 0x11, 0x12)
RC, UC, UD, XRC, DCI = range(5)
(SEND_BYTES, POST_SEND, SEND_COUNTER, RECEIVE_BYTES, RECEIVE_COUNTER, SHARED_BYTES, SHARED_COUNTER, TIME, STATE,
 UNMAPPED) = range(10)
KEY = 0x1042
DATA = 0x100030000
MAC = bytes.fromhex("020000000001")
GID = bytes(10) + b"\xff\xff" + bytes([192, 168, 10, 1])


def wqe(opcode, *segments, imm=0, ce=2):
    body = b"".join(segments)
    ds = 1 + len(body) // 16
    return struct.pack(">IIII", opcode, ds, ce << 2, imm) + body


def remote(address=DATA + 2048, key=KEY):
    return struct.pack(">QII", address, key, 0)


def atomic(swap_add=1, compare=0):
    return struct.pack(">QQ", swap_add, compare)


def data(length, address=DATA, key=KEY):
    return struct.pack(">IIQ", length, key, address)


def inline(text):
    bare = struct.pack(">I", 0x80000000 | len(text)) + text
    return bare + bytes(-len(bare) % 16)


def datagram(qpn, qkey=0x11111111):
    return (struct.pack(">IIIII", qkey, 0, 0x80000000 | qpn, 0xC001, 0) + MAC + bytes([0, 64]) +
            struct.pack(">I", 1 << 30 | 3 << 20) + GID)


def receive(length=512, address=DATA + 1024):
    return data(length, address) + data(0, 0, 0x100)


SINGLE = {
    "nop": (RC, wqe(NOP)),
    "send": (RC, wqe(SEND, data(100), data(28))),
    "send_imm_inline": (RC, wqe(SEND_IMM, inline(b"twenty bytes of text"), imm=5)),
    "send_inval": (RC, wqe(SEND_INVAL, imm=KEY)),
    "write": (UC, wqe(WRITE, remote(), data(512))),
    "write_imm": (RC, wqe(WRITE_IMM, remote(), inline(b"x"), imm=7)),
    "read": (RC, wqe(READ, remote(), data(512))),
    "compare_swap": (RC, wqe(CS, remote(), atomic(1, 2), data(8))),
    "fetch_add": (XRC, wqe(FA, bytes(16), remote(), atomic(1), data(8))),
    "datagram": (UD, wqe(SEND, datagram(0x41), data(64))),
    "dc_write": (DCI, wqe(WRITE, datagram(0x41), remote(), data(64))),
    "end_of_list": (RC, receive()),
}


def record(action, qp=0, payload=b""):
    return bytes([action, qp]) + payload


def post(body, qp=0):
    return record(POST_SEND, qp, body.ljust(128, b"\0")[:128])


def shared(index, following):
    return record(SHARED_BYTES, index, (struct.pack(">IIII", following, 0, 0, 0) + receive()).ljust(64, b"\0"))


SETUP = b"".join(shared(i, (i + 1) % 16) for i in range(4)) + record(SHARED_COUNTER, 0, b"\4\0") + b"".join(
    record(RECEIVE_BYTES, i, receive().ljust(64, b"\0")) for i in range(3)) + record(RECEIVE_COUNTER, 0, b"\3\0")
RUN = record(TIME, 20)

SCRIPT = {
    "rc": SETUP + post(SINGLE["send"][1]) + post(SINGLE["write_imm"][1]) + RUN + post(SINGLE["read"][1]) +
    post(wqe(FA, remote(), atomic(1), data(8))) + RUN,
    "ud": SETUP + post(wqe(SEND, datagram(0x41), inline(b"hello")), 1) + RUN,
    "malformed": SETUP + post(wqe(0x25)) + post(wqe(NOP), 1) + post(wqe(READ), 1) + RUN,
    "states": SETUP + post(wqe(NOP)) + record(STATE, 2) + RUN + record(RECEIVE_COUNTER, 0, b"\5\0") + RUN +
    record(STATE, 12) + RUN + post(wqe(NOP)) + record(STATE, 3) + RUN + record(STATE, 13),
    "unmapped": SETUP + post(SINGLE["write"][1]) + record(UNMAPPED) + RUN,
    "counters": SETUP + record(SEND_COUNTER, 0, b"\x11\0") + RUN + record(SHARED_COUNTER, 0, b"\xff\xff") +
    record(SEND_COUNTER, 1, b"\x03\0") + RUN,
}


def inputs():
    for name, (service, body) in SINGLE.items():
        yield "connectx_wqe", name, bytes([0, service, 0]) + body
    for name, body in SCRIPT.items():
        yield "connectx_wqe", f"script_{name}", bytes([1]) + body
