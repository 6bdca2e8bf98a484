# Shell functions for the guest tests: sourced by the scripts in this folder, which run inside the guest as root.
#
# "Hosts" a and b are network namespaces of one guest, each with its own ConnectX (netdev and RDMA device), so that every
# packet between them crosses the devices. They stay when a script ends, for the next script in the same guest, because
# making them takes longer than most scripts.

set -u
. "$(dirname "${BASH_SOURCE[0]}")/wait.sh"

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

# inside HOST FUNCTION ARGUMENT...: runs a shell function, which must not call others, on host a or b, or here. It looks at many
# files in one process: in an emulated guest a process takes longer to start than a script takes to read them.
inside() {
  local host=$1
  shift
  [ "$host" = here ] && { "$@"; return; }
  [ -e "/run/netns/$host" ] || return 1
  ip netns exec "$host" bash -c "$(declare -f "$1"); \"\$@\"" inside "$@"
}

# mlx5_functions: PCI addresses that mlx5_core drives, or with FUNCTIONS="4 5" the fourth and the fifth of them.
mlx5_functions() {
  local path number=0
  for path in /sys/bus/pci/drivers/mlx5_core/0000:*; do
    [ -e "$path" ] || return 1
    number=$((number + 1))
    [[ " ${FUNCTIONS:-$number} " != *" $number "* ]] || echo "${path##*/}"
  done
}

# The devices of a function: those of this namespace, or of another HOST.
netdev_of() { inside "${2:-here}" _first "/sys/bus/pci/devices/$1/net"; }
ibdev_of() { inside "${2:-here}" _first "/sys/bus/pci/devices/$1/infiniband"; }
_first() {
  local path
  for path in "$1"/*; do
    [ -e "$path" ] && echo "${path##*/}"
    return
  done
}

# expect_functions N: there are N functions with netdev and RDMA device, under the names that udev gives them.
expect_functions() {
  wait_for 120 "$1 mlx5 functions" _functions_ready "$1"
  udev-settle 120 || fail "udev is not done after 120 s"
}
_functions_ready() {
  local n=0 host
  for host in here a b; do
    n=$((n + $(inside "$host" _complete $(mlx5_functions) || echo 0)))
  done
  [ "$n" -eq "$1" ]
}
# _complete FUNCTION...: how many of them have a netdev and an RDMA device in this namespace.
_complete() {
  local n=0 f
  for f; do
    compgen -G "/sys/bus/pci/devices/$f/net/*" && compgen -G "/sys/bus/pci/devices/$f/infiniband/*" && n=$((n + 1))
  done >/dev/null
  echo $n
}

# keys_are_made: waits until the drivers have filled their caches of memory keys, which they do in the background.
keys_are_made() {
  local cache size limit
  for cache in /sys/kernel/debug/mlx5/*/mr_cache/*/; do
    [ -e "$cache" ] || continue
    read -r size <"$cache/size" && read -r limit <"$cache/limit" && [ "$size" -ge $((2 * limit)) ] || return 1
  done
}

ADDRESS_a=192.168.10.1
ADDRESS_b=192.168.10.2
ADDRESS6_a=fd00::1
ADDRESS6_b=fd00::2

# two_hosts [MTU]: hosts a and b, links up, addresses set, neighbours reachable. Sets IF_a, IB_a, GID_a and the
# same for b.
two_hosts() {
  local mtu=${1:-4500} host f
  _hosts_are_there "$mtu" $(mlx5_functions) && return
  expect_functions 2
  set -- a b
  for f in $(mlx5_functions); do
    host=$1
    shift
    _host "$host" "$f" "$mtu"
  done
  for host in a b; do
    wait_for 60 "carrier on host $host" carrier "$host"
    wait_for 60 "RoCE v2 GID on host $host" gid_index "$host"
    eval "GID_$host=\$(gid_index $host)"
  done
}

