#!/bin/bash
# Steps 5 to 7: netdev and carrier; ping; the port's MTU; TCP and UDP with checked content through the offloads:
# checksums, TSO and UDP segmentation, RSS over several queues, VLAN tags inserted and stripped by the device and by the
# kernel.
. "$(dirname "$0")/lib.sh"
transfer="$(dirname "$0")/transfer.py"
RSS_KEY=6d:5a:56:da:25:5b:0e:c2:41:67:25:3d:43:a3:8f:b0:d0:ca:2b:cb:ae:7b:30:b4:77:cb:2d:a3:80:30:f2:0c:6a:42:b7:3b:be:ac:01:fa

# transfer PROTOCOL CONNECTIONS BYTES [ADDRESS]: from a to b, contents compared.
transfer() {
  local server
  rm -f /tmp/transfer.port
  ip netns exec b python3 -IS "$transfer" serve "$1" "$2" "${4:-$ADDRESS_b}" /tmp/transfer.port &
  server=$!
  wait_for 60 "receiver on host b" test -s /tmp/transfer.port
  run on a timeout 240 python3 -IS "$transfer" send "$1" "$2" "$3" "${4:-$ADDRESS_b}" "$(cat /tmp/transfer.port)"
  wait $server || fail "the receiver on host b"
}

# count stores the counters; counted stores them again, when what they count is over. grown HOST COUNTER is the growth of an
# ethtool counter of the host's netdev between both.
statistics() { eval "on $1 ethtool -S \$IF_$1"; }
count() { statistics a >/tmp/count_a && statistics b >/tmp/count_b; }
counted() { statistics a >/tmp/counted_a && statistics b >/tmp/counted_b; }
grown() {
  awk -v name="$2:" 'NR == FNR {if ($1 == name) before = $2; next} $1 == name {print $2 - before}' "/tmp/count_$1" "/tmp/counted_$1"
}
# more_than LEAST HOST COUNTER, at_most MOST HOST COUNTER
more_than() {
  local by
  by=$(grown "$2" "$3")
  echo "host $2: $3 grew by $by"
  [ "${by:-0}" -gt "$1" ] || fail "$3 of host $2 grew by ${by:-nothing}, not by more than $1"
}
at_most() {
  local by
  by=$(grown "$2" "$3")
  [ "${by:-$(($1 + 1))}" -le "$1" ] || fail "$3 of host $2 grew by ${by:-nothing}, by more than $1"
}
# Only frames that are not IP may lack a checksum.
all_summed() { at_most 4 b rx_csum_none; }
# know_neighbours replace|del [NETDEV SUBNET]: sets static neighbors, so that no ARP frames are counted among those without
# a checksum; a slow machine would send more of them.
know_neighbours() {
  local subnet=${3:-168.10} a_mac b_mac
  a_mac=$(on a cat "/sys/class/net/$IF_a/address") b_mac=$(on b cat "/sys/class/net/$IF_b/address")
  ip -n a neigh "$1" "${ADDRESS_b/168.10/$subnet}" lladdr "$b_mac" dev "${2:-$IF_a}" nud permanent &&
    ip -n b neigh "$1" "${ADDRESS_a/168.10/$subnet}" lladdr "$a_mac" dev "${2:-$IF_b}" nud permanent ||
    fail "ip neigh $1"
}

two_hosts 9000
run on a ethtool -i "$IF_a"
on a ethtool "$IF_a" | tee /tmp/ethtool
grep -q 'Link detected: yes' /tmp/ethtool || fail "no link"
grep -q 'Speed: 100000Mb/s' /tmp/ethtool || fail "not the speed of PTYS"
count
run on a ping -q -c 10 -i 0.1 "$ADDRESS_b"
run on a ping -q -c 10 -i 0.1 -s 8000 -M do "$ADDRESS_b"
counted
for name in tx_packets rx_packets; do
  more_than 19 a $name
  more_than 19 b $name
done

