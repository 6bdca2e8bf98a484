"""Seeds of uverbs_fuzzer: a program from its PD to its end, by type of QP."""

import struct

CALL, PD, MR, CQ, QP, MODIFY, _, DESTROY, SRQ, WORK, WRITE, AH, MW, QUERY, LOSE, RUN, UMEM, MAKE, COMMAND, SUBSCRIBE, FLOW, \
    METHOD, _, TABLE, CHANGE, MATCHER, FILE = range(27)
PD_KIND, MR_KIND, MW_KIND, AH_KIND, CQ_KIND, QP_KIND, SRQ_KIND, XRCD_KIND, FLOW_KIND, WQ_KIND, TABLE_KIND, DEVX_KIND, UMEM_KIND = range(13)
RC, UC, UD, RAW, XRC_SEND, XRC_RECV, DRIVER = range(7)
NEW = 255  # the newest of its kind
# Methods of method_call().
EVENTS, READ_COUNTERS, MATCHED_FLOW, ANSWERS, EVENT_CHANNEL, ASYNC_QUERY, CREATE_WQ, ADVISE = 0, 12, 14, 17, 18, 19, 20, 21
# Commands of change().
RESIZE_CQ, MODIFY_CQ, MODIFY_SRQ, QUERY_SRQ, MODIFY_WQ, OPEN_XRCD, ATTACH, REREG, CHANNEL, OPEN_QP = range(10)
DCT, DCI = 16, 32


def at(place):
    """An address: 64 bytes each."""
    return struct.pack("<H", place)


def cq(queue=64, record=4032, log_entries=5, channel=b"\0"):
    return bytes([CQ]) + at(queue) + at(record) + bytes([1, 1, log_entries]) + channel


def qp(kind, queue=512, record=4040, flags=b"\0", more=b""):
    return bytes([QP]) + at(queue) + at(record) + bytes([4, 4, 2]) + flags + bytes([0, kind, NEW, NEW, NEW]) + more


def modify(how, rest=b""):
    return bytes([MODIFY, how, NEW]) + rest + bytes([2, 8, 3, 1])


def work(place, data):
    return bytes([WORK, len(data)]) + data + struct.pack("<H", place)


def method(number, there=0, rest=b""):
    return bytes([METHOD, number]) + struct.pack("<H", there) + rest


def connected(kind):
    return bytes([PD]) + cq() + qp(kind) + modify(0) + modify(1) + modify(2)


def raw():
    return bytes([PD]) + cq() + qp(RAW) + modify(4, b"\1") + modify(4, b"\2") + modify(4, b"\3")


def destroyed():
    return b"".join(bytes([DESTROY, kind, NEW]) for kind in (QP_KIND, CQ_KIND, PD_KIND))


def receive_queue(queue):
    return method(CREATE_WQ, 0, bytes([NEW, NEW, 0, 0, 0, 0]) + at(queue) + at(4050) + bytes([4, 4]))


