#!/bin/bash
# Checks that the device works after a reboot, and after QEMU was killed.
. "$(dirname "$0")/lib.sh"
echo "boot ${BOOT:-1}"
two_hosts
all_pings a -c 5 -i 0.1 "$ADDRESS_b"
perftest ib_read_bw -s 65536 -n 100
clean_dmesg
