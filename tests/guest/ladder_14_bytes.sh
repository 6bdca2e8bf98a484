#!/bin/bash
# Step 14: compares the bytes that SEND, WRITE, READ and atomics move, which perftest does not do.
. "$(dirname "$0")/lib.sh"
two_hosts
run python3 "$(dirname "$0")/verbs_bytes.py" "$IB_a" "$GID_a" "$IB_b" "$GID_b"
clean_dmesg
