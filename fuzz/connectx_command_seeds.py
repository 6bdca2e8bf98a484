"""Seeds of connectx_command_fuzzer.

One seed for each opcode of the command table with an input of zeros, and a few that are what a driver
sends: the fuzzer has a PD 1, UAR 3, transport domain 1, EQ 0 and CQ 1 ready.
"""

import re
import struct
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMAND, ENTRY, MEMORY, WRITE, READ, TIME = range(6)


def opcodes():
    """Index by name, among the commands of the table that have a handler."""
    table = (ROOT / "src/connectx/command/command_list.inc").read_text()
    return re.findall(r"^(?:DONE|PARTLY)\((\w+),", table, re.M)


NAMES = opcodes()


def command(name, fields, tail=b"", size=0x100, op_mod=0, room=0):
    """`fields`: dwords by offset from the start of the command."""
    body = bytearray(max(size, 8) - 8)
    for offset, value in fields.items():
        struct.pack_into(">I", body, offset - 8, value)
    body = bytes(body) + tail
    return struct.pack("<BBBH", COMMAND, NAMES.index(name), op_mod, len(body)) + body + bytes([room])


def write(offset, data):
    assert len(data) in (4, 8)
    return bytes([WRITE]) + struct.pack("<I", offset)[:3] + bytes([len(data).bit_length() - 1]) + data


def pages(*addresses):
    return b"".join(struct.pack(">Q", a) for a in addresses)


def seeds():
    for name in NAMES:
        yield name.lower(), command(name, {}, size=0x40)
    yield "mtt_key", command("CREATE_MKEY", {
        0x10: 0x2d00, 0x14: 0xFFFFFF42, 0x1C: 1, 0x24: 0x10000, 0x2C: 0x2000, 0x44: 1, 0x48: 12,
        0x60: 1}, pages(0x50000, 0x60000), 0x110) + command("QUERY_MKEY", {0x08: 0x10}, size=0x10)
    yield "rc_qp", command("CREATE_QP", {
        0x18: 0, 0x1C: 1, 0x20: 0x1E221800 | 2 << 19, 0x24: 3, 0x94: 1, 0xB4: 1, 0xBC: 0x43000,
        0xC4: 0}, pages(0x44000, 0x45000), 0x110) + b"".join(
            command(name, {0x08: 0x40, 0x1C: 1, 0x20: 0xBE000000, 0x94: 1, 0xB4: 1}, size=0x110)
            for name in ("RST2INIT_QP", "INIT2RTR_QP", "RTR2RTS_QP", "QUERY_QP", "QP_2ERR")
    ) + write(3 * 4096 + 0x800, struct.pack(">II", 0, 0x4000))
    yield "doorbells", write(3 * 4096 + 0x40, bytes(4)) + write(
        3 * 4096 + 0x20, struct.pack(">II", 0, 1)) + bytes([TIME, 20])
    yield "flow_table", command("CREATE_FLOW_TABLE", {0x18: 7}, size=0x40) + command(
        "SET_FLOW_TABLE_ROOT", {0x14: 1}, size=0x40)


def inputs():
    for name, data in seeds():
        yield "connectx_command", name, data
