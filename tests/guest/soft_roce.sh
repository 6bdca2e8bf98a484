#!/bin/bash
# Interoperation with another implementation: soft-RoCE (rdma_rxe) on the netdev of a ConnectX whose own RoCE is off, and
# softhca's RoCE in the other guest. Each is server and client. With --guests 2, a device each; the guests synchronize by
# files in /share. `soft_roce.sh loss`: only tests that tolerate a wire that loses packets.
. "$(dirname "$0")/lib.sh"
kind=${1:-all}
one_host
ADDRESS_here=192.168.11.$GUEST ADDRESS_peer=192.168.11.$((3 - GUEST)) IF_here=$IF IB_here=$IB
function=$(mlx5_functions)
tell() { # WORD [TEXT]
  echo "${2:-}" >"/share/saying.$GUEST"
  mv "/share/saying.$GUEST" "/share/said.$1"
}
hear() { wait_for 300 "word of the other guest: $1" test -e "/share/said.$1"; }

# roce VALUE: sets the card's own RoCE by the devlink parameter, which takes effect with a reload.
roce() {
  run devlink dev param set "pci/$function" name enable_roce value "$1" cmode driverinit
  run devlink dev reload "pci/$function"
  wait_for 60 "netdev after the reload" sh -c "ls /sys/bus/pci/devices/$function/net/*"
  udev-settle 120
  IF_here=$(netdev_of "$function") IB_here=$(ibdev_of "$function")
  ip addr replace "$ADDRESS_here/24" dev "$IF_here"
  run ip link set "$IF_here" mtu 4500 up
  wait_for 60 "carrier" carrier here
}
# meet: waits for the GID of this host, and for a peer that answers.
meet() {
  wait_for 60 "RoCE v2 GID" gid_index here
  GID=$(gid_index here)
  wait_for 60 "the peer" ping -q -c 1 -W 1 "$ADDRESS_peer"
}

# lost_here: this side's counters of lost packets, for the report of a failure.
lost_here() {
  ethtool -S "$IF_here" | grep -E 'out_of_buffer|discard|drop|error|_err' | grep -v ': 0$'
  grep -H . "/sys/class/infiniband/$IB_here"/ports/1/hw_counters/* | sed 's/.*hw_counters.//' | grep -v ':0$'
}

# lost_last_word PROGRAM: a pingpong leaves when it has the other's last message and the acknowledgement of its own. If its
# acknowledgement of the other's last message is lost, no process is left to repeat it, and the other's last send fails, on
# any card. The run is good all the same if the end that has left has ended well: all messages of both have arrived.
# The programs of perftest synchronize by TCP before they leave.
lost_last_word() {
  [ "$kind" = loss ] && [ "$1" = ibv_rc_pingpong ] &&
    grep -q 'transport retry counter exceeded (12) for wr_id 2' /tmp/out.log
}

# between SERVER PORT FLAG PROGRAM OPTION...: guest SERVER is the server, the other one the client. FLAG: the GID's option.
count=0
between() {
  local server=$1 port=$2 process status ended
  local line=("$4" -d "$IB_here" "$3" "$GID" "${@:5}")
  count=$((count + 1))
  if [ "$GUEST" = "$server" ]; then
    timeout 240 "${line[@]}" >/tmp/out.log 2>&1 &
    process=$!
    wait_for 60 "$4 server" listens "$process" "$port"
    tell $count.up
    wait $process
    status=$?
  else
    hear $count.up
    timeout 200 "${line[@]}" "$ADDRESS_peer" >/tmp/out.log 2>&1
    status=$?
    echo "$status guest $server serves: ${*:4}"
  fi
  ended=well
  if [ $status -ne 0 ] && lost_last_word "$4"; then
    echo "the other side left before its last acknowledgement came"
    ended=alone status=0
  fi
  [ $status -eq 0 ] || { cat /tmp/out.log >&2; lost_here >&2; fail "${*:4} with server $server: exit status $status"; }
  grep ' messages, all right$' /tmp/out.log
  tell $count.$GUEST $ended
  hear $count.$((3 - GUEST))
  [ $ended = well ] || [ "$(cat "/share/said.$count.$((3 - GUEST))")" = well ] || fail "neither side has ended well: ${*:4}"
}
# Long timeouts and few messages in flight: a soft-RoCE under emulation is slow, and its netdev drops frames that come too
# fast.
perf() { between "$1" 18515 -x "${@:2}" -u 18 -F; }
pong() { between "$1" 18515 -g "${@:2}"; }
unreliable() { between "$1" 18516 -g /share/unreliable.py "${@:2}"; }

run ip link set "$IF" mtu 4500
if [ "$GUEST" = 1 ]; then
  roce false
  run modprobe rdma_rxe
  run rdma link add rxe0 type rxe netdev "$IF_here"
  IB_here=rxe0
fi
meet
tell "$GUEST.ready"
hear "$((3 - GUEST)).ready"

# -o: as many concurrent READs as softhca's device serves. rxe serves 128, and perftest takes the peer's number to be that
# of its own card.
for server in 1 2; do
  pong $server ibv_rc_pingpong -c -n 100
  perf $server ib_send_bw -t 8 -s 20000 -n 100
  perf $server ib_write_bw -t 8 -s 20000 -n 100
  perf $server ib_read_bw -t 8 -o 16 -s 20000 -n 100
  perf $server ib_atomic_bw -t 8 -o 16 -A FETCH_AND_ADD -n 50
  perf $server ib_atomic_bw -t 8 -o 16 -A CMP_AND_SWAP -n 50
  for mtu in 256 512 1024 2048 4096; do
    perf $server ib_write_bw -t 8 -m $mtu -s 10000 -n 30
    perf $server ib_read_bw -t 8 -o 16 -m $mtu -s 10000 -n 30
    pong $server ibv_rc_pingpong -m $mtu -c -s 10000 -n 20
  done
  for mtu in 256 512 1024 2048 4096; do
    unreliable $server -c UC -m $mtu -s 5000
    unreliable $server -c UD -s $mtu
  done
  # A lost frame is not retransmitted, and programs that wait for it never end.
  perf $server ib_write_bw -t 8 -c UC -s 20000 -n 100
  [ "$kind" = loss ] && continue
  pong $server ibv_uc_pingpong -c -n 100
  perf $server ib_send_bw -t 8 -c UC -s 20000 -n 50
  pong $server ibv_ud_pingpong -c -n 100
  perf $server ib_send_bw -t 8 -c UD -s 2000 -n 50
done
clean_dmesg

# Turns the card's own RoCE on again.
if [ "$GUEST" = 1 ]; then
  run rdma link delete rxe0
  roce true
fi
meet
tell "$GUEST.back"
hear "$((3 - GUEST)).back"
pong 1 ibv_rc_pingpong -c -n 50
