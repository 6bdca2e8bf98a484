#!/bin/bash
# wire.sh SOFTHCA ROUNDS: perftest between two programs of `softhca run --address if:veth0` on two machines, and iperf3 and a bare
# UDP ping-pong between the same two, in turns. A machine is a network namespace; a veth of MTU 9000 joins them, so the path MTU
# of RDMA is 4096. Lines "bench NAME WHO VALUE UNIT" for bench/run.
set -u
if [ -z "${OWN_NETWORK:-}" ]; then
  [ "$(id -u)" = 0 ] && user=() || user=(--map-root-user)
  OWN_NETWORK=1 exec unshare --net "${user[@]}" "$0" "$@"
fi
softhca=$(realpath "$1") rounds=$2 ping=$(dirname "$(realpath "$1")")/bench/udp_ping
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../tests/door/rendezvous.sh"

folder=$(mktemp -d)
unshare --net tail -f /dev/null & other=$!
trap 'kill $other; rm -rf "$folder"' EXIT
in_b=(nsenter --target $other --net)
eventually eval '[ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]'
ip link add veth0 mtu 9000 type veth peer name veth0 mtu 9000 netns $other
for namespace in "1 env" "2 ${in_b[*]}"; do
  read -r host enter <<<"$namespace"
  $enter ip addr add 10.77.0.$host/24 dev veth0
  $enter ip link set lo up
  $enter ip link set veth0 up
  mkdir -m 700 "$folder/$host"
done
a="env XDG_RUNTIME_DIR=$folder/1 $softhca run --address if:veth0 --"
b="${in_b[*]} env XDG_RUNTIME_DIR=$folder/2 $softhca run --address if:veth0 --"

# two READY SERVER CLIENT: prints the client's output.
two() {
  patience=110 meet "$1" "$2 >/dev/null 2>$folder/server" "$3 2>$folder/client" ||
    { echo "FAILED: $3" >&2; cat "$folder/server" "$folder/client" >&2; return 1; }
}
# ib PROGRAM SIZE COLUMN OPTION...
ib() {
  local command="$1 -d mlx5_0 -x 3 -F -s $2 ${*:4}"
  two "listens 18515" "$a $command" "$b $command 10.77.0.1" | awk -v size="$2" -v n="$3" '$1 == size { print $n }'
}
has_udp() { grep -qi ":$(printf %04x "$1") " /proc/net/udp; }
# ping_pong poll|block
ping_pong() {
  two "has_udp 4792" "$ping serve 10.77.0.1 $1 20000" "${in_b[*]} $ping ask 10.77.0.1 $1 20000" | awk '{ print $2 }'
}
# iperf SECONDS: MiB/s that arrive.
iperf() {
  two "listens 5201" "iperf3 -s -1" "${in_b[*]} iperf3 -c 10.77.0.1 -u -l 4096 -b 0 -t $1 -J" |
    python3 -c 'import json, sys; end = json.load(sys.stdin)["end"]["sum"]
print(end["bits_per_second"] / 8 / 2**20 * (1 - end["lost_percent"] / 100))'
}
failed=0
# report NAME WHO UNIT COMMAND...
report() {
  local value
  value=$("${@:4}")
  [ -n "$value" ] && echo "bench $1 $2 $value $3" || failed=1
}

for round in $(seq "$rounds"); do
  for test in ib_write_bw ib_send_bw; do
    report wire.$test.65536 softhca MiB/s ib $test 65536 4 -n 20000
    report wire.$test.65536 iperf3 MiB/s iperf 2
  done
  for test in ib_write_lat ib_send_lat; do
    report wire.$test.8 softhca us ib $test 8 5 -n 5000
    report wire.$test.8 udp-poll us ping_pong poll
  done
  report wire.ib_send_lat.8.events softhca us ib ib_send_lat 8 5 -n 5000 -e
  report wire.ib_send_lat.8.events udp-block us ping_pong block
done
exit $failed