DOORBELL = work((4040 * 64 + 4) // 8, struct.pack(">II", 0, 1))
SEEDS = {
    "rc": connected(RC) + DOORBELL + bytes([RUN, QUERY, NEW, 255]) + destroyed(),
    "uc": connected(UC) + DOORBELL + destroyed(),
    "ud": bytes([PD]) + cq() + qp(UD) + modify(3, b"\1") + modify(4, b"\2") + modify(5, b"\3") + DOORBELL
    + bytes([AH, NEW, 1, 0, CHANGE, ATTACH, 7, NEW, CHANGE, 0x82 + ATTACH, 7, NEW]) + destroyed(),
    "xrc": bytes([PD]) + cq() + bytes([CHANGE, OPEN_XRCD]) + qp(XRC_SEND) + qp(XRC_RECV | 0x40, 768, 4041, more=bytes([NEW]))
    + bytes([SRQ]) + at(1024) + at(4048) + bytes([5, NEW, 4, 0, 0, NEW, NEW]) + destroyed()
    + bytes([DESTROY, SRQ_KIND, NEW, DESTROY, XRCD_KIND, NEW]),
    "xrc_of_two": bytes([CHANGE, 0xF0 + OPEN_XRCD, 1]) + qp(XRC_RECV | 0x40, 768, 4041, more=bytes([NEW])) + modify(0)
    + bytes([FILE, CHANGE, 0xF0 + OPEN_XRCD, 1, CHANGE, OPEN_QP, NEW]) + modify(1) + bytes([FILE, DESTROY, QP_KIND, NEW - 1]),
    "dynamic": bytes([PD]) + cq() + bytes([SRQ]) + at(1024) + at(4048) + bytes([0, NEW, 4, 0, 0])
    + qp(DRIVER, flags=b"\1" + struct.pack("<H", DCI)) + modify(0) + modify(1) + modify(2)
    + qp(DRIVER | 0x80, flags=b"\1" + struct.pack("<H", DCT), more=bytes([NEW])) + modify(0) + modify(1),
    "memory": bytes([PD, MR]) + at(256) + bytes([NEW]) + struct.pack("<HB", 1024, 7) + bytes([MW, NEW, 1])
    + bytes([CHANGE, REREG, NEW, 1]) + at(512) + struct.pack("<H", 512) + bytes([NEW, 7]) + method(9, 16, bytes([NEW]))
    + bytes([DESTROY, MR_KIND, NEW, DESTROY, MW_KIND, NEW]),
    "srq": bytes([PD, SRQ]) + at(1024) + at(4048) + bytes([0, NEW, 4, 0, 0]) + bytes([CHANGE, MODIFY_SRQ, NEW, 2, 0, 3])
    + bytes([CHANGE, QUERY_SRQ, NEW, DESTROY, SRQ_KIND, NEW]),
    "completions": bytes([CHANGE, CHANNEL]) + method(EVENTS) + cq(channel=bytes([1, NEW]))
    + bytes([CHANGE, RESIZE_CQ, NEW, 6, CHANGE, MODIFY_CQ, NEW, 1]) + struct.pack("<I", 0x10001) + bytes([DESTROY, CQ_KIND, NEW]),
    "lost": connected(RC) + bytes([LOSE]) + at(512) + bytes([1]) + DOORBELL + bytes([LOSE]) + at(64) + bytes([1, RUN]),
    "raw": raw() + bytes([FLOW, 0, NEW, 0, 32]) + bytes([2] * 16 + [255] * 16)
    + bytes([FLOW, 1, NEW, 1, 0, DESTROY, FLOW_KIND, NEW]) + destroyed(),
    "matched": raw() + bytes([MATCHER, 1, 0, 3]) + method(MATCHED_FLOW, 1 << 3, bytes([0, NEW, NEW])) + destroyed(),
    "scaling": bytes([PD]) + cq() + receive_queue(1024) + bytes([CHANGE, MODIFY_WQ, 1, NEW, 1, 0, TABLE, 0, NEW, NEW, NEW, NEW])
    + bytes([TABLE, 3, 3, 0, NEW, NEW, FLOW, 1, NEW, 1, 0, DESTROY, TABLE_KIND, NEW, DESTROY, FLOW_KIND, NEW]),
    "devx": bytes([UMEM]) + at(64) + struct.pack("<H", 1024)  # 64 KiB, UMEM 1
    + bytes([MAKE, 0, 0, 64, 0, MAKE, 2, 0, 2, 2, 0]) + struct.pack("<H", 4096) + bytes([2, 0])
    + bytes([SUBSCRIBE, 2, NEW, 0, NEW, COMMAND, 3, 0, 80, 7, 0, 0, DESTROY, DEVX_KIND, NEW, DESTROY, UMEM_KIND, NEW]),
    "devx_later": bytes([UMEM]) + at(64) + struct.pack("<H", 1024) + bytes([MAKE, 0, 0, 64, 0]) + method(ANSWERS)
    + method(ASYNC_QUERY, 0, bytes([NEW, 2, 4, 2, NEW, 0, 2, 0, 1])) + bytes([RUN]),
    "devx_domain": bytes([MAKE, 4, 0, COMMAND, 1, 60, 0, 11, 0, 1]) + struct.pack("<H", 17) + bytes([1, RUN]),
    "call": bytes([CALL]) + struct.pack("<H", 3) + bytes([0, 0, 3]) + bytes([0, 0, 0, 1, 4, 4, 2, 7, 8]),
}


def inputs():
    for name, data in SEEDS.items():
        yield "uverbs", name, data
