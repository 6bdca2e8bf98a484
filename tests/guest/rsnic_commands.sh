#!/bin/bash
# The client side of ib_read_bw on an RSNIC, for the trace that records its commands. One READ after the other, so that
# their steps do not mix.
. "$(dirname "$0")/lib.sh"
two_hosts
perftest ib_read_bw -s 4096 -n 5 -t 1
clean_dmesg
