# Waits for a condition, never for a time, in guests and on the host. The sourcing script must define fail(). Neither a look at
# sockets nor a pause starts a process: in an emulated guest that takes time from the program that the script waits for.

exec {silence}<> <(:) # a pipe to which nothing is written
sleep() { read -rt "$1" -u "$silence" || [ $? -gt 128 ]; }

# wait_for SECONDS TEXT COMMAND...: waits until the command succeeds. A busy machine makes guests many times slower, and a
# long limit costs nothing if all is well: use a minute at least.
wait_for() {
  local limit=$1 text=$2
  shift 2
  local end=$((SECONDS + limit + 1))
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || fail "no $text after $limit s"
    sleep 0.1
  done
}

# gone PROCESS: the process has ended; its status shows whether it ended well.
gone() { ! kill -0 "$1" 2>/dev/null; }

# has_socket PROCESS PORT STATE: a TCP socket of the process's network has that local port and state, as in /proc/net/tcp.
has_socket() {
  local file rows row pattern
  printf -v pattern '*: +([0-9A-F]):%04X +([0-9A-F:]) %s *' "$2" "$3"
  for file in tcp tcp6; do
    mapfile -t rows <"/proc/$1/net/$file"
    for row in "${rows[@]}"; do
      # shellcheck disable=SC2053
      [[ $row == $pattern ]] && return
    done
  done
  return 1
}

# listens PROCESS PORT: a TCP socket of the process's network listens there, or the process has ended.
listens() { gone "$1" || has_socket "$1" "$2" 0A; }

# is_connected PROCESS PORT: a TCP socket of that port is connected in the process's network, or the process has ended.
is_connected() { gone "$1" || has_socket "$1" "$2" 01; }

# cm_listens PROCESS: a program that listens by the RDMA connection manager of Linux does so, or has ended.
cm_listens() {
  gone "$1" || nsenter -t "$1" -n rdma resource show cm_id | grep "state LISTEN" | grep -qw "pid $1"
}

# says PROCESS FILE [-i] TEXT: the output of the process in FILE contains TEXT, or the process has ended.
says() { gone "$1" || grep -q "${@:3}" "$2"; }
