#!/bin/bash
# Step 12: QP1 and the connection manager.
. "$(dirname "$0")/lib.sh"
two_hosts
run modprobe -a ib_umad ib_uverbs rdma_ucm ib_cm
on a rdma resource show qp link "$IB_a/1" | tee /tmp/qps
grep -q 'type GSI state RTS' /tmp/qps || fail "no GSI QP in RTS"
clean_dmesg
