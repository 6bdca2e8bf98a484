#!/bin/bash
# Step 15, RC: latency tests at all sizes.
. "$(dirname "$0")/lib.sh"
two_hosts
for program in ib_send_lat ib_write_lat ib_read_lat; do
  perftest $program -a -n 100
  perftest $program -s 64 -n 1000
done
perftest ib_send_lat -s 64 -n 500 -e
perftest ib_read_lat -s 64 -n 500 -e
perftest ib_write_lat -s 64 -n 500 -I 64
perftest ib_send_lat -s 128 -n 500 -I 0
on a rdma statistic show link "$IB_a/1" | tee /tmp/statistics
for counter in local_ack_timeout_err out_of_sequence rnr_nak_retry_err packet_seq_err; do
  grep -qE "$counter 0( |\$)" /tmp/statistics || fail "$counter moved"
done
clean_dmesg
