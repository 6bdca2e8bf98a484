#!/bin/bash
# The answers of Linux's own verbs and connection manager on softhca's device: oracle.sh CHAPTER... Writes the lines to
# /share/oracle.lines; the host compares them with those of `softhca run`.
. "$(dirname "$0")/lib.sh"
gid_is_third() { [ "$(gid_index here)" = 3 ]; }

expect_functions 2
modprobe -a rdma_ucm
number=0 functions=$(mlx5_functions)
# Gives the devices the addresses, MTU and names of two devices of `softhca run`.
for function in $functions; do
  IF_here=$(netdev_of "$function") IB_here=$(ibdev_of "$function") ADDRESS_here=198.19.$((number + 1)).1
  run ip link set "$IF_here" mtu 4200 up
  run ip addr add "$ADDRESS_here/24" dev "$IF_here"
  wait_for 60 "carrier on $IF_here" carrier here
  wait_for 60 "GIDs of $IB_here" gid_is_third
  old_names+=("$IB_here") netdevs+=("$IF_here")
  [ "$IB_here" = "mlx5_$number" ] || run rdma dev set "$IB_here" name "mlx5_$number"
  number=$((number + 1))
done
udev-settle
status=0
ORACLE_TIMES=1 /share/oracle "$@" >/share/oracle.lines 2>/share/oracle.times || status=$?
sort -rn /share/oracle.times | head -n 20
for ((i = 0; i < number; i++)); do
  [ "${old_names[i]}" = "mlx5_$i" ] || run rdma dev set "mlx5_$i" name "${old_names[i]}"
  run ip -4 addr flush dev "${netdevs[i]}"
  run ip link set "${netdevs[i]}" down
done
echo "$(wc -l </share/oracle.lines) lines"
[ $status = 0 ] || fail "exit status $status"
