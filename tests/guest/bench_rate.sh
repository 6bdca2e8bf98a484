#!/bin/bash
# How many messages of 64 bytes a guest moves from one device to another. Lines "bench NAME WHO VALUE UNIT"
# for bench/run.
. "$(dirname "$0")/lib.sh"
rounds=${1:-1}
two_hosts

for round in $(seq "$rounds"); do
  for program in ib_write_bw ib_send_bw; do
    echo "bench $program.64.rate softhca $(perftest $program -s 64 -n 50000 | column 5) M/s"
  done
done
