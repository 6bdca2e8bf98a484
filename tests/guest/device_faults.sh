#!/bin/bash
# device_faults.sh STEP: what the stock driver and programs of the distribution make of a fault of a ConnectX. device_faults_test
# has added the rule.
. "$(dirname "$0")/lib.sh"

# only_says REGEX...: each error and warning of the drivers in the kernel's log, since the last step, matches one of these, and
# each of these has a line. Nothing else went wrong in the kernel.
only_says() {
  local log regex rest
  log=$(kernel_log)
  for regex; do
    grep -qE -- "$regex" <<<"$log" || fail "no line of '$regex' in the kernel log: $log"
  done
  may_say "$@"
}
# may_say REGEX...: the same, and a line of each may be absent.
may_say() {
  local rest
  rest=$(kernel_log | grep -vE -- "$(IFS='|'; echo "$*")" | awk '
    /WARNING:|BUG:|Oops|Call Trace|hung task/ {print; next}
    /workqueue: .* hogged CPU/ || /Write combining is not supported/ {next}
    /^[a-z]+ *:(emerg|alert|crit|err|warn) *:/ && tolower($0) ~ /mlx5|infiniband|ib_core|rdma|pci/ {print}')
  [ -z "$rest" ] || fail "the kernel log also holds: $rest"
}
# fails TEXT COMMAND...: the program fails, and says TEXT.
fails() {
  local text=$1 out
  shift
  echo "+ $*"
  out=$("$@" 2>&1) && fail "it has succeeded: $*"
  grep -qF -- "$text" <<<"$out" || fail "it does not say '$text': $out"
}
# pingpong_fails TEXT: the client of a pingpong fails, and says TEXT.
pingpong_fails() {
  ip netns exec b ibv_rc_pingpong -d "$IB_b" -g "$GID_b" >/tmp/server.log 2>&1 &
  local server=$!
  wait_for 60 "a pingpong server" listens "$server" 18515
  fails "$1" on a ibv_rc_pingpong -d "$IB_a" -g "$GID_a" "$ADDRESS_b"
  kill "$server" 2>/dev/null
  wait "$server"
}
# health FUNCTION NAME: a value of the driver's reporter of fatal errors.
health() {
  devlink -j health show "pci/$1" reporter fw_fatal | /usr/bin/python3 -c 'import json, sys
print(next(iter(json.load(sys.stdin)["health"].values()))[0][sys.argv[1]])' "$2"
}
recovered() { [ "$(health "$1" recover)" -ge 1 ] && [ "$(health "$1" state)" = healthy ]; }
second() { mlx5_functions | sed -n 2p; }

case $1 in
  hosts)
    two_hosts
    pingpong ibv_rc_pingpong
    clean_dmesg
    ;;
  command_fails)
    two_hosts
    fails "Couldn't create QP" on a ibv_rc_pingpong -d "$IB_a" -g "$GID_a"
    only_says 'infiniband \w+: create_qp:[0-9]+:\(pid [0-9]+\): Create QP type 2 failed'
    pingpong ibv_rc_pingpong
    ;;
  request_fails)
    two_hosts
    pingpong_fails "Failed status remote access error (10)"
    clean_dmesg
    ;;
  retries_exceeded)
    two_hosts
    pingpong_fails "Failed status transport retry counter exceeded (12)"
    clean_dmesg
    ;;
  quiet)
    # Without the netdev, the next interrupt is that of a command.
    two_hosts
    run ip -n a link set "$IF_a" down
    clean_dmesg
    ;;
  interrupt_is_lost)
    # The first command, QUERY_Q_COUNTER, waits until the driver polls its EQ after a timeout.
    IB_a=$(ibdev_of "$(mlx5_functions | sed -n 1p)" a)
    counter a out_of_buffer || fail "the counter cannot be read"
    only_says 'Recovered [0-9]+ EQEs on cmd_eq' 'recovered after timeout'
    ;;
  command_hangs)
    two_hosts
    fails "Couldn't allocate PD" on a ibv_rc_pingpong -d "$IB_a" -g "$GID_a"
    only_says 'ALLOC_PD\(0x800\) timeout. Will cause a leak of a command resource'
    ;;
  late_command)
    two_hosts
    pingpong ibv_rc_pingpong
    may_say 'Command completion arrived after timeout'
    ;;
  internal_error)
    wait_for 300 "recovery" recovered "$(second)"
    expect_functions 2
    kernel_log >&2
    ;;
  removed)
    second >/tmp/removed
    kernel_log >&2
    run sh -c "echo 1 >/sys/bus/pci/devices/$(second)/remove"
    kernel_log >&2
    ;;
  is_back)
    run sh -c 'echo 1 >/sys/bus/pci/rescan'
    expect_functions 2
    two_hosts
    pingpong ibv_rc_pingpong
    ;;
  *) fail "there is no step '$1'" ;;
esac
