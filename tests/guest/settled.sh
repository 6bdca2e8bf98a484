#!/bin/bash
# The first script of every guest: the kernel log of its boot is clean, and its drivers have made what they make in the
# background. The server's heap is compared with what it is now.
. "$(dirname "$0")/lib.sh"
expect_functions "$(lspci -n -d 15b3: | wc -l)"
wait_for 120 "memory keys of the drivers' caches" keys_are_made
clean_dmesg
