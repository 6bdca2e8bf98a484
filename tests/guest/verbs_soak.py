#!/usr/bin/env python3
"""One of two guests that use each other's memory in every way for a while, and check every byte and every completion.

Both draw the same plan from the seed, round by round: which queue pairs do which operation, with how many bytes. In a
round each guest posts its requests, waits for exactly the completions that are due, and compares all data: received
messages, memory that the other has written, data that it has read, results of atomics. DC initiators use another target
each round. Between rounds the guests reset queue pairs, or replace them, their keys or their CQs. Sometimes the second
guest unloads its driver while the first one's queue pairs stay: their requests must then end in "retry exceeded".

The guests synchronize by TCP. They end after --rounds, or --seconds by the first one's clock. The first one prints the
progress. /share/soak.warm appears when every operation was done once, /share/soak.done at the end. Each time the guests
wait for /share/soak.WORD.measured: the host measures the server's memory while nothing changes.
"""

import argparse
import json
import os
import random
import socket
import subprocess
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.providers.mlx5 import mlx5_enums as dv
from pyverbs.providers.mlx5.mlx5dv import Mlx5Context, Mlx5DVContextAttr, Mlx5DVDCInitAttr, Mlx5DVQPInitAttr, Mlx5QP
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr, QPInitAttrEx
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr, SrqInitAttrEx
from pyverbs.wr import SGE, RecvWR, SendWR
from pyverbs.xrcd import XRCD, XRCDInitAttr

from wait import wait_for

PORT = 7077
QKEY = 0x11111111
COMPLETION_LIMIT = 120  # seconds
DC_KEY = 0x2233445566778899
ROOM = 32 << 10  # bytes of a queue pair: a quarter each to send from, to receive in, for the peer, for READs
QUARTER = ROOM // 4
GRH = 40
GROUP = 50  # queue pairs of a CQ, an SRQ, a key
ACCESS = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
          | e.IBV_ACCESS_REMOTE_ATOMIC)
SERVICES = ("RC", "UC", "UD", "RC+SRQ", "XRC", "DC")
OF_SRQS = ("RC+SRQ", "XRC", "DC")
OPERATIONS = {
    "RC": ("send", "write", "write_imm", "read", "fetch_add"),
    "RC+SRQ": ("send", "write", "write_imm", "read", "fetch_add"),
    "XRC": ("send", "write", "write_imm", "read", "fetch_add"),
    "DC": ("send", "write", "write_imm", "read", "fetch_add"),
    "UC": ("send", "write", "write_imm"),
    "UD": ("send",),
}
RECEIVES = ("send", "write_imm")
TELL_EVERY = 10  # seconds
WARM_USES = 3  # of a queue pair, on average: nearly all are used
ALONE = 5  # requests that find the other guest's driver unloaded


class Peer:
    """The other guest: JSON lines."""

    def __init__(self, number):
        if number == 1:
            listener = socket.create_server(("", PORT))
            self.socket, _ = listener.accept()
        else:
            self.socket = wait_for(120, "listener in the first guest", self.call)
        self.socket.settimeout(600)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rw")

    @staticmethod
    def call():
        try:
            return socket.create_connection(("guest1", PORT), timeout=5)
        except OSError:
            return None

    def swap(self, mine):
        """Exchanges a value with the other guest."""
        self.file.write(json.dumps(mine) + "\n")
        self.file.flush()
        line = self.file.readline()
        if not line:
            sys.exit("FAIL: the other guest is gone")
        return json.loads(line)

    def meet(self, where):
        other = self.swap(where)
        if other != where:
            sys.exit(f"FAIL: here {where}, there {other}")


def fail(text):
    sys.exit(f"FAIL: {text}")


def pattern(*what):
    return random.Random(repr(what))


