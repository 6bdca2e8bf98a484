# Machines that are network namespaces on a bridge: sourced after lib.sh. Each has addresses of its own (IPv4, IPv6), a
# directory of its own for sockets, so a network of softhca of its own, and shared memory of its own.
#
# `wire` is how the networks of softhca reach each other: `sockets` (--address if:veth0) or `trunk` (--join). `rules` are
# options of softhca run that make the device's link fail.
wire=$1 rules=() here=$(realpath "$here")
ulimit -l "$(ulimit -H -l)"
machines=4 holders=()

# make_machines MTU
make_machines() {
  local n
  ip link add name bridge0 mtu "$1" type bridge mcast_snooping 0
  ip link set bridge0 up
  for ((n = 1; n <= machines; n++)); do
    "${nobody[@]}" mkdir -m 700 "$folder/$n"
    unshare --net --mount sh -c 'mount -t tmpfs -o mode=1777 none /dev/shm && exec tail -f /dev/null' & holders[n]=$!
    eventually has_network "${holders[n]}"
    ip link add "port$n" mtu "$1" type veth peer name veth0 mtu "$1" netns "${holders[n]}"
    ip link set "port$n" master bridge0 up
    in_network $n ip addr add "10.77.0.$n/24" dev veth0
    in_network $n ip addr add "fd00:77::$n/64" dev veth0 nodad
    in_network $n ip link set lo up
    in_network $n ip link set veth0 up
  done
  kept=$(processes_of_machines)
  trap 'kill "${holders[@]}" ${keepers[*]:-}; rm -rf "$folder"' EXIT
}
has_network() { [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }
# With exec=exec, the command replaces the shell, so that a signal reaches it.
in_network() { ${exec:-} nsenter --target "${holders[$1]}" --net --mount "${@:2}"; }
# as_user MACHINE COMMAND...: a program of the machine's user.
as_user() { in_network "$1" "${nobody[@]}" env XDG_RUNTIME_DIR="$folder/$1" TMPDIR="$folder/$1" timeout "${patience:-300}" "${@:2}"; }
# on MACHINE COMMAND...: the program has an RDMA device. `softhca inspect $(control_of MACHINE)` shows it.
on() {
  local machine=$1 where=(--address if:veth0)
  shift
  [ $wire = sockets ] || where=(--fabric job --address "$(rdma_address "$machine")")
  rm -f "$(control_of "$machine")"
  as_user "$machine" "$softhca" run "${where[@]}" "${rules[@]}" --control "$(control_of "$machine")" -- "$@"
}
control_of() { echo "$folder/$1/control"; }
tcp_address() { echo "10.77.0.$1"; }
rdma_address() { [ $wire = sockets ] && tcp_address "$1" || echo "198.19.7.$1"; }

# join_machines: their networks are one, as long as a run of each machine keeps its own.
join_machines() {
  local n m joins=()
  export SOFTHCA_FABRIC_KEY="a key that all machines share"
  for ((m = 1; m <= machines; m++)); do joins+=(--join "$(tcp_address $m)"); done
  for ((n = 1; n <= machines; n++)); do
    exec=exec patience=10000 as_user $n "$softhca" run --fabric job --listen 24791 "${joins[@]}" --control "$folder/$n/keeper" -- tail -f /dev/null &
    keepers+=($!)
  done
  for ((n = 1; n <= machines; n++)); do eventually is_joined $n || exit; done
  kept=$(processes_of_machines)
}
is_joined() {
  [ "$("$softhca" inspect "$folder/$1/keeper" 2>/dev/null | awk '/^ *hub / { hub = $2 } /state: joined/ { print hub }' |
    sort -u | wc -l)" -ge $((machines - 1)) ]
}

# lossy: 1 % of the frames of each link are lost, and all are late, by netem if the kernel has it.
lossy() {
  local n
  if tc qdisc add dev port1 root netem loss 1% delay 200us 2>/dev/null; then
    echo "loss of 1 % and delay of 200 us by netem"
    for ((n = 2; n <= machines; n++)); do tc qdisc add dev "port$n" root netem loss 1% delay 200us; done
  else
    echo "loss of 1 % and delay of 200 us by --fault: this kernel has no netem"
    rules=(--fault 'port=*,probability=0.01,do=lose' --fault 'port=*,do=delay,time=200us')
  fi
}

# listens_on MACHINE PORT: a TCP socket of the machine listens there.
listens_on() { grep -qi ":$(printf %04x "$2") [0-9A-F]*:0000 0A" "/proc/${holders[$1]}/net/tcp" "/proc/${holders[$1]}/net/tcp6"; }
# cm_listens_on MACHINE: a program of the machine listens by rdma_cm.
cm_listens_on() { "$softhca" inspect "$(control_of "$1")" rdma_cm 2>/dev/null | grep -q 'state: listening'; }

# exchanges MACHINE COUNT: the device of its program has sent and received so many packets.
exchanges() {
  "$softhca" inspect "$(control_of "$1")" mlx5_0 2>/dev/null |
    awk -v want="$2" '/rdma_(received|sent):/ { getline; count += $2 } END { exit count < want }'
}

# serve READY PROGRAM...: starts the server on machine $b, and waits until READY succeeds.
serve() {
  local ready=$1
  shift
  exec=exec on "$b" "$@" >"$folder/server" 2>&1 &
  server=$!
  eventually holds_or_ended $server "$ready"
}
# stop: ends the server, which does not do so by itself.
stop() {
  kill $server
  wait $server
  return 0
}
processes_of_machines() {
  local process machine
  for process in /proc/[0-9]*; do
    for machine in "${holders[@]}"; do
      [ "$(readlink "$process/ns/net")" != "$(readlink "/proc/$machine/ns/net")" ] || echo "${process#/proc/}"
    done
  done 2>/dev/null
}
# clear_machines: kills what a failed run has left.
clear_machines() {
  local process
  for process in $(processes_of_machines); do
    [[ " ${kept//$'\n'/ } " == *" $process "* ]] || kill -9 "$process" 2>/dev/null
  done
}
# call PROGRAM...: its client on machine $a. Prints the output of both, and fails if one of them fails, or softhca warns.
call() {
  local status
  on "$a" "$@" >"$folder/client" 2>&1
  status=$?
  [ $status = 0 ] || kill $server 2>/dev/null
  wait $server || status="$status, of the server $?"
  cat "$folder"/{client,server}
  ! grep -h '^softhca: \(warning\|error\)' "$folder"/{client,server} | grep -qv 'may be locked (ulimit -l)' || status="$status, and warnings of softhca"
  [ "$status" = 0 ] || { echo "status $status"; return 1; }
}
