#!/usr/bin/env python3
"""Writes seeds of connectx_command_fuzzer from what mlx5_core has sent: fuzz/driver_seeds.py KERNEL_LOG

The log is a guest's in which mlx5_core was loaded with `debug_mask=1 dyndbg=+p` and worked (fuzz/README.md has the
command). Each seed gives the device back to its first driver (TEARDOWN_HCA, DISABLE_HCA) and then sends the commands of
one kind of work in the driver's order, so that the numbers of objects are those that the driver was given. Addresses
are folded into the fuzzer's megabyte.
"""

import argparse
import collections
import re
import struct
from pathlib import Path

import corpus
from connectx_command_seeds import NAMES, command

LIMIT = 16384  # MAX_LEN of fuzz/run
# Repetitions kept of each command beyond START: the whole life of a few objects, not half the life of all. Creations
# listed in WHOLE are all kept, because other commands of that kind use their numbers.
MOST = 3
WHOLE = {"driver_rdma": ("CREATE_CQ",)}
# The first commands of every driver, and those that create the objects which others need.
START = ("ENABLE_HCA SET_ISSI MANAGE_PAGES SET_HCA_CAP INIT_HCA SET_DRIVER_VERSION ALLOC_UAR ALLOC_PD "
         "ALLOC_TRANSPORT_DOMAIN CREATE_EQ").split()
ETHERNET = "_CQ SQ RQ TIS TIR RQT FLOW_ NIC_VPORT ETH".split()
RDMA = "MKEY XRC RMP SRQ QP Q_COUNTER ROCE _CQ".split()
KINDS = {
    "driver_questions": ("QUERY_", "ACCESS_REG", "CREATE_QP"),
    "driver_netdev": ETHERNET,
    "driver_rdma": RDMA,
    "driver_all": ("",),
}
LOWEST_ADDRESS, FOLD = 0x1000000, 0xFFFFF


def commands(log):
    """(name, input) of each command, in order."""
    name, data = None, bytearray()
    for line in log.read_text(errors="replace").splitlines():
        if found := re.search(r"dump command data (\w+)\(0x[0-9a-f]+\) (INPUT|OUTPUT)", line):
            name, data = (found[1] if found[2] == "INPUT" else None), bytearray()
        elif found := re.search(r"cmd\[\d+\]: [0-9a-f]+:((?: [0-9a-f]{8}){4})", line):
            data += bytes.fromhex(found[1])
        elif name is not None and "end dump" in line:
            yield name, bytes(data)
            name = None


def folded(name, data):
    """Moves quadwords that look like guest addresses into the fuzzer's memory. Pages given to the device are never read."""
    if name == "MANAGE_PAGES":
        return data
    out = bytearray(data)
    for at in range(16, len(out) - 7, 8):
        high, low = struct.unpack_from(">II", out, at)
        if high == 0 and LOWEST_ADDRESS <= low < 1 << 31:
            struct.pack_into(">I", out, at + 4, low & FOLD)
    return bytes(out)


def record(name, data):
    """The fuzzer pads a short command with zeros. The last address of a list stays whole."""
    data = folded(name, data)
    used = -(-len(data.rstrip(b"\0")) // 8) * 8
    data = data[:max(16, used)]
    return command(name, {}, data[8:], size=8, op_mod=data[7])


def seed(all_commands, words, whole):
    out = command("TEARDOWN_HCA", {}, size=16) + command("DISABLE_HCA", {}, size=16)
    seen = collections.Counter()
    for name, data in all_commands:
        if name not in NAMES or not (name in START or any(word in name for word in words)):
            continue
        seen[name] += 1
        if name not in START and name not in whole and seen[name] > MOST:
            continue
        one = record(name, data)
        if len(out) + len(one) > LIMIT:
            break
        out += one
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    all_commands = list(commands(parser.parse_args().log))
    if not all_commands:
        parser.error("no command in this log: was mlx5_core loaded with debug_mask=1 dyndbg=+p?")
    for name, words in KINDS.items():
        data = seed(all_commands, words, WHOLE.get(name, ()))
        corpus.keep("connectx_command", {name: data})
        print(f"{name}: {len(data)} bytes")


if __name__ == "__main__":
    main()
