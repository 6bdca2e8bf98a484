#!/bin/bash
# ladder_15_latency.sh [-a]: step 15, RC: latency tests, at three sizes or at all of perftest's.
. "$(dirname "$0")/lib.sh"
two_hosts
losses="out_of_sequence rnr_nak_retry_err packet_seq_err implied_nak_seq_err"
for host in a b; do
  for name in $losses rx_write_requests; do
    counter $host $name >/tmp/before-$host-$name
  done
done
moved() { echo $(($(counter "$1" "$2") - $(cat "/tmp/before-$1-$2"))); } # HOST COUNTER: since the script began

for program in ib_send_lat ib_write_lat ib_read_lat; do
  case ${1:-} in
  -a) perftest $program -a -n 25 ;;
  *) for size in 2 5000 1048576; do perftest $program -s $size -n 25; done ;;
  esac
  perftest $program -s 64 -n 1000
done
perftest ib_send_lat -s 64 -n 500 -e
perftest ib_read_lat -s 64 -n 500 -e
perftest ib_write_lat -s 64 -n 500 -I 64
perftest ib_send_lat -s 128 -n 500 -I 0
run on a rdma statistic show link "$IB_a/1"
for host in a b; do
  for name in $losses; do
    [ "$(moved $host $name)" = 0 ] || fail "$name of host $host moved by $(moved $host $name)"
  done
  [ "$(moved $host rx_write_requests)" -gt 0 ] || fail "no RDMA WRITE was counted on host $host"
done
clean_dmesg
