# Words for the guest tests: sourced by the scripts beside it, which run inside the guest as root.
#
# "Hosts" a and b are network namespaces of one guest, each with a ConnectX of its own (its netdev and
# its RDMA device), so that every packet between them crosses the devices.

set -u

fail() {
  echo "FAIL: $*" >&2
  dmesg | tail -n 40 >&2
  exit 1
}

# run LINE...: shows the command, runs it, and fails the test if it fails.
run() {
  echo "+ $*"
  "$@" || fail "exit status $? of: $*"
}

# on HOST COMMAND...: runs a command on host a or b, or here.
on() {
  local host=$1
  shift
  [ "$host" = here ] && { "$@"; return; }
  ip netns exec "$host" "$@"
}

mlx5_functions() { # PCI addresses that mlx5_core drives
  (cd /sys/bus/pci/drivers/mlx5_core 2>/dev/null && ls -d 0000:* 2>/dev/null)
}

netdev_of() { ls "/sys/bus/pci/devices/$1/net" 2>/dev/null | head -n 1; }
ibdev_of() { ls "/sys/bus/pci/devices/$1/infiniband" 2>/dev/null | head -n 1; }

# wait_for SECONDS TEXT COMMAND...: until the command succeeds.
wait_for() {
  local limit=$1 text=$2
  shift 2
  local end=$(($(date +%s) + limit))
  until "$@" >/dev/null 2>&1; do
    [ "$(date +%s)" -lt "$end" ] || fail "no $text after $limit s"
    sleep 0.2
  done
}

# expect_functions N: N functions with netdev and RDMA device.
expect_functions() {
  wait_for 30 "$1 mlx5 functions" _functions_ready "$1"
}
_functions_ready() {
  local n=0 f
  for f in $(mlx5_functions); do
    [ -n "$(netdev_of "$f")" ] && [ -n "$(ibdev_of "$f")" ] && n=$((n + 1))
  done
  [ "$n" -eq "$1" ]
}

ADDRESS_a=192.168.10.1
ADDRESS_b=192.168.10.2

# two_hosts [MTU]: hosts a and b, links up, addresses set, neighbours reachable. Sets IF_a, IB_a, GID_a and the
# same for b.
two_hosts() {
  local mtu=${1:-4500} host f
  expect_functions 2
  rdma system set netns exclusive || fail "rdma system set netns exclusive"
  set -- a b
  for f in $(mlx5_functions); do
    host=$1
    shift
    eval "IF_$host=$(netdev_of "$f") IB_$host=$(ibdev_of "$f")"
    ip netns add "$host"
    ip -n "$host" link set lo up
    eval "ip link set \$IF_$host netns $host && rdma dev set \$IB_$host netns $host" ||
      fail "moving function $f to host $host"
    eval "ip -n $host link set \$IF_$host mtu $mtu up && ip -n $host addr add \$ADDRESS_$host/24 dev \$IF_$host" ||
      fail "setting up the netdev of host $host"
  done
  for host in a b; do
    wait_for 20 "carrier on host $host" carrier "$host"
    wait_for 20 "RoCE v2 GID on host $host" gid_index "$host"
    eval "GID_$host=\$(gid_index $host)"
  done
}

# one_host: this guest's only function, its link up, as one host of several guests. Sets IF, IB, GID.
one_host() {
  local IF_here IB_here ADDRESS_here=192.168.11.$GUEST
  expect_functions 1
  IF=$(netdev_of "$(mlx5_functions)") IB=$(ibdev_of "$(mlx5_functions)")
  IF_here=$IF IB_here=$IB
  run ip link set "$IF" up
  run ip addr add "$ADDRESS_here/24" dev "$IF"
  wait_for 20 "carrier" carrier here
  wait_for 20 "RoCE v2 GID" gid_index here
  GID=$(gid_index here)
}

carrier() {
  local name
  eval "name=\$IF_$1"
  [ "$(on "$1" cat "/sys/class/net/$name/carrier")" = 1 ]
}

