#!/bin/bash
# ladder_16_bandwidth.sh [-a]: step 16, RC: bandwidth tests at three sizes or all of perftest's, queue counts, directions,
# events, inline sizes, MTUs. capture.sh covers the other MTUs and checks their packets; -a has all.
. "$(dirname "$0")/lib.sh"
two_hosts
for program in ib_read_bw ib_write_bw ib_send_bw; do
  case ${1:-} in
  -a) perftest $program -a -n 50 ;;
  *) for size in 2 5000 1048576; do perftest $program -s $size -n 50; done ;;
  esac
  perftest $program -q 8 -s 65536 -n 200
  perftest $program -b -s 65536 -n 500
  perftest $program -s 4096 -n 500 --cq-mod 1
done
perftest ib_read_bw -e -s 65536 -n 500
perftest ib_send_bw -e -s 65536 -n 500
perftest ib_write_bw -s 64 -n 1000 -I 64
perftest ib_send_bw -s 128 -n 1000 -I 128
mtus="512 2048"
[ "${1:-}" != -a ] || mtus="256 512 1024 2048 4096"
for mtu in $mtus; do
  for program in ib_read_bw ib_write_bw ib_send_bw; do
    perftest $program -m $mtu -s 100000 -n 100
  done
done
clean_dmesg