class Group:
    """The objects that several queue pairs share."""

    def __init__(self, soak, number):
        self.soak, self.number = soak, number
        self.make_cq()
        self.make_key()

    def make_cq(self):
        soak = self.soak
        self.cq = CQ(soak.context, 8 * GROUP)
        self.srq = SRQ(soak.pd, SrqInitAttr(SrqAttr(max_wr=2 * GROUP)))
        attributes = SrqInitAttrEx(max_wr=2 * GROUP)
        attributes.srq_type = e.IBV_SRQT_XRC
        attributes.pd = soak.pd
        attributes.xrcd = soak.xrcd
        attributes.cq = self.cq
        attributes.comp_mask = (e.IBV_SRQ_INIT_ATTR_TYPE | e.IBV_SRQ_INIT_ATTR_PD
                                | e.IBV_SRQ_INIT_ATTR_CQ | e.IBV_SRQ_INIT_ATTR_XRCD)
        self.xrc_srq = SRQ(soak.context, attributes)

    def make_key(self):
        self.mr = MR(self.soak.pd, ROOM * GROUP, ACCESS)

    def close_queues(self):
        self.srq.close()
        self.xrc_srq.close()
        self.cq.close()

    def close(self):
        self.mr.close()
        self.close_queues()


class Pair:
    """A queue pair (XRC: two; DC: an initiator and a target), whose peer is the other guest's of the same number."""

    def __init__(self, soak, number):
        self.soak, self.number = soak, number
        self.service = SERVICES[number % len(SERVICES)]
        self.group = soak.groups[number // GROUP]
        self.other = None
        self.ah = None
        self.make()

    def make(self):
        cq, cap = self.group.cq, QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
        if self.service == "XRC":
            init = QPInitAttrEx(qp_type=e.IBV_QPT_XRC_RECV, xrcd=self.soak.xrcd,
                                comp_mask=e.IBV_QP_INIT_ATTR_XRCD)
            self.target = QP(self.soak.context, init)
            cap = QPCap(max_send_wr=4, max_recv_wr=0, max_send_sge=1, max_recv_sge=0)
            init = QPInitAttrEx(qp_type=e.IBV_QPT_XRC_SEND, pd=self.soak.pd, scq=cq, cap=cap,
                                comp_mask=e.IBV_QP_INIT_ATTR_PD)
            self.qp = QP(self.soak.context, init)
            return
        if self.service == "DC":
            operations = (e.IBV_QP_EX_WITH_SEND | e.IBV_QP_EX_WITH_RDMA_WRITE | e.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
                          | e.IBV_QP_EX_WITH_RDMA_READ | e.IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
            self.qp = self.make_dc(Mlx5DVDCInitAttr(), send_ops_flags=operations,
                                   comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
            return self.make_dc_target()
        kind = {"UC": e.IBV_QPT_UC, "UD": e.IBV_QPT_UD}.get(self.service, e.IBV_QPT_RC)
        srq = self.group.srq if self.service == "RC+SRQ" else None
        self.qp = QP(self.soak.pd, QPInitAttr(qp_type=kind, scq=cq, rcq=cq, srq=srq, cap=cap))
        self.target = self.qp

    def make_dc(self, kind, **words):
        cap = QPCap(max_send_wr=4, max_recv_wr=0, max_send_sge=1, max_recv_sge=0)
        init = QPInitAttrEx(qp_type=e.IBV_QPT_DRIVER, pd=self.soak.pd, scq=self.group.cq, rcq=self.group.cq,
                            srq=self.group.srq, cap=cap, **words)
        return Mlx5QP(self.soak.context, init,
                      Mlx5DVQPInitAttr(comp_mask=dv.MLX5DV_QP_INIT_ATTR_MASK_DC, dc_init_attr=kind))

    def make_dc_target(self):
        """Makes a DC target, which has its number only from RTR on, and cannot go back to an earlier state."""
        kind = Mlx5DVDCInitAttr(dc_type=dv.MLX5DV_DCTYPE_DCT, dct_access_key=DC_KEY)
        self.target = self.make_dc(kind, comp_mask=e.IBV_QP_INIT_ATTR_PD)
        self.connect_one(self.target, 0, receiver=True)

    def base(self, quarter):
        return (self.number % GROUP) * ROOM + quarter * QUARTER

    def tell(self):
        mr = self.group.mr
        return {"send": self.qp.qp_num, "receive": self.target.qp_num, "address": mr.buf, "key": mr.rkey,
                "at": self.base(2),
                "srqn": self.group.xrc_srq.get_srq_num() if self.service == "XRC" else 0}

    def connect(self, other):
        self.other = other
        if self.service == "UD":
            attributes = QPAttr(port_num=1)
            attributes.qkey = QKEY
            self.qp.to_rts(attributes)
            self.ah = AH(self.soak.pd, attr=self.soak.path())
            return
        if self.service == "XRC":
            self.connect_one(self.target, other["send"], receiver=True)
            self.connect_one(self.qp, other["receive"])
        elif self.service == "DC":
            self.connect_one(self.qp, 0)
            self.ah = AH(self.soak.pd, attr=self.soak.path())
        else:
            self.connect_one(self.qp, other["send"])

    def connect_one(self, qp, remote, receiver=False):
        attributes = QPAttr(port_num=1)
        attributes.qp_access_flags = ACCESS
        attributes.path_mtu = self.soak.mtu
        attributes.dest_qp_num = remote
        attributes.rq_psn = attributes.sq_psn = 0x123456
        attributes.ah_attr = self.soak.path()
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 4
        attributes.min_rnr_timer = 12
        # Eight times 0.27 s: both devices are in one process, so the guests do not delay their acknowledgments.
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 16, 7, 7
        if receiver:
            qp.to_rtr(attributes)
        else:
            qp.to_rts(attributes)

    def reset(self):
        if self.service == "DC":
            self.target.close()
            self.make_dc_target()
        for qp in {self.qp} if self.service == "DC" else {self.qp, self.target}:
            qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
        self.drop_ah()

    def drop_ah(self):
        if self.ah is not None:
            self.ah.close()
            self.ah = None

    def close(self):
        self.drop_ah()
        self.qp.close()
        if self.target is not self.qp:
            self.target.close()

    # A round --------------------------------------------------------------------------------------

    def post_receive(self):
        mr = self.group.mr
        sge = SGE(mr.buf + self.base(1), QUARTER, mr.lkey)
        request = RecvWR(wr_id=self.number << 1 | 1, num_sge=1, sg=[sge])
        if self.service == "XRC":
            self.group.xrc_srq.post_recv(request)
        elif self.service in OF_SRQS:
            self.group.srq.post_recv(request)
        else:
            self.qp.post_recv(request)

    def post_send(self, operation, size, data, other):
        """`other`: the values that the other guest has sent about its queue pair, the destination."""
        mr = self.group.mr
        quarter = {"read": 3, "fetch_add": 3}.get(operation, 0)
        if data:
            mr.write(data, len(data), self.base(0))
        sge = SGE(mr.buf + self.base(quarter), size, mr.lkey)
        if self.service == "DC":
            return self.post_dc(operation, sge, other)
        opcode = {"send": e.IBV_WR_SEND, "write": e.IBV_WR_RDMA_WRITE,
                  "write_imm": e.IBV_WR_RDMA_WRITE_WITH_IMM, "read": e.IBV_WR_RDMA_READ,
                  "fetch_add": e.IBV_WR_ATOMIC_FETCH_AND_ADD}[operation]
        request = SendWR(wr_id=self.number << 1, num_sge=1, sg=[sge], opcode=opcode,
                         send_flags=e.IBV_SEND_SIGNALED)
        there = other["address"] + other["at"]
        if operation in ("write", "write_imm", "read"):
            request.set_wr_rdma(other["key"], there)
        elif operation == "fetch_add":
            request.set_wr_atomic(other["key"], there, size, 0)
        if self.service == "UD":
            request.set_wr_ud(self.ah, other["send"], QKEY)
        if self.service == "XRC":
            request.set_qp_type_xrc(other["srqn"])
        self.qp.post_send(request)

    def post_dc(self, operation, sge, other):
        key, there = other["key"], other["address"] + other["at"]
        self.qp.wr_start()
        self.qp.wr_id, self.qp.wr_flags = self.number << 1, e.IBV_SEND_SIGNALED
        {"send": lambda: self.qp.wr_send(),
         "write": lambda: self.qp.wr_rdma_write(key, there),
         "write_imm": lambda: self.qp.wr_rdma_write_imm(key, there, 0),
         "read": lambda: self.qp.wr_rdma_read(key, there),
         "fetch_add": lambda: self.qp.wr_atomic_fetch_add(key, there, 8)}[operation]()
        self.qp.wr_set_dc_addr(self.ah, other["receive"], DC_KEY)
        self.qp.wr_set_sge(sge)
        self.qp.wr_complete()


class Soak:
    def __init__(self, options):
        self.options = options
        self.mine, self.theirs = options.guest, 3 - options.guest
        self.peer = Peer(self.mine)
        self.operations = self.changes = self.unloads = self.bytes = 0

    # Making and breaking --------------------------------------------------------------------------

    def open(self):
        lines = subprocess.run(["bash", "/share/verbs_soak_host.sh"], check=True, capture_output=True,
                               text=True).stdout.splitlines()
        device, index = lines[-1].split()
        self.context = Mlx5Context(Mlx5DVContextAttr(), name=device)
        self.gid_index = int(index)
        gid = self.context.query_gid(1, self.gid_index).gid
        self.other_gid = GID(self.peer.swap(gid))
        self.mtu = self.context.query_port(1).active_mtu
        self.pd = PD(self.context)
        self.xrcd = XRCD(self.context, XRCDInitAttr(e.IBV_XRCD_INIT_ATTR_FD | e.IBV_XRCD_INIT_ATTR_OFLAGS,
                                                    os.O_CREAT, -1))
        self.groups = [Group(self, i) for i in range((self.options.qps + GROUP - 1) // GROUP)]
        self.pairs = [Pair(self, i) for i in range(self.options.qps)]
        self.connect(self.pairs)

    def connect(self, pairs):
        others = self.peer.swap([pair.tell() for pair in pairs])
        for pair, other in zip(pairs, others):
            pair.connect(other)
        self.peer.meet("connected")

    def close(self):
        for pair in self.pairs:
            pair.close()
        for group in self.groups:
            group.close()
        self.xrcd.close()
        self.pd.close()
        self.context.close()

    def path(self):
        route = GlobalRoute(dgid=self.other_gid, sgid_index=self.gid_index)
        return AHAttr(gr=route, is_global=1, port_num=1)

    def unload(self, draw):
        """Unloads the second guest's driver."""
        self.unloads += 1
        if self.mine == 2:
            self.close()
            subprocess.run(["modprobe", "-r", "mlx5_ib"], check=True)
        self.peer.meet("unloaded")
        if self.mine == 1:
            self.send_to_nobody(draw)
        self.peer.meet("alone")
        if self.mine == 1:
            self.close()
        else:
            subprocess.run(["modprobe", "mlx5_ib"], check=True)
        self.peer.meet("loaded")
        self.open()

    def send_to_nobody(self, draw):
        """Some requests to the unloaded device: each must end in "retry exceeded", once, and no other completion may come."""
        reliable = [pair for pair in self.pairs if pair.service not in ("UC", "UD")]
        due = set()
        for pair in draw.sample(reliable, min(ALONE, len(reliable))):
            pair.post_send("write", 8, b"nobody..", pair.other)
            due.add(pair.number)
        end = time.monotonic() + COMPLETION_LIMIT
        while due:
            if time.monotonic() > end:
                fail(f"{len(due)} requests to a guest without driver do not end: {due}")
            for group in self.groups:
                count, completions = group.cq.poll(64)
                for wc in completions[:count]:
                    i = wc.wr_id >> 1
                    if i not in due or wc.status != e.IBV_WC_RETRY_EXC_ERR:
                        fail(f"pair {i} ({self.pairs[i].service}), to a guest without driver: status {wc.status}")
                    due.remove(i)

    def change(self, draw, what):
        """Both guests do the same to the same queue pairs."""
        self.changes += 1
        if what == "unload":
            return self.unload(draw)
        if what in ("reset", "remake"):
            pairs = draw.sample(self.pairs, min(len(self.pairs), 20))
        else:
            group = draw.choice(self.groups)
            pairs = [pair for pair in self.pairs if pair.group is group]
        for pair in pairs:
            if what in ("reset", "key"):
                pair.reset()
            else:
                pair.close()
        if what == "key":
            group.mr.close()
            group.make_key()
        if what == "cq":
            group.close_queues()
            group.make_cq()
        self.peer.meet(what)
        for pair in pairs:
            if what not in ("reset", "key"):
                pair.make()
        self.connect(pairs)

    # A round --------------------------------------------------------------------------------------

    def plan(self, number):
        """The work of a round, the same in both guests: {guest: [(pair, destination pair, operation, size)]}."""
        draw = pattern(self.options.seed, number)
        plan = {}
        initiators = [pair.number for pair in self.pairs if pair.service == "DC"]
        for guest in (1, 2):
            plan[guest] = []
            shift = draw.randrange(max(1, len(initiators)))
            target_of = dict(zip(initiators, initiators[shift:] + initiators[:shift]))
            for i in draw.sample(range(len(self.pairs)), min(len(self.pairs), self.options.batch)):
                operation = draw.choice(OPERATIONS[self.pairs[i].service])
                most = 1024 if self.pairs[i].service == "UD" else QUARTER
                size = 8 if operation == "fetch_add" else draw.choice((1, 8, 64, draw.randrange(1, most), most))
                plan[guest].append((i, target_of.get(i, i), operation, size))
        return plan

    def round(self, number):
        plan = self.plan(number)
        mine, theirs = plan[self.mine], plan[self.theirs]
        sent, expected, values = {}, {}, {}
        for i, to, operation, size in theirs:
            pair = self.pairs[to]
            if operation in RECEIVES:
                pair.post_receive()
                expected.setdefault(pair.group, {})[pair.number] = (operation, size)
            if operation in ("read", "fetch_add"):
                data = pattern(self.options.seed, number, i, self.theirs).randbytes(size)
                pair.group.mr.write(data, size, pair.base(2))
        self.peer.meet(["posted", number])
        for i, to, operation, size in mine:
            pair = self.pairs[i]
            data = b""
            if operation not in ("read", "fetch_add"):
                data = pattern(self.options.seed, number, i, self.mine).randbytes(size)
            pair.post_send(operation, size, data, self.pairs[to].other)
            sent.setdefault(pair.group, {})[pair.number] = (operation, size)
            self.operations += 1
            self.bytes += size
        self.collect(number, sent, expected)
        self.peer.meet(["complete", number])
        for i, _, operation, size in mine:
            if operation in ("read", "fetch_add"):
                self.compare(number, i, i, operation, size, self.mine, 3)
        for i, to, operation, size in theirs:
            if operation != "read":
                self.compare(number, i, to, operation, size, self.theirs, 1 if operation == "send" else 2)
        self.peer.meet(["checked", number])

    def collect(self, number, sent, expected):
        """Waits for every completion that is due, exactly once, and for no other."""
        left = sum(map(len, sent.values())) + sum(map(len, expected.values()))
        anonymous = {}  # SRQs use receives in any order: the completion says which buffer holds a message
        end = time.monotonic() + COMPLETION_LIMIT
        while left:
            if time.monotonic() > end:
                missing = [f"{'sent' if due is sent else 'receive'} {self.pairs[i].service} {i} {what}"
                           for due in (sent, expected) for of in due.values() for i, what in of.items()]
                fail(f"round {number}: {left} completions are missing, among {'; '.join(missing)}")
            for group in self.groups:
                count, completions = group.cq.poll(64)
                for wc in completions[:count]:
                    i, receives = wc.wr_id >> 1, wc.wr_id & 1
                    if wc.status != e.IBV_WC_SUCCESS:
                        fail(f"round {number}: pair {i} ({self.pairs[i].service}): status {wc.status}, "
                             f"vendor 0x{wc.vendor_err:x}")
                    due = (expected if receives else sent).get(group, {})
                    if receives and self.pairs[i].service in OF_SRQS:
                        anonymous.setdefault(group, []).append((wc.qp_num, i, wc.byte_len))
                    elif i not in due:
                        fail(f"round {number}: a completion of pair {i} that nobody waits for")
                    if not receives or self.pairs[i].service not in OF_SRQS:
                        operation, size = due.pop(i)
                        more = GRH if self.pairs[i].service == "UD" else 0
                        if receives and wc.byte_len != size + more:
                            fail(f"round {number}: pair {i}: {wc.byte_len} bytes, not {size + more}")
                    left -= 1
        self.place = {}
        for group, taken in anonymous.items():
            by_qpn = {pair.target.qp_num: pair.number for pair in self.pairs if pair.group is group}
            for qpn, buffer, length in taken:
                i = by_qpn[qpn]
                _, size = expected[group].pop(i, (None, None))
                if size != length:
                    fail(f"round {number}: a message of {length} bytes for pair {i}, which waits for {size}")
                self.place[i] = buffer

    def compare(self, number, i, where, operation, size, sender, quarter):
        """Compares a quarter of the pair `where` of this guest with the data that pair `i` of `sender` has sent, or read."""
        pair = self.pairs[where]
        want = pattern(self.options.seed, number, i, sender).randbytes(size)
        at = pair.base(quarter)
        if quarter == 1:
            at = self.pairs[self.place.get(where, where)].base(1) + (GRH if pair.service == "UD" else 0)
        if operation == "fetch_add" and quarter == 2:  # what it has become
            want = ((int.from_bytes(want, "little") + 8) & (1 << 64) - 1).to_bytes(8, "little")
        have = bytes(pair.group.mr.read(size, at))
        if have != want:
            fail(f"round {number}: {operation} of pair {i} ({pair.service}), {size} bytes: {have[:16].hex()}... "
                 f"instead of {want[:16].hex()}...")

    def run(self):
        self.open()
        kinds = ("reset", "remake", "key", "cq")
        for kind in (*kinds, "unload"):  # every operation once, so that the server has allocated all that it needs
            self.tell_progress(f"warms up, then {kind}")
            self.round(f"warm {kind}")
            self.change(pattern(self.options.seed, kind), kind)
        for i in range(-(-WARM_USES * len(self.pairs) // min(len(self.pairs), self.options.batch))):
            self.round(f"warm {i}")
        self.say_in_share("warm")
        begin, number, told, unloading = time.monotonic(), 0, 0, 0
        while (word := self.decide(self.done_of_all(number, time.monotonic() - begin - unloading))) != "stop":
            if (passed := time.monotonic() - begin - unloading) >= told:
                self.tell_progress(f"{passed:.0f} s, {number} rounds")
                told = passed + TELL_EVERY
            self.round(number)
            draw = pattern(self.options.seed, "change", number)
            if draw.random() < 0.5:
                self.change(draw, draw.choice(kinds))
            if word == "unload":  # minutes without traffic, which do not count in --seconds
                before = time.monotonic()
                self.change(draw, word)
                unloading += time.monotonic() - before
            number += 1
        self.say_in_share("done")
        self.close()
        subprocess.run(["bash", "-c", ". /share/lib.sh; clean_dmesg"], check=True)
        print(f"soak: {len(self.pairs)} queue pairs, {number} rounds, {self.operations} operations, "
              f"{self.bytes} bytes, {self.changes} changes, {self.unloads} unloads: all as it must be")

    def tell_progress(self, text):
        if self.mine == 1:
            print(f"soak: {text}; {self.operations} operations, {self.changes} changes, {self.unloads} unloads",
                  flush=True)

    def done_of_all(self, number, passed):
        """The part that is done, 0 to 1: of the rounds, or of the time."""
        options = self.options
        return number / options.rounds if options.rounds else passed / options.seconds

    def decide(self, part):
        """Decides by the first guest, whose clock counts."""
        word = None
        if self.mine == 1:
            due = part > self.unloads / (self.options.unloads + 1)
            word = "stop" if part >= 1 else "unload" if due else "go on"
        return self.peer.swap(word) or word

    def forget_initiators(self):
        """DC targets forget initiators when they are replaced. Their memory is that of the last minute's initiators, so it
        depends on the machine's speed."""
        pairs = [pair for pair in self.pairs if pair.service == "DC"]
        for pair in pairs:
            pair.reset()
        self.connect(pairs)

    def say_in_share(self, word):
        self.forget_initiators()
        self.peer.meet(word)
        if self.mine == 1:
            open(f"/share/soak.{word}", "w").close()
            wait_for(120, "look at the server's memory", lambda: os.path.exists(f"/share/soak.{word}.measured"))
        self.peer.meet(["after", word])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--qps", type=int, default=1000)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=float, default=600)
    length.add_argument("--rounds", type=int)
    parser.add_argument("--batch", type=int, default=200, help="operations of each guest in a round")
    parser.add_argument("--unloads", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.guest = int(os.environ["GUEST"])
    Soak(options).run()


if __name__ == "__main__":
    main()
