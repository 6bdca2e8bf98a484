#!/bin/bash
# Every operation of RC, for a capture. The MTUs are those that ladder_16_bandwidth.sh leaves out.
. "$(dirname "$0")/lib.sh"
two_hosts
for mtu in 256 1024 4096; do
  perftest ib_write_bw -m $mtu -s 10000 -n 20
  perftest ib_read_bw -m $mtu -s 10000 -n 20
  perftest ib_send_bw -m $mtu -s 10000 -n 20
done
perftest ib_write_bw -s 3 -n 20
perftest ib_send_lat -s 1 -n 20
perftest ib_send_lat -s 17 -n 20
pingpong ibv_rc_pingpong -c -n 50
clean_dmesg
