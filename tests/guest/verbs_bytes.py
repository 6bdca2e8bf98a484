#!/usr/bin/env python3
"""Every byte that SEND, WRITE, READ and atomics move between two devices: verbs_bytes.py DEVICE INDEX DEVICE INDEX.

The devices are those of hosts a and b, the indices their GIDs'. Each operation is done by RC, UC or UD in both directions with
sizes about the path MTU's. Its destination lies between bytes that must stay as they are, on both sides, and all of them are
compared.
"""

import os
import random
import sys

import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

from wait import wait_for

MTU, LONGEST = 1024, 300_000
SIZES = (1, 3, 7, 8, 64, MTU - 1, MTU, MTU + 1, 2 * MTU, 5 * MTU + 5, 65536, LONGEST)
GUARD, GRH = 256, 40
QKEY = 0x11111111
REMOTE = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
          | e.IBV_ACCESS_REMOTE_ATOMIC)
KINDS = {"RC": e.IBV_QPT_RC, "UC": e.IBV_QPT_UC, "UD": e.IBV_QPT_UD}
OPCODES = {"send": e.IBV_WR_SEND, "write": e.IBV_WR_RDMA_WRITE, "write_imm": e.IBV_WR_RDMA_WRITE_WITH_IMM,
           "read": e.IBV_WR_RDMA_READ, "fetch_add": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
           "cmp_swap": e.IBV_WR_ATOMIC_CMP_AND_SWP}
OF_SERVICE = {"RC": ("send", "write", "write_imm", "read"), "UC": ("send", "write", "write_imm"), "UD": ("send",)}
MASK = (1 << 64) - 1


def room(size):
    return GUARD + GRH + size + GUARD


class End:
    """One device, in the network namespace of its host."""

    def __init__(self, host, device, index):
        with open(f"/run/netns/{host}", encoding="ascii") as namespace:
            os.setns(namespace.fileno(), os.CLONE_NEWNET)
        self.host, self.index = host, index
        self.context = Context(name=device)
        self.gid = self.context.query_gid(1, index)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 64)
        self.mr = MR(self.pd, room(LONGEST), REMOTE)

    def make_qp(self, service):
        self.ah = None
        cap = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
        self.qp = QP(self.pd, QPInitAttr(qp_type=KINDS[service], scq=self.cq, rcq=self.cq, cap=cap))

    def connect(self, service, other):
        route = GlobalRoute(dgid=other.gid, sgid_index=self.index)
        path = AHAttr(gr=route, is_global=1, port_num=1)
        attributes = QPAttr(port_num=1)
        if service == "UD":
            attributes.qkey = QKEY
            self.qp.to_rts(attributes)
            self.ah = AH(self.pd, attr=path)
            return
        attributes.qp_access_flags = REMOTE
        attributes.path_mtu = e.IBV_MTU_1024
        attributes.dest_qp_num = other.qp.qp_num
        attributes.ah_attr = path
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 4
        attributes.min_rnr_timer = 12
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 18, 7, 7
        self.qp.to_rts(attributes)

    def close_qp(self):
        if self.ah is not None:
            self.ah.close()
        self.qp.close()

    def fill(self, content):
        self.mr.write(content, len(content))
        self.want = bytearray(content)

    def expect(self, at, content):
        self.want[at:at + len(content)] = content

    def have(self):
        return bytes(self.mr.read(len(self.want), 0))

    def check(self, what):
        have = self.have()
        if have != self.want:
            at = next(i for i in range(len(have)) if have[i] != self.want[i])
            sys.exit(f"FAIL: {what}: host {self.host} has {have[at:at + 8].hex()} at {at} instead of "
                     f"{bytes(self.want[at:at + 8]).hex()}")

    def complete(self, what):
        completion = wait_for(60, f"completion of {what}", lambda: self.cq.poll(1)[1])[0]
        if completion.status != e.IBV_WC_SUCCESS:
            sys.exit(f"FAIL: {what}: status {completion.status} on host {self.host}")
        return completion


