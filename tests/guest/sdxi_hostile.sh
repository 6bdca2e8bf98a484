#!/bin/bash
# sdxi_hostile.sh [WRITES]: a hostile producer writes random bytes to rings, tables, keys and registers of one function
# while it works, with two seeds. Meanwhile the other function of the same server copies, and its results are checked.
. /share/sdxi_lib.sh
writes=${1:-30000}
set -- $(sdxi_functions)
[ $# -eq 2 ] || fail "not two SDXI functions"
give_to_vfio "$1"
give_to_vfio "$2"
head -c 3000001 /dev/urandom > /root/from
for seed in 1 2; do
  SEED=$seed exec_program sdxi_guest hostile "$1" "$writes" &
  hostile=$!
  copies=0
  until gone $hostile && [ $copies -ge 2 ]; do
    mode=
    [ $((copies % 2)) -eq 0 ] || mode=--interrupts
    program softhca sdxi copy --pci "$2" --verify --quiet $mode /root/from /root/to || fail "copy $copies beside it"
    cmp /root/from /root/to || fail "copy $copies beside it differs"
    copies=$((copies + 1))
  done
  wait $hostile || fail "the hostile producer of seed $seed: exit status $?"
  echo "$copies copies beside it were right"
done
