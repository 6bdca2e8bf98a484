#!/bin/bash
# reload.sh [TIMES]: drivers unloaded and loaded, 20 times at first: the function comes back each time, nothing leaks. Linux 6.12 makes and destroys
# 6,120 memory keys for each function each time.
. "$(dirname "$0")/lib.sh"
expect_functions 2
for i in $(seq "${1:-20}"); do
  modprobe -r mlx5_ib mlx5_core || fail "round $i: modprobe -r"
  modprobe -a mlx5_core mlx5_ib || fail "round $i: modprobe"
  expect_functions 2
done
clean_dmesg
dmesg | grep -iE 'leak|pages counter' && fail "pages are missing"
two_hosts
run on a ping -q -c 3 -i 0.2 "$ADDRESS_b"
perftest ib_read_bw -s 65536 -n 100
