#!/bin/bash
# A hostile producer: random bytes in rings, tables, keys and registers of one function while it works, for
# half a minute in each boot. The other function of the same server copies all the while, and right.
. /share/sdxi_lib.sh
set -- $(sdxi_functions)
[ $# -eq 2 ] || fail "not two SDXI functions"
give_to_vfio "$1"
give_to_vfio "$2"
head -c 3000001 /dev/urandom > /root/from
SEED=$BOOT exec_program sdxi_guest hostile "$1" 30 &
hostile=$!
copies=0
while kill -0 $hostile 2>/dev/null; do
  mode=
  [ $((copies % 2)) -eq 0 ] || mode=--interrupts
  program softhca sdxi copy --pci "$2" --verify --quiet $mode /root/from /root/to || fail "copy $copies beside it"
  cmp /root/from /root/to || fail "copy $copies beside it differs"
  copies=$((copies + 1))
done
wait $hostile || fail "the hostile producer: exit status $?"
echo "$copies copies beside it were right"
# As many as the machine has time for; one of each mode tells.
[ $copies -ge 2 ] || fail "too few copies to tell"
