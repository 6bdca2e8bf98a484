#!/bin/bash
# doorbells.sh POSTS: POSTS RDMA WRITEs and as many READs, and some with events, on devices whose doorbell pages are mapped.
. "$(dirname "$0")/lib.sh"
two_hosts
perftest ib_write_bw -s 64 -n "$1"
perftest ib_read_bw -s 64 -n "$1"
perftest ib_send_lat -s 64 -n 100 -e
pingpong ibv_rc_pingpong -n 200 -c -e
clean_dmesg
