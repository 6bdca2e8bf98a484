#!/bin/bash
# An RSNIC: probed as a ConnectX-4 Lx with the document's firmware version and numbers of objects; RDMA and Ethernet between
# two.
. "$(dirname "$0")/lib.sh"
expect_functions 2
dmesg | grep mlx5
[ "$(lspci -n -d 15b3:1015 | wc -l)" -eq 2 ] || fail "no two functions 15b3:1015"
[ "$(dmesg | grep -c 'mlx5_core.*firmware version: 14\.22\.4020')" -ge 2 ] || fail "not the firmware of the document"
two_hosts
for expected in 'vendor_part_id:.*4117' 'max_cq:.*256$' 'max_mr:.*512$' 'atomic_cap:.*ATOMIC_NONE'; do
  on a ibv_devinfo -d "$IB_a" -v | grep -q "$expected" || fail "ibv_devinfo does not say $expected"
done
run on a ping -q -c 3 -i 0.2 "$ADDRESS_b"
perftest ib_read_bw -s 65536 -n 100
perftest ib_write_bw -s 65536 -n 100
perftest ib_send_bw -s 65536 -n 100
pingpong ibv_rc_pingpong -c -n 100
# Must be the last, for the trace that records its commands. One READ at a time, so that their steps do not mix.
perftest ib_read_bw -s 4096 -n 5 -t 1
clean_dmesg
