"""Seeds of rdma_cm_fuzzer: programs and peers without any error."""

import struct

CREATE, _, BIND, LISTEN, RESOLVE, ROUTE, CONNECT, ACCEPT, REJECT, DISCONNECT, INIT_QP, EVENT, _, QUERY, OPTION, NOTIFY, \
    MIGRATE, JOIN, DESTROY, _, RAW, CHANNEL, TIME, RUN, DATAGRAM, AGAIN = range(26)
TCP, UDP = 0, 2
REQ, REP, RTU, REJ, DREQ, DREP, MRA, SIDR_REQ, SIDR_REP = range(9)
OWN, GUEST, LINK_LOCAL, ANY, GROUP = 0, 8, 12, 16, 20
GUEST_SENDS = 2
KNOWN, GONE, LOST = 1, 2, 4


def ident(number):
    return bytes([number - 1])


def create(space=TCP, uid=1):
    return bytes([CREATE, space, uid, 0])


def bind(number, address=OWN):
    return bytes([BIND]) + ident(number) + bytes([address])


def listen(number, backlog=3):
    return bytes([LISTEN]) + ident(number) + bytes([backlog])


def resolve(number, to=OWN):
    return bytes([RESOLVE]) + ident(number) + struct.pack("<H", 2000) + bytes([ANY, to])


def param(qpn=0x100):
    return bytes([7]) + struct.pack("<I", qpn) + bytes([3, 5, 4]) + b"data"


def connect(number):
    return bytes([CONNECT]) + ident(number) + param()


def accept(number, passive=True):
    return bytes([ACCEPT]) + ident(number) + bytes([number]) + (param() if passive else bytes(8))


def events(count=1):
    return bytes([EVENT, 0] * count)


def time(how=0, tenths=0):
    return bytes([TIME, how | tenths * 8])


def datagram(kind, local, remote=None, service=0, sender=GUEST_SENDS):
    middle = bytes([service]) if remote is None else bytes([remote])
    return bytes([DATAGRAM, kind, sender, 1, local]) + middle + b"\0"


def queries(number):
    parts = [bytes([INIT_QP, 0]) + ident(number) + bytes([state]) for state in (1, 2, 3)]
    parts += [bytes([QUERY, 0]) + ident(number) + bytes([option]) for option in (0, 1, 2)]
    return b"".join(parts)


def destroy(number):
    return bytes([DESTROY, 0, 0]) + ident(number)


PAIR = create() + bind(1) + listen(1) + create(uid=2) + resolve(2) + events() + bytes([ROUTE]) + ident(2) + events() + connect(2)
TALK = bytes([RUN]) * 3
CONNECTED = PAIR + TALK + events() + accept(3) + TALK + events() + accept(2, passive=False) + TALK + events()
SEEDS = {
    "connected": CONNECTED + queries(2) + queries(3) + bytes([DISCONNECT]) + ident(2) + TALK + events(2) + time(0, 7) + events(2)
    + destroy(3) + destroy(2) + destroy(1),
    "refused": PAIR + TALK + events() + bytes([REJECT]) + ident(3) + b"\0" + TALK + events() + destroy(2),
    "no_such_service": create() + resolve(1) + events() + connect(1) + time(0, 31) + time(0, 31) + events(),
    "nobody_answers": create() + time(KNOWN) + resolve(1, GUEST) + events() + connect(1) + time(KNOWN, 31) * 4 + events(),
    "nobody_has_the_address": create() + resolve(1, GUEST) + time(0, 31) + events(),
    "the_listener_goes": PAIR + TALK + destroy(1) + TALK + events(),
    "killed": CONNECTED + time(GONE, 20) + events(2),
    "datagrams": create(UDP) + bind(1) + listen(1) + create(UDP, 2) + resolve(2) + events() + connect(2) + TALK + events()
    + accept(3) + TALK + events() + queries(2) + bytes([AGAIN, 0, 0, 0]) + TALK,
    "answers_are_lost": PAIR + TALK + events() + time(LOST) + accept(3) + time(LOST, 5) + time(0, 5) + TALK + events(),
    "a_guest_connects": create() + bind(1) + listen(1) + time(KNOWN) + datagram(REQ, 0xf7) + TALK + events() + accept(2) + TALK
    + datagram(RTU, 0xf7, 0) + events() + datagram(DREQ, 0xf7, 0) + events() + destroy(2),
    "a_guest_answers": create() + time(KNOWN) + resolve(1, GUEST) + events() + connect(1) + datagram(MRA, 0xf7, 0)
    + datagram(REP, 0xf7, 0) + events() + accept(1, passive=False) + TALK + queries(1) + datagram(DREP, 0xf7, 0),
    "a_guest_refuses": create() + time(KNOWN) + resolve(1, GUEST) + events() + connect(1) + datagram(REJ, 0xf7, 0) + events(),
    "a_guest_asks_for_a_qp": create(UDP) + bind(1) + listen(1, 1) + time(KNOWN) + datagram(SIDR_REQ, 0xf7, service=0x80)
    + datagram(SIDR_REQ, 0xf8, service=0x80) + events() + accept(2) + TALK,
    "a_guest_tells_its_qp": create(UDP) + time(KNOWN) + resolve(1, GUEST) + events() + connect(1) + datagram(SIDR_REP, 0, 0xf7)
    + events(),
    "a_flood": create() + bind(1) + listen(1) + b"".join(datagram(REQ, 0xf0 + n) for n in range(6)) + events(4),
    "a_group": create(UDP) + bind(1) + bytes([JOIN, 0, 77]) + ident(1) + bytes([GROUP, 0]) + events()
    + bytes([DESTROY, 1, 0]) + ident(2),
    "moved": CONNECTED + bytes([CHANNEL, 1, MIGRATE, 0]) + ident(2) + b"\0" + bytes([MIGRATE, 0]) + ident(1) + b"\0"
    + bytes([CHANNEL, 0]),
    "options": create() + bytes([OPTION, 0]) + ident(1) + bytes([0, 1, 1, NOTIFY]) + ident(1) + b"\4",
    "anything": bytes([RAW, 3]) + struct.pack("<H", 8) + bytes(8) + bytes([RAW, 99 % 26]) + struct.pack("<H", 0),
}


def inputs():
    for name, data in SEEDS.items():
        yield "rdma_cm", name, data
