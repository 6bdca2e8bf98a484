#!/usr/bin/python3
"""check_icrc.py INTERFACE FILE: computes the ICRC of each RoCEv2 packet on an interface until SIGTERM.

FILE appears when the capture has begun. The last line says how many packets there were of each IP version, and how
many were for multicast groups, and how many ICRCs differ from zlib's CRC of the bytes that IBTA Annex A17 17.3.3 names.
"""
import select
import signal
import socket
import struct
import sys
import zlib

ETH_P_ALL, SOL_SOCKET, SO_RCVBUFFORCE = 3, 1, 33
ETHERNET, UDP, BTH, PORT = 14, 8, 12, 4791


def masked(packet, header, ones):
    """The packet from its IP header to the ICRC with ones in the variant fields; 8 more ones take the LRH's place."""
    packet = bytearray(packet)
    for at in (*ones, header + 6, header + 7, header + UDP + 4):  # UDP checksum, BTH Resv8a
        packet[at] = 0xff
    return bytes([0xff] * 8 + [*packet])


def icrc_is_right(frame):
    """The IP version, whether it is for a group, and whether the ICRC is right; nothing: another protocol."""
    packet = frame[ETHERNET:]
    kind = struct.unpack_from(">H", frame, 12)[0]
    if kind == 0x0800 and packet[9] == 17:
        version, header, size = 4, 20, struct.unpack_from(">H", packet, 2)[0]
        is_group = packet[16] >> 4 == 0xe
        covered = masked(packet[:size - 4], header, (1, 8, 10, 11)) if len(packet) >= 44 else b""
    elif kind == 0x86dd and packet[6] == 17:
        version, header, size = 6, 40, 40 + struct.unpack_from(">H", packet, 4)[0]
        is_group = packet[24] == 0xff
        covered = masked(packet[:size - 4], header, (1, 2, 3, 7)) if len(packet) >= 64 else b""
        covered = covered[:8] + bytes([packet[0] | 0x0f]) + covered[9:]  # the traffic class's upper half
    else:
        return None
    if struct.unpack_from(">H", packet, header + 2)[0] != PORT:
        return None
    return version, is_group, struct.pack("<I", zlib.crc32(covered)) == packet[size - 4:size]


def main():
    interface, ready = sys.argv[1:]
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    wire.setsockopt(SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    wire.bind((interface, 0))
    wire.setblocking(False)
    end, signals = socket.socketpair()  # a signal writes to it, so it ends a select() that has not begun as well
    signals.setblocking(False)
    signal.set_wakeup_fd(signals.fileno())
    signal.signal(signal.SIGTERM, lambda *_: None)
    open(ready, "w", encoding="utf-8").close()
    count, groups, wrong = {4: 0, 6: 0}, 0, 0
    while True:
        readable = select.select([wire, end], [], [])[0]
        if wire not in readable:
            break  # only the signal: all packets before it have been read
        found = icrc_is_right(wire.recv(65536))
        if found:
            count[found[0]] += 1
            groups += found[1]
            wrong += not found[2]
    some = [f"{'no' if count[version] == 0 else 'some'} IPv{version}" for version in (4, 6)]
    print(f"{some[0]}, {some[1]}, {groups} to groups, {wrong} wrong")


main()
