"""Seeds of rsnic_command_fuzzer and rsnic_ethernet_fuzzer: the differences from a ConnectX."""

import struct

import connectx_command_seeds as commands
import connectx_ethernet_seeds as ethernet

KEY, MEMORY = 0x1042, 0x1_0000_0000


def multi_packet(mss, *pieces, opmod=1):
    """A multi-packet send WQE of these (address, size)."""
    ds = 2 + len(pieces)
    body = struct.pack(">IIII", opmod << 24 | 0x0E, ds, 8, 0) + struct.pack(">IIII", 0, 0xC0000000 | mss, 0, 0)
    body += b"".join(struct.pack(">IIQ", size, KEY, MEMORY + address) for address, size in pieces)
    return bytes([ethernet.SEND]) + struct.pack("<H", len(body) - 16) + body + bytes([ethernet.PLAIN])


def inputs():
    doorbells = b"".join(commands.write(0x20 + page * 4096, struct.pack(">II", 0, 1)) +
                         commands.write(0x800 + page * 4096, struct.pack(">II", 0, 0x4000)) for page in range(8))
    yield "rsnic_command", "doorbells_over_the_segment", doorbells
    yield "rsnic_command", "uars", commands.command("ALLOC_UAR", {}) * 9 + b"".join(
        commands.command("DEALLOC_UAR", {8: uar}) for uar in range(9))
    yield "rsnic_command", "services", b"".join(
        commands.command("CREATE_QP", {0x18: service << 16}, commands.pages(0x44000), 0x110) for service in range(16))
    yield "rsnic_command", "create_dct", commands.command("CREATE_DCT", {}, size=0x110)
    for name in ("QUERY_EQ", "QUERY_CQ", "QUERY_MKEY", "SET_DRIVER_VERSION", "MANAGE_PAGES", "CREATE_SQ", "CREATE_RQ"):
        yield "rsnic_command", name.lower(), commands.command(name, {0x10: 0x41424344}, size=0x140)
    frames = [(place * 512, 300) for place in range(5)]
    yield "rsnic_ethernet", "packets", multi_packet(300, *frames) * 3
    yield "rsnic_ethernet", "one_pointer", multi_packet(100, (0, 1050))
    yield "rsnic_ethernet", "tiny", multi_packet(1, (0, 3000)) + multi_packet(13, (0, 60), (77, 1))
    yield "rsnic_ethernet", "wrong", multi_packet(0, *frames) + multi_packet(9, (1 << 40, 4)) + multi_packet(
        100, *frames, opmod=2)
    yield "rsnic_ethernet", "memory_goes", ethernet.disturb(0) + multi_packet(300, *frames) + ethernet.disturb(0)