def do(service, operation, size, sender, receiver, source):
    what = f"{operation} by {service} of {size} bytes from {sender.host}"
    for end in (sender, receiver):
        end.fill(source.randbytes(room(size)))
    by_receive = operation in ("send", "write_imm")
    if by_receive:
        receiver.qp.post_recv(RecvWR(num_sge=1, sg=[SGE(receiver.mr.buf + GUARD, GRH + size, receiver.mr.lkey)]))
    request = SendWR(num_sge=1, sg=[SGE(sender.mr.buf + GUARD, size, sender.mr.lkey)], opcode=OPCODES[operation],
                     send_flags=e.IBV_SEND_SIGNALED)
    there = receiver.mr.buf + GUARD
    if operation in ("write", "write_imm", "read"):
        request.set_wr_rdma(receiver.mr.rkey, there)
    if service == "UD":
        request.set_wr_ud(sender.ah, receiver.qp.qp_num, QKEY)
    sender.qp.post_send(request)
    sender.complete(what)
    received = receiver.complete(what) if by_receive else None
    more = GRH if service == "UD" else 0
    if received and received.byte_len != size + more:
        sys.exit(f"FAIL: {what}: {received.byte_len} bytes were received")
    if operation == "read":
        sender.expect(GUARD, receiver.want[GUARD:GUARD + size])
    else:
        if more:  # 40 bytes in front, of which those of an IPv4 header say little
            receiver.expect(GUARD, receiver.mr.read(GRH, GUARD))
        receiver.expect(GUARD + more, sender.want[GUARD:GUARD + size])
    if service == "UC" and not by_receive:  # it may complete before it arrives
        wait_for(60, f"last byte of {what}", lambda: receiver.have() == receiver.want)
    for end in (sender, receiver):
        end.check(what)


def do_atomic(operation, sender, receiver, source):
    for is_equal in (True, False) if operation == "cmp_swap" else (True,):
        what = f"{operation} from {sender.host}"
        for end in (sender, receiver):
            end.fill(source.randbytes(room(8)))
        before = int.from_bytes(receiver.want[GUARD:GUARD + 8], "little")
        first, second = source.getrandbits(64), source.getrandbits(64)
        if operation == "cmp_swap" and is_equal:
            first = before
        request = SendWR(num_sge=1, sg=[SGE(sender.mr.buf + GUARD, 8, sender.mr.lkey)], opcode=OPCODES[operation],
                         send_flags=e.IBV_SEND_SIGNALED)
        request.set_wr_atomic(receiver.mr.rkey, receiver.mr.buf + GUARD, first, second)
        sender.qp.post_send(request)
        sender.complete(what)
        after = before + first & MASK if operation == "fetch_add" else second if is_equal else before
        sender.expect(GUARD, before.to_bytes(8, "little"))
        receiver.expect(GUARD, after.to_bytes(8, "little"))
        for end in (sender, receiver):
            end.check(what)


def main():
    seed = int(os.environ.get("SEED", "1"))
    source = random.Random(seed)
    ends = [End(host, device, int(index))
            for host, device, index in (("a", *sys.argv[1:3]), ("b", *sys.argv[3:5]))]
    done = 0
    for service, operations in OF_SERVICE.items():
        for end in ends:
            end.make_qp(service)
        for end, other in (ends, ends[::-1]):
            end.connect(service, other)
        for sender, receiver in (ends, ends[::-1]):
            for operation in operations:
                for size in SIZES:
                    if service != "UD" or size <= MTU:
                        do(service, operation, size, sender, receiver, source)
                        done += 1
            for operation in ("fetch_add", "cmp_swap") if service == "RC" else ():
                do_atomic(operation, sender, receiver, source)
                done += 1
        for end in ends:
            end.close_qp()
    print(f"seed {seed}: {done} operations, every byte of both sides as it must be")


if __name__ == "__main__":
    main()
