#!/usr/bin/env python3
"""Writes the seeds of uverbs_fuzzer to fuzz/corpus/uverbs: what a program does from its PD to its end, by kind of QP."""

import struct
from pathlib import Path

CALL, PD, MR, CQ, QP, MODIFY, _, DESTROY, SRQ, WORK, WRITE, AH, MW, QUERY, LOSE, RUN, UMEM, MAKE, COMMAND, SUBSCRIBE, FLOW = range(21)
PD_KIND, MR_KIND, MW_KIND, AH_KIND, CQ_KIND, QP_KIND, SRQ_KIND, XRCD_KIND, FLOW_KIND, WQ_KIND, TABLE_KIND, DEVX_KIND, UMEM_KIND = range(13)
RC, UC, UD, RAW, XRC_SEND, XRC_RECV, DRIVER = range(7)


def at(place):
    """An address: 64 bytes each."""
    return struct.pack("<H", place)


def cq(queue=64, record=4032, log_entries=5):
    return bytes([CQ]) + at(queue) + at(record) + bytes([1, 1, log_entries])


def qp(kind, pd=0, send=1, receive=1, queue=512, record=4040):
    return bytes([QP]) + at(queue) + at(record) + bytes([4, 4, 2, 0, 0, kind, pd, send, receive])


def modify(handle, how, rest=b""):
    return bytes([MODIFY, how, handle]) + rest + bytes([2, 8, 3, 1])


def work(place, data):
    return bytes([WORK, len(data)]) + data + struct.pack("<H", place)


def connected(kind):
    return bytes([PD]) + cq() + qp(kind) + modify(2, 0) + modify(2, 1) + modify(2, 2)


def destroyed():
    return b"".join(bytes([DESTROY, kind, handle]) for kind, handle in ((QP_KIND, 2), (CQ_KIND, 1), (PD_KIND, 0)))


DOORBELL = work((4040 * 64 + 4) // 8, struct.pack(">II", 0, 1))
SEEDS = {
    "rc": connected(RC) + DOORBELL + bytes([RUN]) + destroyed(),
    "uc": connected(UC) + DOORBELL + destroyed(),
    "ud": bytes([PD]) + cq() + qp(UD) + modify(2, 3) + DOORBELL + bytes([AH, 0, 1, 0]) + destroyed(),
    "xrc": bytes([PD]) + cq() + bytes([WRITE, 37]) + bytes(96) + qp(XRC_SEND) + destroyed(),
    "driver": bytes([PD]) + cq() + qp(DRIVER) + destroyed(),
    "memory": bytes([PD, MR]) + bytes([0]) + at(256) + struct.pack("<HB", 1024, 7) + bytes([MW, 0, 1])
    + bytes([DESTROY, MR_KIND, 1, DESTROY, MW_KIND, 2]),
    "srq": bytes([PD, SRQ]) + at(1024) + at(4048) + bytes([0, 0]) + bytes([4, 0, 0]) + bytes([DESTROY, SRQ_KIND, 1]),
    "lost": connected(RC) + bytes([LOSE]) + at(512) + bytes([1]) + DOORBELL + bytes([LOSE]) + at(64) + bytes([1, RUN]),
    "raw": bytes([PD]) + cq() + qp(RAW) + modify(2, 4) + bytes([FLOW, 0, 3, 0, 32]) + bytes([2] * 16 + [255] * 16)
    + bytes([FLOW, 1, 3, 1, 0, DESTROY, FLOW_KIND, 4]) + destroyed(),
    "devx": bytes([UMEM]) + at(64) + struct.pack("<H", 1024)  # 64 KiB, UMEM 1
    + bytes([MAKE, 0, 0, 64, 0, MAKE, 2, 0, 2, 2, 0]) + struct.pack("<H", 4096) + bytes([2, 0])
    + bytes([SUBSCRIBE, 2, 0, COMMAND, 3, 0, 80, 7, 0, 0, DESTROY, DEVX_KIND, 2, DESTROY, UMEM_KIND, 1]),
    "devx_domain": bytes([MAKE, 4, 0, COMMAND, 1, 60, 0, 11, 0, 1]) + struct.pack("<H", 17) + bytes([1, RUN]),
    "call": bytes([CALL]) + struct.pack("<H", 3) + bytes([0, 0, 3]) + bytes([0, 0, 0, 1, 4, 4, 2, 7, 8]),
}


def main():
    folder = Path(__file__).parent / "corpus" / "uverbs"
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
