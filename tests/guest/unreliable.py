#!/usr/bin/env python3
"""Messages that a lossy wire may lose and must not change: unreliable.py [OPTION]... [SERVER].

With SERVER it sends, without it receives. Each message has its number, and bytes that follow from the number. The messages
that arrive must be correct, in order, and not repeated, and must be most of those sent. Only a few messages are in flight,
because a slow guest drops frames that its netdev has no room for, which is not under test.
"""

import argparse
import random
import socket
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PORT = 18516
QKEY = 0x11111111
GRH = 40
AT_ONCE = 10  # messages
QUIET = 0.5  # seconds without a message after which none is expected any more
LEAST = 0.7  # of what was sent


def message(number, size):
    return number.to_bytes(4, "big") + random.Random(number).randbytes(size - 4)


class Side:
    def __init__(self, options, peer):
        self.options, self.peer = options, peer
        self.datagram = options.service == "UD"
        self.slot = options.size + GRH
        self.context = Context(name=options.dev)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, options.count + 1)
        self.mr = MR(self.pd, self.slot * options.count, e.IBV_ACCESS_LOCAL_WRITE)
        cap = QPCap(max_send_wr=4, max_recv_wr=options.count)
        kind = e.IBV_QPT_UD if self.datagram else e.IBV_QPT_UC
        self.qp = QP(self.pd, QPInitAttr(qp_type=kind, scq=self.cq, rcq=self.cq, cap=cap))
        gid = self.context.query_gid(1, options.gid_index).gid
        peer.write(f"{self.qp.qp_num} {gid}\n")
        peer.flush()
        number, gid = peer.readline().split()
        self.connect(int(number), gid)

    def connect(self, number, gid):
        route = GlobalRoute(dgid=GID(gid), sgid_index=self.options.gid_index)
        path = AHAttr(gr=route, is_global=1, port_num=1)
        attributes = QPAttr(port_num=1)
        if self.datagram:
            attributes.qkey = QKEY
            self.to, self.ah = number, AH(self.pd, attr=path)
        else:
            attributes.path_mtu = {256: e.IBV_MTU_256, 512: e.IBV_MTU_512, 1024: e.IBV_MTU_1024, 2048: e.IBV_MTU_2048,
                                   4096: e.IBV_MTU_4096}[self.options.mtu]
            attributes.dest_qp_num, attributes.ah_attr = number, path
            attributes.rq_psn = attributes.sq_psn = 0xFFFFF0  # it passes zero
        self.qp.to_rts(attributes)

    def say(self, word):
        self.peer.write(word + "\n")
        self.peer.flush()

    def send(self):
        assert self.peer.readline() == "ready\n"
        size = self.options.size
        for i in range(self.options.count):
            self.mr.write(message(i, size), size, 0)
            request = SendWR(wr_id=i, num_sge=1, sg=[SGE(self.mr.buf, size, self.mr.lkey)],
                             opcode=e.IBV_WR_SEND, send_flags=e.IBV_SEND_SIGNALED)
            if self.datagram:
                request.set_wr_ud(self.ah, self.to, QKEY)
            self.qp.post_send(request)
            while not (polled := self.cq.poll())[0]:
                pass
            if polled[1][0].status != e.IBV_WC_SUCCESS:
                sys.exit(f"FAIL: message {i} was not sent: status {polled[1][0].status}")
            if (i + 1) % AT_ONCE == 0:
                self.say("look")
                if self.peer.readline() != "go on\n":
                    sys.exit("FAIL: the receiver ends before all is sent")
        self.say("sent")
        if self.peer.readline() != "right\n":
            sys.exit("FAIL: the receiver is not content")

    def receive(self):
        for i in range(self.options.count):
            sge = SGE(self.mr.buf + i * self.slot, self.slot, self.mr.lkey)
            self.qp.post_recv(RecvWR(wr_id=i, num_sge=1, sg=[sge]))
        self.say("ready")
        self.numbers = []
        while (word := self.peer.readline()) == "look\n":
            self.take(AT_ONCE)
            self.say("go on")
        if word != "sent\n":
            sys.exit("FAIL: the sender ends before all is sent")
        # Those of earlier looks, too: on a busy machine they may come after QUIET seconds.
        self.take(self.options.count - len(self.numbers))
        numbers, size = self.numbers, self.options.size
        if numbers != sorted(set(numbers)):
            sys.exit(f"FAIL: out of order, or twice: {numbers}")
        print(f"{self.options.service}, {size} bytes: {len(numbers)} of {self.options.count} messages, all right")
        if len(numbers) < LEAST * self.options.count:
            sys.exit("FAIL: too many are lost")
        self.say("right")

    def take(self, most):
        """Takes the messages that have arrived, and those that arrive until none comes for QUIET seconds."""
        header, size = GRH if self.datagram else 0, self.options.size
        at, left = time.monotonic(), most
        while left > 0 and time.monotonic() < at + QUIET:
            count, completions = self.cq.poll(16)
            for wc in completions[:count]:
                at = time.monotonic()
                left -= 1
                have = bytes(self.mr.read(size, wc.wr_id * self.slot + header))
                number = int.from_bytes(have[:4], "big")
                if wc.status != e.IBV_WC_SUCCESS or wc.byte_len != size + header or have != message(number, size):
                    sys.exit(f"FAIL: a message that nobody sent: status {wc.status}, {wc.byte_len} bytes")
                self.numbers.append(number)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-d", dest="dev", required=True)
    parser.add_argument("-g", dest="gid_index", type=int, required=True)
    parser.add_argument("-c", dest="service", choices=("UC", "UD"), required=True)
    parser.add_argument("-m", dest="mtu", type=int, default=1024)
    parser.add_argument("-s", dest="size", type=int, default=1000, help="bytes of a message")
    parser.add_argument("-n", dest="count", type=int, default=200, help="messages")
    parser.add_argument("server", nargs="?")
    options = parser.parse_args()
    if options.server:
        connection = socket.create_connection((options.server, PORT), timeout=200)
    else:
        connection, _ = socket.create_server(("", PORT)).accept()
    side = Side(options, connection.makefile("rw"))
    if options.server:
        side.send()
    else:
        side.receive()


if __name__ == "__main__":
    main()
