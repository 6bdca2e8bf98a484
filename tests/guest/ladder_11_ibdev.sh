#!/bin/bash
# Step 11: two active RoCE ports.
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
done
clean_dmesg
