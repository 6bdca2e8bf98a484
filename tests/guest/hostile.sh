#!/bin/bash
# A guest that writes random values all over BAR0 of one device, and rings random doorbells, for a minute:
# the server lives, and the other device works.
. "$(dirname "$0")/lib.sh"
two_hosts
first=$(mlx5_functions | head -n 1)
second=$(mlx5_functions | tail -n 1)

# The driver lets go of the first function, so that only this script writes to it.
echo "$first" > /sys/bus/pci/drivers/mlx5_core/unbind || fail "unbind $first"
echo 1 > "/sys/bus/pci/devices/$first/enable"
setpci -s "$first" COMMAND=0006
run python3 "$(dirname "$0")/scribble.py" "/sys/bus/pci/devices/$first/resource0" "${1:-60}"

# The second function was driven by its own driver all the while.
name=$(on b ls "/sys/bus/pci/devices/$second/net" | head -n 1)
[ "$(on b cat "/sys/class/net/$name/carrier")" = 1 ] || fail "no carrier on the other device"
run on b ibv_devinfo -d "$(on b ls "/sys/bus/pci/devices/$second/infiniband")"

# And after a reset the first one comes back.
echo 1 > "/sys/bus/pci/devices/$first/reset" || fail "reset"
echo "$first" > /sys/bus/pci/drivers/mlx5_core/bind || fail "bind $first"
has_netdev() { [ -n "$(netdev_of "$first")" ]; }
wait_for 30 "the first function again" has_netdev
