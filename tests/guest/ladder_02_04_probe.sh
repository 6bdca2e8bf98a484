#!/bin/bash
# Steps 2 to 4: firmware version, pages, interrupts, health. Checks 20 s after the driver has found the device, so that the
# health poll has run often.
. "$(dirname "$0")/lib.sh"
expect_functions 2
dmesg | grep mlx5
dmesg | grep -q 'mlx5_core.*firmware version: 12\.' || fail "no firmware version"
grep mlx5 /proc/interrupts || fail "no mlx5 interrupt"
asynchronous=$(awk '/mlx5_async/ {for (i = 2; i <= NF; i++) if ($i ~ /^[0-9]+$/) n += $i} END {print n + 0}' /proc/interrupts)
[ "$asynchronous" -gt 0 ] || fail "no command completion came by interrupt"
probed=$(dmesg | sed -n 's/^\[ *\([0-9]*\)\..*mlx5_core.*firmware version.*/\1/p' | tail -n 1)
health_was_polled() { [ "$(cut -d. -f1 /proc/uptime)" -ge $((probed + 20)) ]; }
wait_for 60 "20 s of health polls" health_was_polled
clean_dmesg
