"""Inputs of roce_link: see roce_link_fuzzer.cc."""

import struct

RAW, CHANGED, RECEIVE, FRAME, DEVICE, ADDRESSES, DELIVER, TIME = range(8)


def raw(data, tos=0, ttl=63):
    return struct.pack("<BH", RAW, len(data)) + data + bytes([tos, ttl])


def changed(size, bits=0, at=0, cut=0, tos=0):
    return struct.pack("<BHBHBB", CHANGED, size, bits, at, cut, tos)


def receive(count):
    return bytes([RECEIVE, count])


def frame(data):
    return struct.pack("<BH", FRAME, len(data)) + data


def device(source, destination, size, traffic_class=0, hop_limit=64):
    return struct.pack("<BBBBBH", DEVICE, source - 1, destination - 1, traffic_class, hop_limit, size) + bytes(size)


def addresses(which):
    return bytes([ADDRESSES, which])


def time(milliseconds):
    return struct.pack("<BH", TIME, milliseconds)


def inputs():
    """(fuzzer, name, bytes)"""
    yield "roce_link", "genuine", changed(64) + changed(1024, tos=2) + changed(4096) + receive(2) + receive(255)
    yield "roce_link", "corrupt", b"".join(changed(64, 1, at) for at in range(0, 80, 7)) + receive(255)
    yield "roce_link", "cut", b"".join(changed(0, cut=cut) for cut in range(16)) + receive(255)
    yield "roce_link", "junk", raw(b"") + raw(b"x") + raw(bytes(12)) + raw(bytes(4999), 255, 0) + receive(255)
    # To the peer, whose port is another one: ICMP says so. To addresses without a host.
    yield "roce_link", "device", device(1, 3, 100) * 3 + time(10) + receive(9) + device(1, 8, 4096, 3, 0) + device(2, 1, 9)
    yield "roce_link", "itself", device(1, 1, 100) * 40 + receive(32) + receive(255)
    yield "roce_link", "addresses", addresses(3) + device(2, 1, 50) + addresses(0) + changed(10) + receive(9) + addresses(2)
    yield "roce_link", "frames", frame(b"") + frame(bytes(14)) + frame(bytes.fromhex("065fcb000001020000000001") + b"\x08\x00" + bytes(60))
    yield "roce_link", "delivered", struct.pack("<BBHH", DELIVER, 3, 0xc000, 40) + bytes(40) + changed(64) + receive(1)
