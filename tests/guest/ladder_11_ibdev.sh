#!/bin/bash
# Step 11: two active RoCE ports, down and active again with their netdevs.
. "$(dirname "$0")/lib.sh"
two_hosts
for host in a b; do
  eval "ib=\$IB_$host"
  on $host rdma link show
  on $host ibv_devinfo -v -d "$ib" | tee /tmp/devinfo
  grep -q 'PORT_ACTIVE' /tmp/devinfo || fail "port of $ib is not active"
  grep -q 'link_layer:.*Ethernet' /tmp/devinfo || fail "link layer"
  grep -q 'node_guid:.*0000:0000:0000:0000' /tmp/devinfo && fail "node GUID is zero"
  grep -q 'active_mtu:.*4096' /tmp/devinfo || fail "active MTU is not 4096"
  grep -q 'GID\[.*RoCE v2' /tmp/devinfo || fail "no RoCE v2 GID"
  wait_for 60 "RoCE v1 GID on host $host" gid_index "$host" "IB/RoCE v1"
done

# port_is HOST STATE
port_is() { eval "on $1 grep -q $2 /sys/class/infiniband/\$IB_$1/ports/1/state"; }
ip -n a link set "$IF_a" down
wait_for 60 "port of host a that is down" port_is a DOWN
port_is b ACTIVE || fail "the port of host b went down with that of a"
ip -n a link set "$IF_a" up
wait_for 60 "active port of host a" port_is a ACTIVE
wait_for 60 "RoCE v2 GID on host a" gid_index a
clean_dmesg
