"""Seeds of connectx_ethernet_fuzzer: frames and commands of a driver and its neighbors."""

import struct

SEND, RECEIVE, ARRIVE, ARRIVE_MADE, COMMAND, WAIT, DISTURB = 0, 2, 3, 4, 5, 6, 7
COMMANDS = 90  # more than the set-up has
MAC, OTHER, ALL = bytes.fromhex("020000000001"), bytes.fromhex("020000000002"), b"\xff" * 6
# `how` of a send: 4n + 1 has a data segment if it is 8n + 5.
PLAIN, WITH_DATA, LSO_WITH_DATA = 0, 5 + 24, 5


def ethernet(payload, kind=0x0800, tags=b"", to=MAC):
    return to + OTHER + tags + struct.pack(">H", kind) + payload


def ipv4(payload, protocol, options=b"", fragment=0):
    return struct.pack(">BBHHHBBHII", 0x45 + len(options) // 4, 0, 20 + len(options) + len(payload), 1, fragment, 64,
                       protocol, 0, 0x0A000002, 0x0A000001) + options + payload


def ipv6(payload, next_header):
    return struct.pack(">IHBB", 0x60000000, len(payload), next_header, 64) + bytes(range(32)) + payload


def tcp(data=b"hello", flags=0x10):
    return struct.pack(">HHIIBBHHH", 1234, 80, 1, 2, 0x50, flags, 512, 0, 0) + data


def udp(data=b"hello", port=53):
    return struct.pack(">HHHH", 1234, port, 8 + len(data), 0) + data


def vlan(number):
    return struct.pack(">HH", 0x8100, number)


def send(headers, how=PLAIN, ds=0, size=1000, at=0):
    """A WQE with these inline headers: control segment, Ethernet segment. The fuzzer chooses the rest."""
    body = struct.pack(">IIII", 0x0A, 0, 8, 0) + struct.pack(">IHHII", 0, 0xC000, 1400, 0, 0)[:14]
    body += struct.pack(">H", len(headers)) + headers
    body += bytes(-len(body) % 16)
    rest = struct.pack("<H", ds) if how % 4 else b""
    rest += struct.pack("<HHH", 0, size, at) if how % 8 == 5 else b""
    return bytes([SEND]) + struct.pack("<H", len(body) - 16) + body + bytes([how]) + rest


def receive(size=2000, at=0):
    return bytes([RECEIVE]) + struct.pack("<HH", size, at) + b"\1"


def arrive(frame):
    frame = frame.ljust(60, b"\0")
    return receive() + bytes([ARRIVE]) + struct.pack("<H", len(frame)) + frame


def command(number, *changes, op_mod=0):
    return bytes([COMMAND]) + struct.pack("<HB", number, len(changes)) + b"".join(
        struct.pack("<HI", place, value) for place, value in changes) + bytes([op_mod])


def disturb(what, rest=b""):
    return bytes([DISTURB, what]) + rest


FRAMES = {
    "tcp4": ethernet(ipv4(tcp(), 6)), "udp4": ethernet(ipv4(udp(), 17)), "roce": ethernet(ipv4(udp(bytes(40), 4791), 17)),
    "options": ethernet(ipv4(tcp(), 6, b"\1" * 8)), "fragment": ethernet(ipv4(udp(), 17, fragment=0x2000)),
    "tcp6": ethernet(ipv6(tcp(), 6), 0x86DD), "udp6": ethernet(ipv6(udp(), 17), 0x86DD),
    "vlan": ethernet(ipv4(tcp(), 6), tags=vlan(7)), "two_tags": ethernet(ipv4(udp(), 17), tags=vlan(7) + vlan(8)),
    "arp": ethernet(bytes(28), 0x0806, to=ALL), "broadcast": ethernet(ipv4(udp(), 17), to=ALL), "short": MAC,
}
SEEDS = {f"arrive_{name}": arrive(frame) + arrive(frame) for name, frame in FRAMES.items()}
SEEDS |= {f"send_{name}": receive() + send(frame[:18]) + send(frame[:18], WITH_DATA, 2) + send(frame, LSO_WITH_DATA, 4, 2999)
          for name, frame in FRAMES.items()}
SEEDS |= {
    "each_command": b"".join(command(number) for number in range(COMMANDS)),
    "each_command_changed": b"".join(command(number, (8, 1), (16, 0xffffffff)) + arrive(FRAMES["tcp4"])[5:]
                                     for number in range(0, COMMANDS, 3)),
    "memory_goes": receive() + disturb(0) + send(FRAMES["tcp4"][:18], WITH_DATA, 2) + arrive(FRAMES["udp4"]) + disturb(0)
    + send(FRAMES["tcp4"][:18]),
    "no_bus_master": disturb(1, b"\0") + send(FRAMES["tcp4"][:18]) + arrive(FRAMES["tcp4"]) + disturb(1, b"\1")
    + arrive(FRAMES["tcp4"]),
    "made": b"".join(receive() + bytes([ARRIVE_MADE]) + struct.pack("<HB", size, 1) + struct.pack("<HB", 23, 17)
                     for size in (0, 100, 1400)) + bytes([WAIT]) + b"\4\0",
    "no_receives": b"".join(bytes([ARRIVE_MADE]) + struct.pack("<HB", 100, 0) for _ in range(20)),
}


def inputs():
    for name, data in SEEDS.items():
        yield "connectx_ethernet", name, data
