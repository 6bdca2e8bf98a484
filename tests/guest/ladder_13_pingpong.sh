#!/bin/bash
# Step 13: RC send and receive, polled and with events, checked content.
. "$(dirname "$0")/lib.sh"
two_hosts
pingpong ibv_rc_pingpong
pingpong ibv_rc_pingpong -c
pingpong ibv_rc_pingpong -e
pingpong ibv_rc_pingpong -c -e -m 4096 -s 1000000 -n 200
# Three laps of the rings, which have 512 entries.
pingpong ibv_rc_pingpong -n 1600
clean_dmesg
