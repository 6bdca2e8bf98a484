#!/bin/bash
# All programs of perftest, on every transport that each of them has, with what their options ask of a card: all sizes,
# many QPs, both directions, events, SRQs, inline data, a memory key for each QP, on-demand paging, the connection
# manager, multicast, frames of the program's own. `perftest_all.sh [WORD]`: only the runs that WORD matches.
#
# Not tested, since perftest itself refuses it: READs and atomics of UC and UD, RDMA WRITE by UD, events of
# WRITEs, inline data of READs.
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

services_of() {
  case $1 in
  ib_send_*) echo RC UC UD XRC DC ;;
  ib_write_*) echo RC UC XRC DC ;;
  *) echo RC XRC DC ;;
  esac
}
for verb in send write read atomic; do
  for service in $(services_of ib_${verb}_bw); do
    sized="-s 20000"
    all=-a
    [ $service != UD ] || sized="-s 4096"
    [ $verb != atomic ] || sized="" all=""
    one perftest ib_${verb}_bw -c $service $all -n 10
    one perftest ib_${verb}_lat -c $service $all -n 10
    one perftest ib_${verb}_bw -c $service $sized -q 16 -n 20
    one perftest ib_${verb}_bw -c $service $sized -b -n 100
    if [ $verb != write ]; then
      one perftest ib_${verb}_bw -c $service $sized -e -n 100
      one perftest ib_${verb}_lat -c $service -e -n 20
    fi
    one perftest ib_${verb}_bw -c $service $sized -q 4 --mr_per_qp -n 20
    case $verb in send | write)
      one perftest ib_${verb}_bw -c $service -s 64 -I 64 -n 100
      one perftest ib_${verb}_lat -c $service -s 64 -I 64 -n 100
      ;;
    esac
    if [ $service != UC ]; then
      one perftest ib_${verb}_bw -c $service $sized --odp -n 50
      one perftest ib_${verb}_lat -c $service --odp -n 50
    fi
  done
done
one perftest ib_atomic_bw -A CMP_AND_SWAP -n 100
one perftest ib_atomic_bw -A FETCH_AND_ADD -q 16 -n 20
one perftest ib_send_bw --use-srq -q 8 -s 20000 -n 50
one perftest ib_send_lat --use-srq -n 50
# Datagrams without a buffer are lost, and no transport retransmits them: so post fewer than the SRQ has.
one perftest ib_send_bw -c UD --use-srq -q 8 -s 2000 -n 10
one perftest ib_write_bw --write_with_imm -s 20000 -n 50
one perftest ib_write_lat --write_with_imm -n 50
one perftest ib_atomic_lat -A CMP_AND_SWAP -n 100
# Lists of requests with one doorbell, the old way of posting, the null key.
for verb in send write read; do
  one perftest ib_${verb}_bw -s 20000 -l 8 -n 80
  one perftest ib_${verb}_bw -s 20000 --use_old_post_send -n 50
done
one perftest ib_send_bw -s 20000 --recv_post_list=4 -n 80
one perftest ib_write_bw -s 20000 --use-null-mr -n 50
for verb in send write read atomic; do
  one cm_perftest ib_${verb}_bw -n 50
  one cm_perftest ib_${verb}_lat -n 50
done
one cm_perftest ib_send_bw -c UD -s 2000 -n 50
one cm_perftest ib_send_lat -c UD -n 50
one cm_perftest ib_write_bw -q 4 -s 20000 -n 20
one cm_perftest ib_send_bw -b -s 20000 -n 50
one cm_perftest ib_read_bw -a -n 10
# The group is an IPv6 group, so the source must be an IPv6 address.
multicast() {
  GID_a=1 GID_b=1
  perftest "$@"
}
one multicast ib_send_bw -c UD -g -s 2000 -n 50
one multicast ib_send_lat -c UD -g -n 50

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
