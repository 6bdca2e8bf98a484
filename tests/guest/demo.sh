#!/bin/bash
# The main job: ib_read_bw between two ConnectX-4 of one guest, each in a network namespace.
. "$(dirname "$0")/lib.sh"
two_hosts
uname -sr
on a ibv_devinfo -d "$IB_a" | sed -n '1,14p'
# Few rounds of each size, because everything is captured.
perftest ib_read_bw -a -n 10
