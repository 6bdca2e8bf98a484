#!/bin/bash
# door.sh SOFTHCA ROUNDS: perftest between two processes of `softhca run`, and UCX's `tcp` transport between the same two,
# in turns. Lines "bench NAME WHO VALUE UNIT" for bench/run. Runs in a separate network namespace, where perftest's port is
# free.
set -u
if [ -z "${OWN_NETWORK:-}" ]; then
  [ "$(id -u)" = 0 ] && user=() || user=(--map-current-user --keep-caps)
  OWN_NETWORK=1 exec unshare --net "${user[@]}" sh -c 'ip link set lo up; exec "$0" "$@"' "$0" "$@"
fi
softhca=$1 rounds=$2
. "$(dirname "$0")/../tests/door/rendezvous.sh"

# two PORT COMMAND...: starts a server and, when it listens, a client with localhost appended. Prints the client's output.
two() {
  local port=$1
  shift
  patience=110 timeout 120 "$softhca" run --private -- bash -c "meet 'listens $port' '$* >/dev/null 2>&1' '$* localhost'" 2>/tmp/door.err ||
    { echo "FAILED: $*" >&2; cat /tmp/door.err >&2; exit 1; }
}
# ib PROGRAM SIZE N COLUMN
ib() { two 18515 "$1" -d mlx5_0 -x 3 -F -s "$2" -n "$3" | awk -v size="$2" -v n="$4" '$1 == size { print $n }'; }
# ucx TEST SIZE N COLUMN: the column of the summary line.
ucx() { UCX_TLS=tcp UCX_NET_DEVICES=lo two 13337 ucx_perftest -t "$1" -s "$2" -n "$3" -w 100 -f | awk -v n="$4" 'NF >= 8 { value = $n } END { print value }'; }

for round in $(seq "$rounds"); do
  for size in 1048576 65536; do
    n=$((2000 * 1048576 / size))
    echo "bench door.ib_write_bw.$size softhca $(ib ib_write_bw $size $n 4) MiB/s"
    echo "bench door.ib_write_bw.$size ucx-tcp $(ucx tag_bw $size $((n / 4)) 5) MiB/s"
  done
  echo "bench door.ib_write_bw.8.rate softhca $(ib ib_write_bw 8 1000000 5) M/s"
  echo "bench door.ib_write_bw.8.rate ucx-tcp $(ucx tag_bw 8 1000000 7 | awk '{ print $1 / 1e6 }') M/s"
  echo "bench door.ib_send_lat.8 softhca $(ib ib_send_lat 8 20000 5) us"
  echo "bench door.ib_send_lat.8 ucx-tcp $(ucx tag_lat 8 20000 2) us"
  echo "bench door.ib_write_lat.8 softhca $(ib ib_write_lat 8 20000 5) us"
  tcp=$(ucx tag_lat 8 20000 2)
  echo "bench door.ib_write_lat.8 ucx-tcp $tcp us"
  # The same in one process, which leaves a processor for the library's thread.
  echo "bench door.write_lat.8 softhca $("$softhca" run --private -- "$(dirname "$softhca")/bench/write_lat" | awk '{ print $2 }') us"
  echo "bench door.write_lat.8 ucx-tcp $tcp us"
done
