#!/bin/bash
# Step 17: RoCE v1. The kernel keeps a GID of each version for every address. Packets for a GID of version 1 have EtherType
# 8915h and a GRH. Both versions work beside each other.
. "$(dirname "$0")/lib.sh"
two_hosts
GID_V2_a=$GID_a GID_V2_b=$GID_b
for host in a b; do
  wait_for 60 "RoCE v1 GID on host $host" gid_index "$host" "IB/RoCE v1"
  eval "GID_$host=\$(gid_index $host 'IB/RoCE v1')"
done
[ "$GID_a" != "$GID_V2_a" ] || fail "one index for both versions"

pingpong ibv_rc_pingpong -c -n 200
pingpong ibv_uc_pingpong -c -n 200
pingpong ibv_ud_pingpong -c -n 200
pingpong ibv_srq_pingpong -c -n 100
perftest ib_write_bw -s 20000 -n 200
perftest ib_read_bw -s 20000 -n 200
perftest ib_send_bw -c UD -s 4096 -n 500
perftest ib_atomic_bw -A FETCH_AND_ADD -n 200
# Version 2 on the same devices, before and after.
(
  GID_a=$GID_V2_a GID_b=$GID_V2_b
  pingpong ibv_rc_pingpong -c -n 100
) || exit 1
pingpong ibv_rc_pingpong -c -n 100
clean_dmesg
