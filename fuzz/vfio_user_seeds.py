"""Seeds of vfio_user_fuzzer: one for each kind of message."""

import struct

RAW, COMMAND, REPLY, UNHANDLED, VERSION, RUN, SHRINK, LEAVE = range(8)
NONE, EVENTFD, MEMORY, PIPE, TWO_EVENTFDS, TOO_MANY, FILE = range(7)


def record(action, fds=NONE, body=b"", client=0):
    return bytes([action | fds << 3 | client << 6]) + body


def sized(payload):
    return struct.pack("<H", len(payload)) + payload


def command(number, payload, fds=NONE, flags=0, action=COMMAND):
    return record(action, fds, bytes([number, flags]) + sized(payload))


def dma_map(address, size, offset=0, fds=MEMORY, flags=3):
    return command(2, struct.pack("<IIQQQ", 32, flags, offset, address, size), fds)


def region(number, index, offset, data=b"", count=None, flags=0):
    count = len(data) if count is None else count
    return command(number, struct.pack("<QII", offset, index, count) + data, flags=flags)


def set_irqs(flags, start, count, data=b"", fds=NONE, index=2):
    return command(8, struct.pack("<IIIII", 20, flags, index, start, count) + data, fds)


V = record(VERSION)
TEXT = (b'{"capabilities":{"max_msg_fds":8,"pgsizes":4096,"max_dma_maps":9,'
        b'"migration":{"a":[1]}}}\0')
SEEDS = {
    "version": command(1, struct.pack("<HH", 0, 0) + TEXT),
    "version_raw": record(RAW, NONE, sized(
        struct.pack("<HHIII", 1, 1, 20 + len(TEXT), 0, 0) + struct.pack("<HH", 0, 9) + TEXT)),
    "info": V + command(4, struct.pack("<IIII", 16, 0, 0, 0))
    + b"".join(command(5, struct.pack("<IIIIQQ", 64, 0, i, 0, 0, 0)) for i in range(10))
    + b"".join(command(7, struct.pack("<IIII", 16, 0, i, 0)) for i in range(6))
    + command(6, struct.pack("<IIII", 16, 0, 0, 0)),
    "dma": V + dma_map(0, 0x4000) + dma_map(0x10000, 0x1000, 0x2000)
    + dma_map(0x20000, 0x1000, 0, NONE)
    + command(3, struct.pack("<IIQQ", 24, 0, 0, 0x4000))
    + command(3, struct.pack("<IIQQ", 24, 2, 0, 0)),
    "dma_by_message": V + dma_map(0x20000, 0x1000, 0, NONE)
    + region(10, 0, 0x808, struct.pack("<Q", 0x20000))
    + command(11, struct.pack("<QQ", 0x20000, 8) + bytes(8), action=UNHANDLED)
    + region(10, 0, 0x810, struct.pack("<Q", 0x20008))
    + command(12, struct.pack("<QQ", 0x20008, 8), action=UNHANDLED) + record(RUN),
    "irqs": V + region(10, 7, 0x9e, b"\0\x80") + set_irqs(0x24, 0, 1, fds=EVENTFD)
    + set_irqs(0x24, 5, 2, fds=TWO_EVENTFDS) + set_irqs(0x22, 0, 3, b"\1\0\1") + set_irqs(0x09, 0, 8)
    + region(10, 0, 0x800, struct.pack("<I", 3)) + record(RUN) + set_irqs(0x11, 0, 8)
    + set_irqs(0x24, 0, 4) + set_irqs(0x21, 0, 0) + set_irqs(0x24, 0, 1, fds=PIPE),
    "regions": V + region(9, 0, 0, count=8) + region(9, 7, 0, count=256)
    + region(10, 7, 0x10, b"\xff" * 4)
    + region(10, 0, 0x1ff8, bytes(64), flags=0x10) + region(9, 2, 0xffc, count=4)
    + region(10, 7, 0x68, b"\xff\xff") + region(10, 7, 0x4a, b"\0\0"),
    "multi": V + command(15, struct.pack("<Q", 2) + struct.pack("<QII8s", 0, 0, 8, b"12345678")
                         + struct.pack("<QII8s", 0x800, 0, 4, b"\1\0\0\0"), flags=0x10),
    "reset": V + command(13, b"") + command(14, b"") + command(16, bytes(8)) + command(99, b""),
    "split": V + record(RAW, NONE, sized(struct.pack("<HHII", 2, 9, 32, 0)))
    + record(RAW, NONE, sized(struct.pack("<IQII", 0, 0, 0, 4))),
    "file_shrinks": V + dma_map(0x10000, 0x8000) + record(SHRINK, NONE, b"\1") + region(10, 0, 0x810, struct.pack("<Q", 0x14000))
    + record(RUN) + V + dma_map(0x10000, 0x1000) + region(10, 0, 0x808, struct.pack("<Q", 0x10000)) + record(RUN),
    "comes_and_goes": (V + dma_map(0, 0x4000) + record(LEAVE)) * 6,
    "two": V + record(VERSION, client=1) + dma_map(0, 0x4000) + record(COMMAND, MEMORY, bytes([2, 0]) + sized(
        struct.pack("<IIQQQ", 32, 3, 0, 0, 0x4000)), client=1) + region(10, 0, 0x810, struct.pack("<Q", 0x1000))
    + record(LEAVE, client=1) + region(10, 0, 0x810, struct.pack("<Q", 0x2000)) + record(RUN),
    "reads_without_end": V + region(9, 0, 0, count=4096) * 40,
    "too_many_fds": V + dma_map(0, 0x1000, fds=TOO_MANY),
}


def inputs():
    for name, data in SEEDS.items():
        yield "vfio_user", name, data
