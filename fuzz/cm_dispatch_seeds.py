"""Seeds of cm_dispatch_fuzzer: connections of peers to processes that share an address."""

import struct

LISTEN, UNLISTEN, JOIN, LEAVE, TIME, MESSAGE, CHANGED, RAW = range(8)
REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP, LAP, APR = range(11)


def step(action, *content):
    return bytes([action, *content])


def wait(milliseconds):
    return step(TIME) + struct.pack("<H", milliseconds)


def join(*blocks):
    return b"".join(step(JOIN, block - 1) for block in blocks)


def listen(block, service):
    return step(LISTEN, block - 1, service)


def request(service, number=1, peer=1, attribute=REQ):
    return step(MESSAGE, attribute, number, service, peer)


def message(attribute, block, local=1, peer=1):
    return step(MESSAGE, attribute, local) + struct.pack("<I", block << 24 | 9) + bytes([peer])


def changed(place, value, attribute=REQ):
    return step(CHANGED, attribute, 1, 5) + struct.pack("<H", place) + bytes([value, 1])


def raw(content, peer=1):
    return step(RAW, peer) + struct.pack("<H", len(content)) + content


BOTH = join(1, 2) + listen(1, 5) + listen(2, 6)
SEEDS = {
    "two_connections": BOTH + request(5) + message(REP, 2) + message(RTU, 1) + request(6, 2) + message(DREQ, 2)
    + message(DREP, 1),
    "repeated": BOTH + request(5) + request(5) + wait(4000) + request(5) + message(REJ, 0),
    "given_up": BOTH + request(5) + step(MESSAGE, REJ, 1) + b"\0\0\0\0\1",
    "nobody_listens": join(1) + b"".join(request(7, number) for number in range(12)) + message(DREQ, 5),
    "a_listener_returns": BOTH + step(UNLISTEN, 0, 5) + request(5) + wait(2999) + request(5, 2) + listen(2, 5) + wait(1)
    + listen(2, 5) + request(5, 3),
    "a_process_leaves": BOTH + request(5) + step(LEAVE, 0) + request(5) + message(RTU, 1) + join(1) + request(5),
    "many_listeners": join(1) + b"".join(listen(1, service) for service in range(8)) + step(UNLISTEN, 0, 0) + wait(3000)
    + listen(1, 9),
    "many_requests": BOTH + b"".join(request(5, number, number % 7) for number in range(40)),
    "datagrams": BOTH + request(6, 3, 2, SIDR_REQ) + step(MESSAGE, SIDR_REP, 1) + b"\0\0\0\0\1",
    "other_attributes": BOTH + message(LAP, 1) + message(APR, 1) + message(MRA, 2),
    "changed_bytes": BOTH + b"".join(changed(place, 0xff) for place in (0, 1, 5, 7, 12, 20, 21, 22, 23, 37, 36, 279)),
    "any_bytes": BOTH + raw(b"") + raw(b"x") + raw(b"\x64" + b"\0" * 279) + raw(b"x" * 599),
    "nobody_is_there": request(5) + message(DREQ, 1) + message(REJ, 0),
}


def inputs():
    for name, data in SEEDS.items():
        yield "cm_dispatch", name, data
