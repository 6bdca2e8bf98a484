#!/bin/bash
# The examples of libibverbs and librdmacm, with their content checks where they have them: `make examples`.
# `examples.sh [WORD]`: only the runs that WORD matches.
. "$(dirname "$0")/lib.sh"
two_hosts
run modprobe -a rdma_ucm
only=${1:-.}
export PERFTEST_TIMEOUT=60
bad=() done=0

# one FUNCTION ARGUMENT...: a run. A failure is recorded, and the other runs continue.
one() {
  local line="$*"
  [[ $line =~ $only ]] || return 0
  done=$((done + 1))
  if ("$@") >/tmp/run.log 2>&1; then
    echo "ok $line"
  else
    echo "BAD $line"
    grep -vE '^ *$|^\[ *[0-9.]+\]' /tmp/run.log | tail -n 25
    bad+=("$line")
  fi
}
cm() {  # PROGRAM OPTION...: binds by -b and finds its server by -s
  local program=$1
  shift
  cm_server "$program" -b "$ADDRESS_b" "$@"
  cm_client "$program" -s "$ADDRESS_b" -b "$ADDRESS_a" "$@"
}
# The server does not end by itself.
serves_for_ever() { # SERVER -- CLIENT
  local server=() process status
  while [ "$1" != -- ]; do server+=("$1") && shift; done
  shift
  ip netns exec b "${server[@]}" >/tmp/server.log 2>&1 &
  process=$!
  wait_for 60 "${server[0]} that listens" cm_listens $process
  timeout 60 ip netns exec a "$@" >/tmp/client.log 2>&1
  status=$?
  kill $process
  cat /tmp/client.log /tmp/server.log
  [ $status = 0 ] || fail "exit status $status of: $*"
  ! grep -iE 'mismatch|error|fail' /tmp/client.log || fail "$*"
}
devices() {
  on a ibv_devices | grep "$IB_a" || fail "ibv_devices"
  on a ibv_devinfo -v -d "$IB_a" | grep PORT_ACTIVE || fail "ibv_devinfo"
}
# The events of the port when it goes down and up.
asyncwatch() {
  ip netns exec b ibv_asyncwatch -d "$IB_b" >/tmp/events.log 2>&1 &
  local process=$!
  wait_for 60 "ibv_asyncwatch that waits" says $process /tmp/events.log 'async event FD'
  ip -n b link set "$IF_b" down
  wait_for 60 "event of the port that went" says $process /tmp/events.log -i 'port.*err'
  ip -n b link set "$IF_b" up
  wait_for 60 "event of the port that came" says $process /tmp/events.log -i 'port.*active'
  wait_for 60 "carrier" carrier b
  wait_for 60 "RoCE v2 GID" gid_index b
  cat /tmp/events.log
  kill $process || fail "ibv_asyncwatch has ended by itself"
  wait $process
  return 0
}
multicast() {
  ip netns exec b timeout 60 mckey -m 239.77.0.1 -b "$ADDRESS_b" -C 10 "$@" >/tmp/server.log 2>&1 &
  local process=$! status
  in_group() { gone $process || ip -n b maddr show | grep -qw 239.77.0.1; }
  wait_for 60 "member of the group" in_group
  timeout 60 ip netns exec a mckey -m 239.77.0.1 -s -b "$ADDRESS_a" -C 10 "$@" >/tmp/client.log 2>&1
  status=$?
  wait $process || status="$status and $?"
  cat /tmp/client.log /tmp/server.log
  [ "$status" = 0 ] || fail "mckey: exit status $status"
}
copy() {
  head -c 3000000 /dev/urandom >/tmp/original
  rm -f /tmp/copied
  serves_for_ever rcopy -- rcopy /tmp/original "$ADDRESS_b:/tmp/copied"
  cmp /tmp/original /tmp/copied || fail "rcopy: the copy differs"
}
x_endpoint() { # OPTION...
  cm_server rdma_xserver "$@"
  cm_client rdma_xclient -s "$ADDRESS_b" "$@"
}
endpoint() {
  cm_server rdma_server
  cm_client rdma_client -s "$ADDRESS_b"
}
# udpong first makes an address handle with the port's LID and without a GID (ds_add_qp_dest in librdmacm). No driver of
# libibverbs makes such a handle for a port on Ethernet, so udpong fails in the same way on every such card: here on
# softhca's and on soft-RoCE. It prints the error of its cleanup.
udpong_is_refused() {
  soft_roce
  ip netns exec a timeout 60 udpong -s "$ADDRESS_b" >/tmp/ours.log 2>&1
  ip netns exec a python3 /share/address_handle.py "$IB_a" >>/tmp/ours.log 2>&1
  timeout 60 udpong -s "$RXE_ADDRESS" >/tmp/rxe.log 2>&1
  python3 /share/address_handle.py rxe0 >>/tmp/rxe.log 2>&1
  rdma link delete rxe0
  head /tmp/ours.log /tmp/rxe.log
  local log
  for log in /tmp/ours.log /tmp/rxe.log; do
    grep -qx 'rconnect: No such file or directory' $log || fail "udpong says something else: $log"
    grep -qx 'an address handle without a GID: Invalid argument' $log || fail "of an address handle without a GID: $log"
  done
}
rping_() {
  cm_server rping -s -a "$ADDRESS_b" "$@"
  cm_client rping -c -a "$ADDRESS_b" "$@"
}

. "$(dirname "$0")/examples_list.sh"
one udpong_is_refused
echo "$done runs, ${#bad[@]} of them bad"
[ ${#bad[@]} -eq 0 ] || fail "$(printf '%s\n' "${bad[@]}")"
clean_dmesg
