#!/usr/bin/env python3
"""A Python program with pyverbs: two QPs of one process, and every RC operation between them; every byte is checked."""

from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

try:
    import pyverbs.enums as e
except ModuleNotFoundError:  # later ones have them in classes
    import pyverbs.libibverbs_enums as classes

    class e:
        pass

    for one in ("ibv_access_flags", "ibv_mtu", "ibv_qp_type", "ibv_wc_status", "ibv_wr_opcode"):
        for member in getattr(classes, one):
            setattr(e, member.name, member)

SIZE = 100_000
ACCESS = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
          | e.IBV_ACCESS_REMOTE_ATOMIC)


class Side:
    def __init__(self, context):
        self.pd = PD(context)
        self.cq = CQ(context, 16)
        self.mr = MR(self.pd, SIZE, ACCESS)
        cap = QPCap(max_send_wr=8, max_recv_wr=8)
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap))

    def connect(self, other, gid):
        route = GlobalRoute(dgid=gid, sgid_index=3)
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = ACCESS
        attr.dest_qp_num = other.qp.qp_num
        attr.path_mtu = e.IBV_MTU_1024
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
        attr.rq_psn = attr.sq_psn = 0
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        self.qp.to_rts(attr)

    def sge(self, length=SIZE):
        return SGE(self.mr.buf, length, self.mr.lkey)

    def post(self, request):
        self.qp.post_send(request)
        self.wait()

    def wait(self):
        count = 0
        while count == 0:
            count, completions = self.cq.poll()
        assert completions[0].status == e.IBV_WC_SUCCESS, completions[0]


context = Context(name=get_device_list()[0].name.decode())
gid = context.query_gid(1, 3)
a, b = Side(context), Side(context)
a.connect(b, gid)
b.connect(a, gid)


def pattern(seed):
    return bytes((seed * 7 + i) % 251 for i in range(SIZE))


for turn, opcode in enumerate((e.IBV_WR_SEND, e.IBV_WR_RDMA_WRITE)):
    a.mr.write(pattern(turn), SIZE)
    if opcode == e.IBV_WR_SEND:
        b.qp.post_recv(RecvWR(num_sge=1, sg=[b.sge()]))
    request = SendWR(num_sge=1, sg=[a.sge()], opcode=opcode)
    request.set_wr_rdma(b.mr.rkey, b.mr.buf)
    a.post(request)
    if opcode == e.IBV_WR_SEND:
        b.wait()
    assert b.mr.read(SIZE, 0) == pattern(turn), opcode
b.mr.write(pattern(5), SIZE)
request = SendWR(num_sge=1, sg=[a.sge()], opcode=e.IBV_WR_RDMA_READ)
request.set_wr_rdma(b.mr.rkey, b.mr.buf)
a.post(request)
assert a.mr.read(SIZE, 0) == pattern(5)
b.mr.write((40).to_bytes(8, "little"), 8)
request = SendWR(num_sge=1, sg=[a.sge(8)], opcode=e.IBV_WR_ATOMIC_FETCH_AND_ADD)
request.set_wr_atomic(b.mr.rkey, b.mr.buf, 2, 0)
a.post(request)
assert a.mr.read(8, 0) == (40).to_bytes(8, "little") and b.mr.read(8, 0) == (42).to_bytes(8, "little")
print("SEND, RDMA WRITE, RDMA READ and an atomic: right")
