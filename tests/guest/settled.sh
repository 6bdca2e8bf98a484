#!/bin/bash
# The first script of every guest: checks that the kernel log of the boot is clean, and waits until the drivers have made
# the objects that they make in the background. The server's heap is later compared with its size now.
. "$(dirname "$0")/lib.sh"
expect_functions "$(lspci -n -d 15b3: | wc -l)"
wait_for 120 "memory keys of the drivers' caches" keys_are_made
clean_dmesg