# gid_index HOST: the RoCE v2 entry of the host's IPv4 address.
gid_index() {
  local ib want i base
  eval "ib=\$IB_$1; want=\$ADDRESS_$1"
  want=$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' $(echo "$want" | tr . ' '))
  base=/sys/class/infiniband/$ib/ports/1
  on "$1" sh -c "
    for i in 0 1 2 3 4 5 6 7; do
      [ \"\$(cat $base/gids/\$i 2>/dev/null)\" = $want ] || continue
      [ \"\$(cat $base/gid_attrs/types/\$i 2>/dev/null)\" = 'RoCE v2' ] || continue
      echo \$i
      exit 0
    done
    exit 1"
}

# perftest PROGRAM OPTION...: server on b, client on a; prints the client's table. Fails with both outputs.
perftest() {
  local program=$1 status server
  shift
  on b "$program" -d "$IB_b" -x "$GID_b" -F "$@" >/tmp/server.log 2>&1 &
  server=$!
  wait_for 20 "$program server" on b sh -c "ss -ltn | grep -q :18515"
  echo "+ $program $*"
  timeout "${PERFTEST_TIMEOUT:-240}" ip netns exec a "$program" -d "$IB_a" -x "$GID_a" -F "$@" "$ADDRESS_b" >/tmp/client.log 2>&1
  status=$?
  if [ $status -ne 0 ]; then
    cat /tmp/client.log /tmp/server.log >&2
    kill $server 2>/dev/null
    fail "$program $*: exit status $status"
  fi
  wait $server || { cat /tmp/server.log >&2; fail "$program server: exit status $?"; }
  grep -v '^$' /tmp/client.log
}

# pingpong PROGRAM OPTION...: server on b, client on a.
pingpong() {
  local program=$1 status server
  shift
  on b "$program" -d "$IB_b" -g "$GID_b" "$@" >/tmp/server.log 2>&1 &
  server=$!
  wait_for 20 "$program server" on b sh -c "ss -ltn | grep -q :18515"
  echo "+ $program $*"
  timeout "${PERFTEST_TIMEOUT:-240}" ip netns exec a "$program" -d "$IB_a" -g "$GID_a" "$@" "$ADDRESS_b" >/tmp/client.log 2>&1
  status=$?
  [ $status -eq 0 ] || { cat /tmp/client.log /tmp/server.log >&2; fail "$program $*: exit status $status"; }
  wait $server || { cat /tmp/server.log >&2; fail "$program server: exit status $?"; }
  cat /tmp/client.log
}

# clean_dmesg: no error, warning or failed command from the drivers, no oops from anyone.
clean_dmesg() {
  local bad
  bad=$(dmesg --level=emerg,alert,crit,err,warn | grep -iE 'mlx5|infiniband|ib_core|rdma' || true)
  [ -z "$bad" ] || fail "the kernel log holds: $bad"
  bad=$(dmesg | grep -E 'WARNING:|BUG:|Oops|Call Trace|hung task|command failed|failed, status|hw csum failure' || true)
  [ -z "$bad" ] || fail "the kernel log holds: $bad"
}

# counter HOST NAME: a hardware counter of the host's RDMA port.
counter() {
  local ib
  eval "ib=\$IB_$1"
  on "$1" cat "/sys/class/infiniband/$ib/ports/1/hw_counters/$2"
}

# soft_roce: rxe on the guest's virtio-net, for rxe_perftest.
soft_roce() {
  run modprobe rdma_rxe
  run rdma link add rxe0 type rxe netdev "$NET_IF"
  RXE_ADDRESS=$(ip -4 -o addr show dev "$NET_IF" | awk '{sub("/.*", "", $4); print $4; exit}')
  [ -n "$RXE_ADDRESS" ] || { RXE_ADDRESS=192.168.77.1; ip addr add $RXE_ADDRESS/24 dev "$NET_IF"; }
  RXE_GID=$(for i in 0 1 2 3; do
    want=$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' $(echo "$RXE_ADDRESS" | tr . ' '))
    [ "$(cat /sys/class/infiniband/rxe0/ports/1/gids/$i)" = "$want" ] && echo $i && break
  done)
}

# rxe_perftest PROGRAM OPTION...: rxe to itself; prints the client's table.
rxe_perftest() {
  local program=$1 server
  shift
  "$program" -d rxe0 -x "$RXE_GID" -F "$@" >/tmp/rxe-server.log 2>&1 &
  server=$!
  wait_for 20 "$program server on rxe" sh -c "ss -ltn | grep -q :18515"
  timeout 120 "$program" -d rxe0 -x "$RXE_GID" -F "$@" "$RXE_ADDRESS" >/tmp/rxe-client.log 2>&1 ||
    { cat /tmp/rxe-client.log /tmp/rxe-server.log >&2; fail "$program on rxe"; }
  wait $server
  cat /tmp/rxe-client.log
}

# The figures' line is the last one with a number in front: average bandwidth is its 4th column, typical
# latency its 5th.
column() { awk -v c="$1" '/^ *[0-9]+ +[0-9]+ +[0-9.]+/ {value = $c} END {print value}'; }
