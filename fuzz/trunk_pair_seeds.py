"""Inputs of trunk_pair: see trunk_pair_fuzzer.cc."""

import struct

SEND, ALL, DELIVER, LOSE, TWICE, LATER, DAMAGE, TIME, AGAIN, MTU, RESTART = range(11)


def join():
    """Both hubs join each other: hellos, cookies, keys, and the search for the path's MTU."""
    return b"".join(time(100) + deliver(64) for _ in range(12))


def time(milliseconds, host=0):
    return struct.pack("<BBH", TIME, host, milliseconds)


def deliver(count, host=0):
    return struct.pack("<BBB", DELIVER, host, count)


def send(host, size, what=SEND):
    return struct.pack("<BBH", what, host, size)


def change(what, host=0):
    return struct.pack("<BB", what, host)


def damage(at, bits):
    return struct.pack("<BBHB", DAMAGE, 0, at, bits)


def again(at):
    return struct.pack("<BBB", AGAIN, 0, at)


def mtu(size):
    return struct.pack("<BBH", MTU, 0, size - 100)


def restart(host):
    return struct.pack("<BBB", RESTART, host, 0)


def inputs():
    frames = send(0, 40) + send(1, 1400) + send(0, 9000) + send(1, 16000) + send(0, 60, ALL)
    yield "trunk_pair", "frames", join() + frames + deliver(64)
    yield "trunk_pair", "lossy", join() + frames + change(LOSE) + deliver(2) + change(LOSE) + deliver(64) + time(2500)
    yield "trunk_pair", "twice", join() + frames + change(TWICE) * 3 + deliver(64) + change(TWICE) + deliver(64)
    yield "trunk_pair", "reordered", join() + frames + change(LATER) * 5 + deliver(3) + change(LATER) * 2 + deliver(64)
    yield "trunk_pair", "damaged", join() + frames + damage(50, 1) + deliver(1) + damage(8, 255) + deliver(1) + deliver(64)
    yield "trunk_pair", "replayed", join() + frames + deliver(64) + b"".join(again(i) for i in range(0, 64, 3)) + deliver(64)
    yield "trunk_pair", "narrow", join() + mtu(1300) + time(2900) * 3 + deliver(255) + frames + deliver(64) + mtu(200) + time(2900) * 2
    yield "trunk_pair", "restarted", join() + frames + restart(0) + deliver(64) + join() + frames + deliver(64) + restart(1) + join()
    yield "trunk_pair", "silent", join() + time(2900) * 3 + frames + deliver(255) + time(2900) + deliver(255)
    yield "trunk_pair", "hello_lost", time(50) + change(LOSE) * 2 + time(300) + change(TWICE) + deliver(2) + change(LATER) + deliver(9)
