#!/bin/bash
# The device works: used after a reboot, and after a QEMU was killed.
. "$(dirname "$0")/lib.sh"
echo "boot ${BOOT:-1}"
two_hosts
run on a ping -q -c 3 -i 0.2 "$ADDRESS_b"
perftest ib_read_bw -s 65536 -n 100
clean_dmesg
