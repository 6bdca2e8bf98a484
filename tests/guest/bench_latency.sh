#!/bin/bash
# Latency between two guests, each with a ConnectX, beside soft-RoCE (rxe on guest 1's virtio-net, itself to
# itself) in the same run: guest 1 is the client, guest 2 serves. Runs with --guests 2; lines as in bench.sh.
. "$(dirname "$0")/lib.sh"
rounds=${1:-3}
programs="ib_write_lat ib_send_lat"
one_host
# A peer's program that ends is followed by the next one on the same port: each waits for the other.
if [ "$GUEST" = 2 ]; then
  for _ in $(seq "$rounds"); do
    for program in $programs; do
      run timeout 300 "$program" -d "$IB" -x "$GID" -F -s 8 -n 20000
    done
  done
  exit 0
fi
soft_roce

softhca() { # PROGRAM
  local limit=$(($(date +%s) + 60))
  until timeout 120 "$1" -d "$IB" -x "$GID" -F -s 8 -n 20000 guest2 >/tmp/client.log 2>&1; do
    [ "$(date +%s)" -lt $limit ] || { cat /tmp/client.log >&2; fail "$1 to guest 2"; }
    sleep 0.5
  done
  cat /tmp/client.log
}

for round in $(seq "$rounds"); do
  echo "round $round of $rounds"
  for program in $programs; do
    echo "bench $program.8 softhca $(softhca $program | column 5) us"
    echo "bench $program.8 rxe $(rxe_perftest $program -s 8 -n 2000 | column 5) us"
  done
done
