"""Seeds of roce_fuzzer: one datagram of each kind. The fuzzer corrects their ICRC."""

import struct

IPV4 = bytes([3]) + struct.pack("<II", 0x0a000001, 0x0a000002)
IPV6 = bytes([0]) + bytes.fromhex("fd000000000000000000000000000001fd000000000000000000000000000002")
MIXED = bytes([1]) + struct.pack("<I", 0x0a000001) + bytes(16)
GROUP = bytes([3]) + struct.pack("<II", 0x0a000001, 0xef010203)
SEND_ONLY, WRITE_ONLY, READ_RESPONSE_ONLY, ACK, UD_SEND_ONLY, CNP, RESERVED = 4, 10, 16, 17, 0x64, 0x81, 0x3f


def path(addresses, port=0xc000, traffic_class=2, hops=64):
    return addresses + struct.pack("<HBB", port, traffic_class, hops)


def packet(opcode, headers=b"", payload=b""):
    pad = -len(payload) % 4
    bth = struct.pack(">BBHII", opcode, pad << 4, 0xffff, 0x12, 0x80000034)
    return bth + headers + payload + bytes(pad) + bytes(4)


SEEDS = {
    "send": path(IPV4) + packet(SEND_ONLY, payload=b"hello"),
    "write_ipv6": path(IPV6) + packet(WRITE_ONLY, struct.pack(">QII", 0x1000, 7, 9), b"nine more"),
    "read_response": path(IPV4) + packet(READ_RESPONSE_ONLY, bytes(4), bytes(300)),
    "ack": path(IPV4) + packet(ACK, bytes([0x1f, 0, 0, 1])),
    "datagram": path(IPV6) + packet(UD_SEND_ONLY, struct.pack(">II", 1, 2), bytes(256)),
    "cnp": path(IPV4, traffic_class=3) + packet(CNP, bytes(16)),
    "reserved": path(IPV4) + packet(RESERVED),
    "mixed": path(MIXED) + packet(SEND_ONLY),
    "group": path(GROUP) + packet(UD_SEND_ONLY, bytes(8)),
    "short": path(IPV4) + packet(SEND_ONLY)[:15],
    "odd": path(IPV4) + packet(SEND_ONLY, payload=b"four")[:-1],
    "long": path(IPV4) + packet(SEND_ONLY, payload=bytes(5000)),
}


def inputs():
    for name, data in SEEDS.items():
        yield "roce", name, data
