#!/bin/bash
# Step 15, RC: latency tests at all sizes.
. "$(dirname "$0")/lib.sh"
two_hosts
for program in ib_send_lat ib_write_lat ib_read_lat; do
  perftest $program -a -n 25
  perftest $program -s 64 -n 1000
done
perftest ib_send_lat -s 64 -n 500 -e
perftest ib_read_lat -s 64 -n 500 -e
perftest ib_write_lat -s 64 -n 500 -I 64
perftest ib_send_lat -s 128 -n 500 -I 0
run on a rdma statistic show link "$IB_a/1"
for host in a b; do
  for name in out_of_sequence rnr_nak_retry_err packet_seq_err implied_nak_seq_err; do
    [ "$(counter $host $name)" = 0 ] || fail "$name of host $host moved to $(counter $host $name)"
  done
  [ "$(counter $host rx_write_requests)" -gt 0 ] || fail "no RDMA WRITE was counted on host $host"
done
clean_dmesg