# _hosts_are_there MTU FUNCTION FUNCTION: an earlier script has left both hosts as two_hosts makes them. Sets the same.
_hosts_are_there() {
  local mtu=$1 host address name ib now up gid
  shift
  [ $# = 2 ] || return
  for host in a b; do
    eval "address=\$ADDRESS_$host"
    read -r name ib now up gid <<<"$(inside "$host" _state "$1" "$address")"
    [ "$now $up" = "$mtu 1" ] && [ -n "$gid" ] || return
    eval "IF_$host=\$name IB_$host=\$ib GID_$host=\$gid"
    shift
  done
}
# _state FUNCTION ADDRESS: netdev, RDMA device, MTU, carrier and the index of the address's GID of RoCE v2, as far as they are
# in this namespace.
_state() {
  local netdev ibdev mtu carrier gid want type i
  printf -v want '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' ${2//./ }
  for netdev in "/sys/bus/pci/devices/$1/net/"*; do
    for ibdev in "/sys/bus/pci/devices/$1/infiniband/"*; do
      read -r mtu <"$netdev/mtu" && read -r carrier <"$netdev/carrier" || return
      for i in 0 1 2 3 4 5 6 7; do
        read -r gid <"$ibdev/ports/1/gids/$i" && [ "$gid" = "$want" ] || continue
        read -r type <"$ibdev/ports/1/gid_attrs/types/$i" && [ "$type" = "RoCE v2" ] || continue
        echo "${netdev##*/} ${ibdev##*/} $mtu $carrier $i"
        return
      done
    done
  done 2>/dev/null
}

# _host HOST FUNCTION MTU: moves the function's devices to the host, and sets them up.
_host() {
  local host=$1 f=$2 mtu=$3 name
  name=$(netdev_of "$f" "$host")
  if [ -z "$name" ]; then
    rdma system set netns exclusive || fail "rdma system set netns exclusive"
    [ ! -e "/run/netns/$host" ] || run ip netns del "$host" # that of another function, or of one before a reload
    run ip netns add "$host"
    name=$(netdev_of "$f")
    ip -n "$host" link set lo up
    ip link set "$name" netns "$host" && rdma dev set "$(ibdev_of "$f")" netns "$host" ||
      fail "moving function $f to host $host"
    eval "ip -n $host addr add \$ADDRESS_$host/24 dev $name" || fail "setting the address of host $host"
  fi
  eval "IF_$host=$name IB_$host=$(ibdev_of "$f" "$host")"
  if [ "$(on "$host" cat "/sys/class/net/$name/mtu")" != "$mtu" ]; then
    ip -n "$host" link set "$name" down
  fi
  ip -n "$host" link set "$name" mtu "$mtu" up || fail "setting up the netdev of host $host"
}

# one_host_here [MTU]: a host b as above, and the guest itself in place of a: for tests that query a device by devlink,
# which must be in the initial namespace. Sets IF_here, IB_here, GID_here.
one_host_here() {
  local mtu=${1:-4500} host
  expect_functions 2
  set -- $(mlx5_functions)
  IF_here=$(netdev_of "$1") IB_here=$(ibdev_of "$1") ADDRESS_here=$ADDRESS_a
  _host b "$2" "$mtu"
  run ip addr add "$ADDRESS_here/24" dev "$IF_here"
  run ip link set "$IF_here" mtu "$mtu" up
  for host in here b; do
    wait_for 60 "carrier on host $host" carrier "$host"
    wait_for 60 "RoCE v2 GID on host $host" gid_index "$host"
    eval "GID_$host=\$(gid_index $host)"
  done
}

# one_host: this guest's only function, with its link up, as one host of several guests. Sets IF, IB, GID.
one_host() {
  local IF_here IB_here ADDRESS_here=192.168.11.$GUEST
  expect_functions 1
  IF=$(netdev_of "$(mlx5_functions)") IB=$(ibdev_of "$(mlx5_functions)")
  IF_here=$IF IB_here=$IB
  run ip link set "$IF" up
  run ip addr add "$ADDRESS_here/24" dev "$IF"
  wait_for 60 "carrier" carrier here
  wait_for 60 "RoCE v2 GID" gid_index here
  GID=$(gid_index here)
}

carrier() {
  local name
  eval "name=\$IF_$1"
  [ "$(on "$1" cat "/sys/class/net/$name/carrier")" = 1 ]
}

# gid_index HOST [TYPE]: the entry of the host's IPv4 address, of RoCE v2 or of another type.
gid_index() {
  local ib want
  eval "ib=\$IB_$1; want=\$ADDRESS_$1"
  printf -v want '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' ${want//./ }
  inside "$1" _gid_index "$ib" "$want" "${2:-RoCE v2}"
}
_gid_index() {
  local i gid type port=/sys/class/infiniband/$1/ports/1
  for i in 0 1 2 3 4 5 6 7; do
    { read -r gid <"$port/gids/$i" && [ "$gid" = "$2" ] && read -r type <"$port/gid_attrs/types/$i"; } 2>/dev/null || continue
    [ "$type" = "$3" ] && echo $i && return
  done
  return 1
}

# all_pings HOST OPTION...: fails if any ping is unanswered; ping's own status only says that one was answered.
all_pings() {
  local host=$1
  shift
  echo "+ ping $*"
  on "$host" ping -q "$@" >/tmp/ping.log || { cat /tmp/ping.log >&2; fail "no ping was answered"; }
  cat /tmp/ping.log
  grep -q ' 0% packet loss' /tmp/ping.log || fail "pings were lost"
}

# client_and_server PORT FLAG PROGRAM OPTION...: server on b, client on a; FLAG is the option for the GID. Prints the
# client's output. On failure prints both outputs.
client_and_server() {
  local port=$1 flag=$2 program=$3 status server
  shift 3
  ip netns exec b "$program" -d "$IB_b" "$flag" "$GID_b" "$@" >/tmp/server.log 2>&1 &
  server=$!
  wait_for 60 "$program server" listens "$server" "$port"
  echo "+ $program $*"
  timeout "${PERFTEST_TIMEOUT:-500}" ip netns exec a "$program" -d "$IB_a" "$flag" "$GID_a" "$@" "$ADDRESS_b" \
    >/tmp/client.log 2>&1
  status=$?
  if [ $status -ne 0 ]; then
    cat /tmp/client.log /tmp/server.log >&2
    kill $server 2>/dev/null
    fail "$program $*: exit status $status"
  fi
  wait $server
  status=$?
  [ $status -eq 0 ] || { cat /tmp/server.log >&2; fail "$program server: exit status $status"; }
  grep -v '^$' /tmp/client.log
}

perftest() { client_and_server 18515 -x "$@" -F; }
pingpong() { client_and_server 18515 -g "$@"; }

# cm_server PROGRAM ARGUMENT...: a program on b that listens with the RDMA connection manager. cm_client PROGRAM
# ARGUMENT...: its client on a. If one of them fails or prints a failure, prints both outputs.
cm_server() {
  ip netns exec b "$@" >/tmp/server.log 2>&1 &
  cm_server_process=$!
  wait_for 60 "$1 that listens" cm_listens "$cm_server_process"
}
cm_client() {
  local status
  echo "+ $*"
  timeout "${PERFTEST_TIMEOUT:-500}" ip netns exec a "$@" >/tmp/client.log 2>&1
  status=$?
  [ $status -ne 0 ] || wait "$cm_server_process" || status=$?
  if [ $status -ne 0 ] || grep -iE 'mismatch|error|fail|return status [^0]' /tmp/client.log /tmp/server.log; then
    cat /tmp/client.log /tmp/server.log >&2
    kill "$cm_server_process" 2>/dev/null
    fail "$*: exit status $status"
  fi
  cat /tmp/client.log
}

# kernel_log: the kernel's messages since the previous script ended.
kernel_log() { dmesg -x | awk '/softhca: boot [0-9]+: ended/ {text = ""; next} {text = text $0 "\n"} END {printf "%s", text}'; }

# clean_dmesg: fails on errors, warnings or failed commands of the drivers, and on any oops. Two messages are ignored:
# "workqueue: NAME hogged CPU for >10000us" is a warning that names drivers, but only measures how busy the machine is.
# "Write combining is not supported" (Linux 7.x) is true of a BAR that is trapped: its stores arrive one by one.
clean_dmesg() {
  local bad
  bad=$(kernel_log | awk '
    /WARNING:|BUG:|Oops|Call Trace|hung task|command failed|failed, status|hw csum failure/ {print; next}
    /workqueue: .* hogged CPU/ || /Write combining is not supported/ {next}
    /^[a-z]+ *:(emerg|alert|crit|err|warn) *:/ && tolower($0) ~ /mlx5|infiniband|ib_core|rdma/ {print}')
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
  wait_for 60 "$program server on rxe" listens "$server" 18515
  timeout "${PERFTEST_TIMEOUT:-500}" "$program" -d rxe0 -x "$RXE_GID" -F "$@" "$RXE_ADDRESS" >/tmp/rxe-client.log 2>&1 ||
    { cat /tmp/rxe-client.log /tmp/rxe-server.log >&2; fail "$program on rxe"; }
  wait $server
  cat /tmp/rxe-client.log
}

# The last line that begins with a number has the figures: average bandwidth in column 4, typical latency in column 5.
column() { awk -v c="$1" '/^ *[0-9]+ +[0-9]+ +[0-9.]+/ {value = $c} END {print value}'; }
