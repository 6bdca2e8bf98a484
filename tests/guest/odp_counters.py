#!/usr/bin/env python3
"""Checks the driver's counters of a region with on-demand paging: odp_counters.py DEVICE GID_INDEX.

A QP that is connected with itself writes to untouched memory: `rdma statistic show mr` must count at least one page fault
for each page, and none when the pages are present. Pages that the program frees are counted as invalidated, and pages that
it prefetches as prefetched; writes to these cause no fault.
"""

import json
import mmap
import os
import subprocess
import sys
import time
from ctypes import addressof, c_char

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

PAGES = 16
SIZE = PAGES * mmap.PAGESIZE
LIMIT = 60  # seconds
REMOTE = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE


def tool(*words):
    return json.loads(subprocess.run(["rdma", "-j", *words], check=True, capture_output=True, text=True).stdout)


def counters(rkey):
    """The counters of the region with this key, by `rdma statistic show mr`, which identifies regions by number."""
    number = next(mr["mrn"] for mr in tool("resource", "show", "mr") if mr.get("rkey") == f"{rkey:x}")
    return next(mr for mr in tool("statistic", "show", "mr") if mr["mrn"] == number)


def connected(context, pd, cq, index):
    qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=4, max_recv_wr=1)))
    attributes = QPAttr(port_num=1)
    attributes.qp_access_flags = REMOTE
    attributes.path_mtu = e.IBV_MTU_1024
    attributes.dest_qp_num = qp.qp_num
    route = GlobalRoute(dgid=context.query_gid(1, index), sgid_index=index)
    attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
    attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
    attributes.min_rnr_timer, attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 12, 14, 7, 7
    qp.to_rts(attributes)
    return qp


def main():
    device, index = sys.argv[1], int(sys.argv[2])
    context = Context(name=device)
    pd, cq = PD(context), CQ(context, 16)
    qp = connected(context, pd, cq, index)
    memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE)
    address = addressof(c_char.from_buffer(memory))
    region = MR(pd, SIZE, REMOTE | e.IBV_ACCESS_ON_DEMAND, address=address)
    source = MR(pd, SIZE, e.IBV_ACCESS_LOCAL_WRITE)

    def write():
        data = os.urandom(SIZE)
        source.write(data, SIZE)
        request = SendWR(wr_id=1, num_sge=1, sg=[SGE(source.buf, SIZE, source.lkey)], opcode=e.IBV_WR_RDMA_WRITE,
                         send_flags=e.IBV_SEND_SIGNALED)
        request.set_wr_rdma(region.rkey, address)
        qp.post_send(request)
        end = time.monotonic() + LIMIT
        while not (polled := cq.poll())[0]:
            if time.monotonic() > end:
                sys.exit("FAIL: a WRITE does not end")
        if polled[1][0].status != e.IBV_WC_SUCCESS:
            sys.exit(f"FAIL: a WRITE ends with status {polled[1][0].status}")
        return data

    def told(name, before, what, least=PAGES, most=None):
        after = counters(region.rkey)
        moved = after[name] - before[name]
        print(f"{name}: {moved} more by {what}")
        if moved < least or most is not None and moved > most:
            sys.exit(f"FAIL: {name} moved by {moved}, by {what}")
        return after

    now = counters(region.rkey)
    data = write()
    now = told("page_faults", now, "a WRITE to untouched pages")
    if memory[:] != data:
        sys.exit("FAIL: the memory has other bytes")
    write()
    now = told("page_faults", now, "a WRITE to pages that are there", 0, 0)
    memory.madvise(mmap.MADV_DONTNEED)
    now = told("page_invalidations", now, "pages that are given away")
    pd.advise_mr(e._IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, e._IBV_ADVISE_MR_FLAG_FLUSH, [SGE(address, SIZE, region.lkey)])
    now = told("page_prefetch", now, "prefetched pages")
    data = write()
    told("page_faults", now, "a WRITE to prefetched pages", 0, 0)
    if memory[:] != data:
        sys.exit("FAIL: the memory has other bytes")


if __name__ == "__main__":
    main()
