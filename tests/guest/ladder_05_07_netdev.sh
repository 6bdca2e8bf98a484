#!/bin/bash
# Steps 5 to 7: netdev, carrier, ping with small and large packets.
. "$(dirname "$0")/lib.sh"
two_hosts 9000
run on a ethtool -i "$IF_a"
on a ethtool "$IF_a" | tee /tmp/ethtool
grep -q 'Link detected: yes' /tmp/ethtool || fail "no link"
grep -q 'Speed: 100000Mb/s' /tmp/ethtool || fail "not the speed of PTYS"
run on a ping -q -c 20 -i 0.2 "$ADDRESS_b"
run on a ping -q -c 20 -i 0.2 -s 8000 -M do "$ADDRESS_b"
on a ethtool -S "$IF_a" | grep -E ' [rt]x_packets:' | tee /tmp/counters
! grep -q ': 0$' /tmp/counters || fail "a packet counter stands still"
clean_dmesg
