#!/bin/bash
# All programs of perftest, on every transport that each of them has, with what their options ask of a card: all sizes,
# many QPs, both directions, events, SRQs, inline data, a memory key for each QP, on-demand paging, the connection
# manager, multicast, frames of the program's own. `perftest_all.sh [WORD]`: only the runs that WORD matches.
. "$(dirname "$0")/lib.sh"
two_hosts
run modprobe -a rdma_ucm
only=${1:-.}
bad=() done=0

# one FUNCTION ARGUMENT...: a run. A failure is recorded, and the other runs continue.
one() {
  local line="$*"
  [[ $line =~ $only ]] || return 0
  done=$((done + 1))
  if ("$@") >/tmp/run.log 2>&1; then
    echo "ok $line"
  else
    echo "BAD $line"
    grep -vE '^ *$|^\[ *[0-9.]+\]|^---' /tmp/run.log | tail -n 25
    bad+=("$line")
  fi
}
cm_perftest() {
  local program=$1
  shift
  cm_server "$program" -R -d "$IB_b" -F "$@"
  cm_client "$program" -R -d "$IB_a" -F "$@" "$ADDRESS_b"
}

# The group is an IPv6 group, so the source must be an IPv6 address.
group_perftest() {
  GID_a=1 GID_b=1
  perftest "$@"
}
. "$(dirname "$0")/perftest_list.sh"

# raw_ethernet PROGRAM OPTION...: server and client have no connection to synchronize by, and frames may be lost.
mac() { on "$1" cat "/sys/class/net/$2/address"; }
raw_ethernet() {
  local program=$1 server status mac_a mac_b
  shift
  mac_a=$(mac a "$IF_a") mac_b=$(mac b "$IF_b")
  ip netns exec b timeout 60 "$program" -d "$IB_b" --server -B "$mac_b" -E "$mac_a" -F "$@" >/tmp/server.log 2>&1 &
  server=$!
  sleep 5
  ip netns exec a timeout 60 "$program" -d "$IB_a" --client -B "$mac_a" -E "$mac_b" -F "$@" >/tmp/client.log 2>&1
  status=$?
  wait $server || status="$status and $?"
  cat /tmp/client.log /tmp/server.log
  [ "$status" = 0 ] || fail "$program: exit status $status"
}
addresses="-J $ADDRESS_b -j $ADDRESS_a -K 5000 -k 5001"
# As many frames as the receiver has buffers. No events, because these programs wait for an event that they have not
# requested. Only raw_ethernet_bw has several QPs.
for options in "-s 1000" "-s 1000 $addresses"; do
  one raw_ethernet raw_ethernet_bw -n 500 $options
  one raw_ethernet raw_ethernet_lat -n 100 $options
done
one raw_ethernet raw_ethernet_bw -n 500 -s 1000 -q 4
# Not raw_ethernet_burst_lat: it treats the size of its bursts as a rate limit, and refuses that in a latency test. Flows of
# several kinds: by ports, of all frames, of other stations' frames.
one raw_ethernet raw_ethernet_bw -n 480 -s 1000 $addresses --flows 8
one raw_ethernet raw_ethernet_bw -n 480 -s 1000 $addresses --tcp
one raw_ethernet raw_ethernet_bw -n 500 -s 1000 --vlan_en
one raw_ethernet raw_ethernet_bw -n 500 -s 1000 --promiscuous
one raw_ethernet raw_ethernet_bw -n 500 -s 1000 --sniffer
# Measures how fast flows are made and destroyed.
flow_rate() {
  on b timeout 60 raw_ethernet_fs_rate -d "$IB_b" --server -B "$(mac b "$IF_b")" -E "$(mac a "$IF_a")" "$@" || fail "exit status $?"
}
one flow_rate -n 200
one flow_rate -n 200 $addresses
echo "$done runs, ${#bad[@]} of them bad"
[ ${#bad[@]} -eq 0 ] || fail "$(printf '%s\n' "${bad[@]}")"
clean_dmesg
