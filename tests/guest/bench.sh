#!/bin/bash
# Benchmarks in a guest, each beside soft-RoCE (rxe on the guest's virtio-net, itself to itself) in the same run.
# Lines "bench NAME WHO VALUE UNIT" for bench/run; three rounds, so that it can take medians.
. "$(dirname "$0")/lib.sh"
rounds=${1:-3}
two_hosts
run modprobe rdma_rxe
run rdma link add rxe0 type rxe netdev "$NET_IF"
rxe_address=$(ip -4 -o addr show dev "$NET_IF" | awk '{sub("/.*", "", $4); print $4; exit}')
[ -n "$rxe_address" ] || { rxe_address=192.168.77.1; ip addr add $rxe_address/24 dev "$NET_IF"; }
rxe_gid=$(for i in 0 1 2 3; do
  want=$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' $(echo "$rxe_address" | tr . ' '))
  [ "$(cat /sys/class/infiniband/rxe0/ports/1/gids/$i)" = "$want" ] && echo $i && break
done)

rxe_perftest() { # PROGRAM OPTION...
  local program=$1 server
  shift
  "$program" -d rxe0 -x "$rxe_gid" -F "$@" >/tmp/rxe-server.log 2>&1 &
  server=$!
  wait_for 20 "$program server on rxe" sh -c "ss -ltn | grep -q :18515"
  timeout 120 "$program" -d rxe0 -x "$rxe_gid" -F "$@" "$rxe_address" >/tmp/rxe-client.log 2>&1 ||
    { cat /tmp/rxe-client.log /tmp/rxe-server.log >&2; fail "$program on rxe"; }
  wait $server
  cat /tmp/rxe-client.log
}

# The figures' line is the last one with a number in front: average bandwidth is its 4th column, typical
# latency its 5th.
column() { awk -v c="$1" '/^ *[0-9]+ +[0-9]+ +[0-9.]+/ {value = $c} END {print value}'; }

for round in $(seq "$rounds"); do
  echo "round $round of $rounds"
  for program in ib_write_bw ib_read_bw; do
    for size in 1048576 65536; do
      echo "bench $program.$size softhca $(perftest $program -s $size -n 200 | column 4) MiB/s"
      echo "bench $program.$size rxe $(rxe_perftest $program -s $size -n 40 | column 4) MiB/s"
    done
  done
  for program in ib_write_lat ib_send_lat; do
    echo "bench $program.8 softhca $(perftest $program -s 8 -n 2000 | column 5) us"
    echo "bench $program.8 rxe $(rxe_perftest $program -s 8 -n 1000 | column 5) us"
  done
done
