#!/bin/bash
# Step 12: QP1 and the connection manager, whose messages make, accept and end connections between the two devices.
. "$(dirname "$0")/lib.sh"
two_hosts
run modprobe -a ib_umad ib_uverbs rdma_ucm ib_cm
on a rdma resource show qp link "$IB_a/1" | tee /tmp/qps
grep -q 'type GSI state RTS' /tmp/qps || fail "no GSI QP in RTS"

# cm_messages HOST tx|rx: numbers of REQ, REP, RTU and DREQ that the host's connection manager has sent or received.
cm_messages() {
  local name ib
  eval "ib=\$IB_$1"
  for name in req rep rtu dreq; do
    on "$1" cat "/sys/class/infiniband/$ib/ports/1/cm_${2}_msgs/$name"
  done | xargs
}
before="$(cm_messages a tx) $(cm_messages b rx)"
cm_server rping -s -a "$ADDRESS_b" -C 20 -S 5000 -V
cm_client rping -c -a "$ADDRESS_b" -C 20 -S 5000 -V
cm_server ucmatose -b "$ADDRESS_b" -c 10 -C 20 -S 2000
cm_client ucmatose -s "$ADDRESS_b" -b "$ADDRESS_a" -c 10 -C 20 -S 2000
after="$(cm_messages a tx) $(cm_messages b rx)"
echo "REQ REP RTU DREQ sent by a, received by b: $before; then $after"
# 11 connections, for each of which a has sent a REQ and an RTU.
set -- $before $after
for host in "a sent" "b received"; do
  [ $(($9 - $1)) -ge 11 ] || fail "host $host $(($9 - $1)) REQs"
  [ $((${11} - $3)) -ge 11 ] || fail "host $host $((${11} - $3)) RTUs"
  shift 4
done
clean_dmesg
