#!/bin/bash
# An RSNIC and a ConnectX-4, whoever comes first: RDMA both ways, ping and iperf3 between them.
. "$(dirname "$0")/lib.sh"
expect_functions 2
[ "$(lspci -n -d 15b3:1015 | wc -l)" -eq 1 ] || fail "no RSNIC"
[ "$(lspci -n -d 15b3:1013 | wc -l)" -eq 1 ] || fail "no ConnectX-4"
two_hosts
run on a ping -q -c 3 -i 0.2 "$ADDRESS_b"
for program in ib_read_bw ib_write_bw ib_send_bw; do
  perftest $program -s 65536 -n 100
  perftest $program -s 65536 -n 100 -b
done
pingpong ibv_rc_pingpong -c -n 100
on b iperf3 -s -1 >/tmp/iperf3.log 2>&1 &
wait_for 60 "iperf3 that listens" sh -c "ip netns exec b ss -ltn | grep -q :5201"
run on a timeout 60 iperf3 -c "$ADDRESS_b" -t 2
clean_dmesg
