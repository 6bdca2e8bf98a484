#!/bin/bash
# reload.sh TIMES: drivers unloaded and loaded. The function must come back each time, and nothing may leak. Linux 6.12
# makes and destroys 6,120 memory keys for each function each time.
. "$(dirname "$0")/lib.sh"
expect_functions 2
for i in $(seq "$1"); do
  modprobe -r mlx5_ib mlx5_core || fail "round $i: modprobe -r"
  modprobe -a mlx5_core mlx5_ib || fail "round $i: modprobe"
  expect_functions 2
  # After each reload, because the kernel's buffer may not hold the messages of all.
  clean_dmesg
  kernel_log | grep -iE 'leak|pages counter' && fail "round $i: pages are missing"
done
wait_for 120 "memory keys of the drivers' caches" keys_are_made # for the test that measures the server's heap now
