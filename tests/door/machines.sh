#!/bin/bash
# Unmodified programs on two machines: machines.sh SOFTHCA PROGRAMS. A machine is a network namespace with a softhca network of
# its own. A veth joins them. The programs speak RoCEv2 through UDP sockets, IPv4 and IPv6, at MTU 1500 and 9000.
. "$(dirname "$0")/lib.sh" "$@"

. "$here/two_machines.sh"

# pair COUNT REGEX OPTIONS SERVER...: a server on one machine, a client on the other with the server's address appended. COUNT
# lines of their output match. OPTIONS are those of softhca run.
pair() {
  local count=$1 expected=$2 options=$3
  shift 3
  test_that "$options $*" says "$count" "$expected" meet "listens 18515" "$a $options -- $*" "$b $options -- $* 10.77.0.1"
}
# The GID table: link-local, then IPv4, then IPv6, each for RoCE v1 and v2.
ipv4="-g 3" ipv6="-g 5"
pings() {
  test_that "rping $1" says 3 'ping data: rdma-ping' \
    meet "cm_listens 7174" "$a --control $control -- $rping -s -a $1 -C 3" "$b -- $rping -c -a $1 -C 3 -v"
}

# A member of a group on the other machine, and a sender on this one: 10 messages, none of them twice on the wire.
multicast() {
  $b -- stdbuf -oL mckey -m 239.77.0.1 -b 10.77.0.2 -C 10 >"$folder/member" 2>&1 & local member=$! status
  eventually holds_or_ended $member "has $folder/member 'joined dgid'"
  $a -- mckey -m 239.77.0.1 -s -b 10.77.0.1 -C 10
  status=$?
  wait $member || status=1
  cat "$folder/member"
  return $status
}

# Without segmentation offload the veth carries packets as a NIC sends them.
limit_segments() { ip link set veth0 gso_max_segs $1 && "${in_b[@]}" ip link set veth0 gso_max_segs $1; }

limit_segments 1
python3 "$here/check_icrc.py" veth0 "$folder/capture" >"$folder/icrc" & capture=$!
eventually test -e "$folder/capture"
for service in rc uc ud srq; do pair 2 "200 iters in" "" ibv_${service}_pingpong $ipv4 -c -n 200; done
pair 2 "200 iters in" "" ibv_rc_pingpong $ipv6 -c -n 200
pair 2 "200 iters in" "" ibv_rc_pingpong $ipv4 -c -e -n 200
for test in ib_write_bw ib_read_bw ib_send_bw; do pair 2 "^ 65536 +200 " "" $test -F -x 3 -n 200; done
pair 2 "^ 8 +200 " "" ib_atomic_bw -F -x 3 -n 200
pair 2 "^ 65536 +800 " "" ib_write_bw -F -x 5 -q 4 -n 200
pair 2 "^ Mtu +: 1024" "" ib_write_bw -F -x 3 -n 200
pings 10.77.0.1
pings fd00:77::1
test_that "mckey to the other machine" says 2 'data transfers complete' multicast
pair 2 "1000 iters in" "--loss 0.01" ibv_rc_pingpong $ipv4 -c -n 1000
pair 2 "^ 65536 +100 " "--loss 0.01" ib_write_bw -F -x 3 -n 100
kill $capture
wait $capture
test_that "each ICRC" prints "some IPv4, some IPv6, 10 to groups, 0 wrong" cat "$folder/icrc"

set_mtu 9000
limit_segments 65535
pair 2 "^ Mtu +: 4096" "" ib_write_bw -F -x 3 -n 1000
pair 2 "200 iters in" "" ibv_rc_pingpong $ipv6 -c -n 200 -m 4096
exit $failed
