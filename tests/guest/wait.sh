# How scripts wait, in guests and outside: for a condition, never for a time. Who sources this has fail().

# wait_for SECONDS TEXT COMMAND...: until the command succeeds. A busy machine makes guests many times slower, and
# patience costs nothing where all is well: a minute at least.
wait_for() {
  local limit=$1 text=$2
  shift 2
  local end=$((SECONDS + limit + 1))
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || fail "no $text after $limit s"
    sleep 0.1
  done
}

# gone PROCESS: it has ended; its status tells whether that is as it should be.
gone() { ! kill -0 "$1" 2>/dev/null; }

# listens PROCESS PORT: a TCP socket of the process's network listens there, or the process has ended.
listens() {
  gone "$1" || grep -qi "^ *[0-9]*: [0-9A-F]*:$(printf '%04x' "$2") [0-9A-F:]* 0A " "/proc/$1/net/tcp" "/proc/$1/net/tcp6"
}

# is_connected PROCESS PORT: a TCP socket of that port is connected in the process's network, or the process has ended.
is_connected() {
  gone "$1" || grep -qi "^ *[0-9]*: [0-9A-F]*:$(printf '%04x' "$2") [0-9A-F:]* 01 " "/proc/$1/net/tcp" "/proc/$1/net/tcp6"
}

# cm_listens PROCESS: a program that listens by the RDMA connection manager of Linux does so, or has ended.
cm_listens() {
  gone "$1" || nsenter -t "$1" -n rdma resource show cm_id | grep "state LISTEN" | grep -qw "pid $1"
}

# says PROCESS FILE [-i] TEXT: what the process has printed holds TEXT, or it has ended.
says() { gone "$1" || grep -q "${@:3}" "$2"; }
