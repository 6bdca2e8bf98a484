#!/usr/bin/python3
"""Checks a capture with independent decoders.

tshark must decode every UDP packet to port 4791 as RoCEv2, none malformed, and in frames of EtherType 8915h the packets
of every operation that ladder_17_roce_v1.sh does by RoCE v1; scapy must compute the ICRC that each packet of v2 carries.
"""
import functools
import logging
import subprocess
import sys

logging.getLogger("scapy.runtime").setLevel(logging.ERROR)
from scapy.contrib.roce import BTH  # noqa: E402
from scapy.layers.inet import UDP  # noqa: E402
from scapy.layers.l2 import Ether  # noqa: E402
from scapy.utils import RawPcapNgReader  # noqa: E402

PACKETS_MAX = 4000  # scapy is slow: this many packets have their ICRC computed
# In frames without VLAN tags, as the guest sends them. To let scapy dissect each frame would take longer than all the rest.
IP_FIRST, IPV4_WITHOUT_OPTIONS = slice(12, 15), b"\x08\x00\x45"
UDP_DESTINATION, ROCE_V2_PORT = slice(36, 38), (4791).to_bytes(2, "big")


def run_tshark(*arguments):
    return subprocess.run(["tshark", *arguments], check=True, capture_output=True, text=True).stdout.splitlines()


@functools.cache
def no_guesses():
    """Options that keep tshark from guessing a payload's protocol. Programs send random bytes, which sometimes look like
    the beginning of a malformed packet of another protocol, also in packets that scapy makes."""
    options = ["--disable-heuristic", "eth_over_ib"]  # of the protocol `ethertype`, which everything needs
    for line in run_tshark("-G", "heuristic-decodes"):
        where, protocol = line.split("\t")[:2]
        if where == "infiniband.payload" and protocol != "ethertype":
            options += ["--disable-protocol", protocol]
    return options


# Operations of RoCE v1 and the opcodes of their packets (IBTA 9.2, Table 38): of a message in one packet or in several.
ROCE_V1 = {
    "RC SEND": range(0x00, 0x06), "RC WRITE": range(0x06, 0x0c), "RC READ": {0x0c}, "RC READ response": range(0x0d, 0x11),
    "RC FETCH AND ADD": {0x14}, "UC SEND": range(0x20, 0x26), "UD SEND": {0x64},
}


def tshark(path, *arguments):
    return run_tshark("-r", path, *no_guesses(), *arguments)


def check_tshark(path):
    roce = len(tshark(path, "-Y", "udp.dstport==4791"))
    decoded = len(tshark(path, "-Y", "udp.dstport==4791 && infiniband.bth"))
    bad = tshark(path, "-Y", "_ws.malformed || _ws.unreassembled || (udp.dstport==4791 && _ws.expert.severity>=8388608)")
    print(f"tshark: {roce} RoCEv2 packets, {decoded} decoded, {len(bad)} malformed")
    for line in bad[:10]:
        print("  " + line)
    return roce > 0 and decoded == roce and not bad


def check_roce_v1(path):
    """Finds the packets of programs that used a GID of version 1, among those of version 2."""
    lines = tshark(path, "-Y", "eth.type==0x8915", "-T", "fields", "-e", "infiniband.bth.opcode")
    opcodes = {int(line, 0) for line in lines if line}
    missing = [name for name, codes in ROCE_V1.items() if opcodes.isdisjoint(codes)]
    print(f"tshark: {len(lines)} packets of RoCE v1, without {', '.join(missing) or 'an operation that is missing'}")
    return not missing


def check_icrc(path):
    checked = wrong = 0
    opcodes = {}
    total = len(tshark(path, "-Y", "udp.dstport==4791"))
    step = max(1, total // PACKETS_MAX)
    index = -1
    for raw, _ in RawPcapNgReader(path):
        if raw[IP_FIRST] != IPV4_WITHOUT_OPTIONS or raw[UDP_DESTINATION] != ROCE_V2_PORT:
            continue
        index += 1
        if index % step:
            continue
        bth = Ether(raw)[UDP][BTH]
        expected = bth.compute_icrc(bytes(bth)[:-4])
        checked += 1
        opcodes[bth.opcode] = opcodes.get(bth.opcode, 0) + 1
        if expected != raw[-4:]:
            wrong += 1
            if wrong <= 5:
                print(f"  packet {index}: ICRC {raw[-4:].hex()}, computed {expected.hex()}")
    print(f"scapy: {checked} ICRCs computed, {wrong} differ; opcodes "
          + ", ".join(f"{code:#x}: {count}" for code, count in sorted(opcodes.items())))
    if checked != -(-total // step):
        print(f"scapy: {index + 1} packets, but tshark has found {total}")
        return False
    return checked > 0 and wrong == 0


if __name__ == "__main__":
    ok = check_tshark(sys.argv[1])
    ok = check_roce_v1(sys.argv[1]) and ok
    ok = check_icrc(sys.argv[1]) and ok
    sys.exit(0 if ok else 1)
