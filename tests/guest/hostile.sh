#!/bin/bash
# hostile.sh [WRITES DOORBELLS]: a guest writes random values all over BAR0 of one device, and rings random doorbells. Then
# it rings random doorbells of a device whose queues are in use. The server must survive, and the other device must work.
. "$(dirname "$0")/lib.sh"
two_hosts
first=$(mlx5_functions | head -n 1)
second=$(mlx5_functions | tail -n 1)

writes=${1:-60000} doorbells=${2:-20000}
scribble() { # WRITES [doorbells]
  run python3 "$(dirname "$0")/scribble.py" "/sys/bus/pci/devices/$first/resource0" "$@"
}
# use_second UNTIL: RDMA from the second device to itself, as long as process UNTIL lives.
use_second() {
  local rounds=0 server
  while kill -0 "$1" 2>/dev/null; do
    ip netns exec b ib_write_bw -d "$IB_b" -x "$GID_b" -F -s 65536 -n 500 >/tmp/own-server.log 2>&1 &
    server=$!
    wait_for 60 "server on the other device" listens $server 18515
    on b timeout 240 ib_write_bw -d "$IB_b" -x "$GID_b" -F -s 65536 -n 500 "$ADDRESS_b" >/tmp/own-client.log 2>&1 ||
      { cat /tmp/own-client.log /tmp/own-server.log >&2; fail "RDMA through the other device"; }
    wait $server || { cat /tmp/own-server.log >&2; fail "the server of RDMA through the other device"; }
    rounds=$((rounds + 1))
  done
  echo "the other device did $rounds rounds of ib_write_bw meanwhile"
  [ "$rounds" -gt 0 ] || fail "the other device was not used"
}

# Unbinds the driver from the first function, so that only this script writes to it.
echo "$first" > /sys/bus/pci/drivers/mlx5_core/unbind || fail "unbind $first"
echo 1 > "/sys/bus/pci/devices/$first/enable"
setpci -s "$first" COMMAND=0006
scribble "$writes" &
scribbler=$!
use_second $scribbler
wait $scribbler || fail "scribble"

# The second function's driver was never unbound.
name=$(on b ls "/sys/bus/pci/devices/$second/net" | head -n 1)
[ "$(on b cat "/sys/class/net/$name/carrier")" = 1 ] || fail "no carrier on the other device"
run on b ibv_devinfo -d "$(on b ls "/sys/bus/pci/devices/$second/infiniband")"

# After a reset the first function works again.
echo 1 > "/sys/bus/pci/devices/$first/reset" || fail "reset"
echo "$first" > /sys/bus/pci/drivers/mlx5_core/bind || fail "bind $first"
expect_functions 2

# Random doorbells for queues in use: traffic of the first device to itself, which may fail.
IF_a=$(netdev_of "$first") IB_a=$(ibdev_of "$first")
eval "ip link set $IF_a netns a && rdma dev set $IB_a netns a" || fail "back to host a"
run ip -n a link set "$IF_a" up
run ip -n a addr add "$ADDRESS_a/24" dev "$IF_a"
wait_for 60 "RoCE v2 GID on host a" gid_index a
GID_a=$(gid_index a)
cat >/tmp/own_traffic <<END
exec ip netns exec a ib_write_bw -d $IB_a -x $GID_a -F -q 16 -s 65536 -p 18600 -D 3600 "\$@"
END
sh /tmp/own_traffic >/tmp/first-server.log 2>&1 &
queues=$!
wait_for 60 "server on the first device" listens $queues 18600
before=$(counter a rx_write_requests)
sh /tmp/own_traffic "$ADDRESS_a" >/tmp/first-client.log 2>&1 &
client=$!
traffic() { gone $queues || gone $client || [ "$(counter a rx_write_requests)" -gt "$before" ]; }
wait_for 60 "traffic on the first device" traffic
! gone $queues && ! gone $client || { cat /tmp/first-*.log >&2; fail "no traffic on the first device"; }
scribble "$doorbells" doorbells &
scribbler=$!
use_second $scribbler
wait $scribbler || fail "scribble"
kill $queues $client 2>/dev/null  # the queue pairs may be in ERR
wait $queues $client 2>/dev/null
run on b ibv_devinfo -d "$IB_b"
