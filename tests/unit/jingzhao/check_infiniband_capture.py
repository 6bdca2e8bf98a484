#!/usr/bin/env python3
"""Checks a capture of an InfiniBand link: both CRCs of each packet by the words of IBTA 7.8, bit by bit, and what
tshark makes of it, if it is there.

    check_infiniband_capture.py FILE

Prints what it has seen; status 0 if all is right.
"""
import collections
import shutil
import struct
import subprocess
import sys
import zlib

LINKTYPE_ERF = 197
ERF_INFINIBAND = 21
ERF_HEADER = 16


def packets(path):
    data = open(path, "rb").read()
    links, at = [], 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == 1:
            links.append(struct.unpack_from("<H", data, at + 8)[0])
        if kind == 6:
            interface, _, _, size = struct.unpack_from("<IIII", data, at + 8)
            packet = data[at + 28:at + 28 + size]
            good = links[interface] == LINKTYPE_ERF and packet[8] == ERF_INFINIBAND and \
                struct.unpack_from(">H", packet, 10)[0] == size and \
                struct.unpack_from(">H", packet, 14)[0] == size - ERF_HEADER
            yield good, packet[ERF_HEADER:]
        at += length


def reversed_byte(value):
    return int(f"{value:08b}"[::-1], 2)


def vcrc(packet):
    """IBTA 7.8.2: x^16 + x^12 + x^3 + x + 1 from all ones, each byte from its lowest bit on, complemented."""
    register = 0xFFFF
    for byte in packet:
        for bit in range(8):
            feedback = (register >> 15) ^ (byte >> bit & 1)
            register = register << 1 & 0xFFFF
            if feedback:
                register ^= 0x100B
    register ^= 0xFFFF
    return bytes([reversed_byte(register >> 8), reversed_byte(register & 0xFF)])


def icrc(packet):
    """IBTA 7.8.1: CRC-32 of all that does not change; a global packet has ones for its LRH."""
    packet = bytearray(packet)
    bth = 8
    if packet[1] & 3 == 3:
        packet[0:8] = b"\xff" * 8
        packet[8] |= 0x0F  # traffic class and flow label
        packet[9:12] = b"\xff" * 3
        packet[15] = 0xFF  # hop limit
        bth += 40
    else:
        packet[0] |= 0xF0  # virtual lane
    packet[bth + 4] = 0xFF  # reserved, for FECN and BECN
    return struct.pack("<I", zlib.crc32(packet))


def check_tshark(path, total):
    if shutil.which("tshark") is None:
        print("tshark: not here")
        return True
    # A payload of random bytes, or of none, is no other protocol's.
    quiet = ["--disable-heuristic", "eth_over_ib"]
    for line in subprocess.run(["tshark", "-G", "heuristic-decodes"], check=True, capture_output=True,
                               text=True).stdout.splitlines():
        where, protocol = line.split("\t")[:2]
        if where == "infiniband.payload" and protocol != "ethertype":
            quiet += ["--disable-protocol", protocol]

    def run(*arguments):
        return subprocess.run(["tshark", "-r", path, *quiet, *arguments], check=True, capture_output=True,
                              text=True).stdout.splitlines()

    bad = run("-Y", "_ws.malformed")
    decoded = len(run("-Y", "infiniband.lrh && infiniband.bth"))
    smps = len(run("-Y", "infiniband.bth.destqp == 0 && infiniband.mad.baseversion == 1"))
    print(f"tshark: {decoded} of {total} decoded, {smps} with a MAD for QP0, {len(bad)} malformed")
    for line in bad[:10]:
        print("  " + line)
    return decoded == total and smps > 0 and not bad


def main():
    seen = list(packets(sys.argv[1]))
    wrong_links = sum(not good for good, _ in seen)
    wrong_icrcs = sum(icrc(packet[:-6]) != packet[-6:-2] for _, packet in seen)
    wrong_vcrcs = sum(vcrc(packet[:-2]) != packet[-2:] for _, packet in seen)
    lanes = collections.Counter(packet[0] >> 4 for _, packet in seen)
    print(f"{len(seen)} packets, on lanes {dict(lanes)}; wrong: {wrong_links} link types, {wrong_icrcs} ICRCs, "
          f"{wrong_vcrcs} VCRCs")
    good = check_tshark(sys.argv[1], len(seen))
    good = good and set(lanes) == {0, 15} and not wrong_links and not wrong_icrcs and not wrong_vcrcs
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
