#!/usr/bin/env python3
"""Writes seeds of vfio_user_fuzzer from what a QEMU has sent: fuzz/qemu_seeds.py TRACE

TRACE is strace's of a server from its first client to its last (fuzz/README.md has the command). The messages come in QEMU's
order, each kind and neighbourhood twice, in seeds of a few kilobytes that begin as a connection does. Addresses of
the guest's memory and sizes are folded into the fuzzer's file.
"""

import argparse
import collections
import re
import struct
from pathlib import Path

import corpus
from vfio_user_seeds import EVENTFD, MEMORY, NONE, TWO_EVENTFDS, V, command

LIMIT = 4096  # MAX_LEN_OTHERS of fuzz/run
FILE_PAGES = 16
VERSION, DMA_MAP, DMA_UNMAP, REGION_READ, REGION_WRITE, SET_IRQS, RESET = 1, 2, 3, 9, 10, 8, 13
MOST = 2


def messages(trace):
    """(command, flags, payload, number of descriptors) of each message of the server's first client."""
    stream, fds, socket = bytearray(), [], None
    for line in trace.read_text(errors="replace").splitlines():
        found = re.search(r"recvmsg\((\d+), .*?iov_base=\"((?:\\x[0-9a-f]{2})*)\".*\) = (\d+)$", line)
        if not found or "SCM_RIGHTS" not in line and int(found[3]) == 0:
            continue
        socket = socket or found[1]
        if found[1] != socket:
            continue
        data = bytes.fromhex(found[2].replace("\\x", ""))
        if len(data) != int(found[3]):
            break  # strace has cut it: -s was too small
        if rights := re.search(r"cmsg_data=\[([0-9, ]+)\]", line):
            fds.append((len(stream), rights[1].count(",") + 1))
        stream += data
    at = 0
    while at + 16 <= len(stream):
        _, number, size, flags, _ = struct.unpack_from("<HHIII", stream, at)
        if size < 16:
            break
        yield number, flags, bytes(stream[at + 16:at + size]), sum(n for where, n in fds if at <= where < at + size)
        at += size


def folded(number, payload):
    if number in (DMA_MAP, DMA_UNMAP):
        out = bytearray(payload)
        at = 8 if number == DMA_UNMAP else 16
        address, size = struct.unpack_from("<QQ", out, at)
        struct.pack_into("<QQ", out, at, address % (FILE_PAGES << 12), min(size, FILE_PAGES << 12))
        if number == DMA_MAP:
            struct.pack_into("<Q", out, 8, 0)
        return bytes(out)
    return payload


def kind(number, payload):
    """A key that tells kinds of messages apart. For registers: neighborhood and size."""
    if number in (REGION_READ, REGION_WRITE):
        offset, region, count = struct.unpack_from("<QII", payload)
        return number, region, offset >> 8, count
    return number, payload[:20]


def records(trace):
    seen = collections.Counter()
    for number, flags, payload, fds in messages(trace):
        if number == VERSION or flags & 0xF or len(payload) > 300:
            continue
        seen[kind(number, payload)] += 1
        if seen[kind(number, payload)] > MOST:
            continue
        sends = NONE if fds == 0 else MEMORY if number == DMA_MAP else EVENTFD if fds == 1 else TWO_EVENTFDS
        yield number, command(number, folded(number, payload), sends, flags)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    every = list(records(parser.parse_args().trace))
    if not every:
        parser.error("no message in this trace: see fuzz/README.md")
    seeds, setup, current = [], V, V
    for number, record in every:
        if number in (DMA_MAP, SET_IRQS) and len(setup) < LIMIT // 4:
            setup += record
        if len(current) + len(record) > LIMIT:
            seeds.append(current)
            current = setup
        current += record
    for number, seed in enumerate(seeds + [current]):
        corpus.keep("vfio_user", {f"qemu_{number}": seed})
    print(f"{len(every)} messages in {len(seeds) + 1} seeds")


if __name__ == "__main__":
    main()