two_hosts 1500
# b drops frames longer than its MTU.
ip -n a link set "$IF_a" mtu 4500 || fail "a longer MTU on host a alone"
count
# One of the pings must arrive; the port may still be coming up for the first.
run on a ping -q -c 3 -i 0.2 -s 1472 -M do "$ADDRESS_b"
on a ping -q -c 3 -i 0.1 -W 1 -s 3000 -M do "$ADDRESS_b" && fail "host b took frames of 3042 bytes"
counted
more_than 2 b rx_oversize_pkts_phy
two_hosts 1500
for host in a b; do
  eval "on $host ethtool -k \$IF_$host" >/tmp/features
  for feature in rx-checksumming tx-checksumming tcp-segmentation-offload rx-vlan-offload tx-vlan-offload; do
    grep -q "^$feature: on" /tmp/features || fail "$feature of host $host is not on"
  done
done

# Connections of 256 KiB: the device segments and computes checksums, and every queue of b gets a share. Source ports are
# consecutive odd numbers, and the Toeplitz hash is linear: a key that the kernel chooses puts all connections on one queue
# in about one of thirty boots. So b gets the key of the RSS documents' examples, whose hash changes its lowest bit with the
# fifth bit of the source port.
know_neighbours replace
queues=$(on b ethtool -l "$IF_b" | awk '/^Combined:/ {n = $2} END {print n}')
[ "$queues" -ge 2 ] || fail "$queues queues: too few for RSS"
connections=$((12 * queues))
run on b ethtool -X "$IF_b" hkey "$RSS_KEY"
count
transfer tcp $connections 262144
counted
more_than 0 a tx_tso_packets
more_than $((connections * 262144 / 2)) a tx_tso_bytes
more_than $connections a tx_csum_partial
more_than 1000 b rx_csum_complete
all_summed
for queue in $(seq 0 $((queues - 1))); do
  more_than 10 b "rx${queue}_packets"
done
# All entries of the indirection table on queue 0.
run on b ethtool -X "$IF_b" equal 1
count
transfer tcp 8 65536
counted
more_than 100 b rx0_packets
for queue in $(seq 1 $((queues - 1))); do
  at_most 0 b "rx${queue}_packets"
done
run on b ethtool -X "$IF_b" default

# IPv6, and UDP that the device segments into datagrams.
for host in a b; do
  eval "ip -n $host addr replace \$ADDRESS6_$host/64 dev \$IF_$host nodad" || fail "IPv6 address of host $host"
done
count
transfer tcp 4 262144 "$ADDRESS6_b"
counted
more_than $((4 * 262144 / 2)) a tx_tso_bytes
all_summed
count
transfer udp 1 42000
counted
more_than 0 a tx_tso_packets
all_summed

# VLAN 7: tags by the device, then by the kernel.
for host in a b; do
  eval "ip -n $host link add link \$IF_$host name vlan7 type vlan id 7 &&
    ip -n $host addr add \${ADDRESS_$host/168.10/168.7}/24 dev vlan7 && ip -n $host link set vlan7 up" ||
    fail "VLAN 7 on host $host"
done
know_neighbours replace vlan7 168.7
count
run on a ping -q -c 3 -i 0.1 "${ADDRESS_b/168.10/168.7}"
transfer tcp 4 262144 "${ADDRESS_b/168.10/168.7}"
counted
more_than 4 a tx_added_vlan_packets
more_than $((4 * 262144 / 2)) a tx_tso_bytes
more_than 100 b rx_removed_vlan_packets
all_summed
for host in a b; do
  eval "run on $host ethtool -K \$IF_$host rxvlan off txvlan off"
done
count
transfer tcp 4 65536 "${ADDRESS_b/168.10/168.7}"
counted
at_most 0 a tx_added_vlan_packets
at_most 0 b rx_removed_vlan_packets
for host in a b; do
  eval "run on $host ethtool -K \$IF_$host rxvlan on txvlan on"
  run ip -n $host link del vlan7
done
know_neighbours del
clean_dmesg
