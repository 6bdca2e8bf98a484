#!/bin/bash
# Benchmarks in a guest, each beside soft-RoCE (rxe on the guest's virtio-net, itself to itself) in the same run.
# Lines "bench NAME WHO VALUE UNIT" for bench/run; three rounds, so that it can take medians.
. "$(dirname "$0")/lib.sh"
rounds=${1:-3}
two_hosts
soft_roce

for round in $(seq "$rounds"); do
  echo "round $round of $rounds"
  for program in ib_write_bw ib_read_bw; do
    for size in 1048576 65536; do
      # Long enough that QEMU's translation of the loop does not matter.
      echo "bench $program.$size softhca $(perftest $program -s $size -n 5000 | column 4) MiB/s"
      echo "bench $program.$size rxe $(rxe_perftest $program -s $size -n 40 | column 4) MiB/s"
    done
  done
  # Both ends in one QEMU compete for its lock; bench_latency.sh uses two.
  echo "bench ib_write_lat.8.one_guest softhca $(perftest ib_write_lat -s 8 -n 20000 | column 5) us"
  echo "bench ib_write_lat.8.one_guest rxe $(rxe_perftest ib_write_lat -s 8 -n 2000 | column 5) us"
done
