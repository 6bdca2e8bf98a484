#!/bin/bash
# Step 18: what the tools show: counters by sysfs and "rdma statistic", "rdma resource", the queues in mlx5's
# debugfs, and congestion: its parameters, and what marked packets bring about.
. "$(dirname "$0")/lib.sh"
two_hosts
mountpoint -q /sys/kernel/debug || run mount -t debugfs none /sys/kernel/debug
set -- $(mlx5_functions)
debug_a=/sys/kernel/debug/mlx5/$1
debug_b=/sys/kernel/debug/mlx5/$2

expect() { # TEXT ACTUAL EXPECTED
  [ "$2" = "$3" ] || fail "$1: $2 instead of $3"
}
statistic() { on "$1" rdma statistic show link "$2/1" | tr -s ' \n' '\n' | grep -A1 "^$3\$" | tail -n 1; }

# Q counters count what happened, and both ways of asking say the same.
before=$(counter b rx_write_requests)
perftest ib_write_bw -s 4096 -n 100
after=$(counter b rx_write_requests)
[ $((after - before)) -ge 100 ] || fail "rx_write_requests moved by $((after - before))"
expect "rdma statistic" "$(statistic b "$IB_b" rx_write_requests)" "$after"

ip netns exec b ibv_rc_pingpong -d "$IB_b" -g "$GID_b" -n 1000000 >/tmp/server.log 2>&1 &
server=$!
wait_for 60 "pingpong server" listens $server 18515
ip netns exec a timeout 120 ibv_rc_pingpong -d "$IB_a" -g "$GID_a" -n 1000000 "$ADDRESS_b" >/tmp/client.log 2>&1 &
client=$!
wait_for 30 "QP in RTS" sh -c "ip netns exec b rdma resource show qp link $IB_b/1 type RC | grep -q 'state RTS'"
# What exists meanwhile is told, with its owner.
for what in qp cq mr pd ctx; do
  on b rdma resource show $what | grep -q "comm ibv_rc_pingpong" || fail "rdma resource show $what does not tell of ibv_rc_pingpong"
done
# Each file of each queue can be read: the driver asks the device for it.
files=0
for file in $(find "$debug_b"/EQs "$debug_b"/CQs "$debug_b"/QPs -type f); do
  cat "$file" >/dev/null 2>&1 || [ ! -e "$file" ] || fail "cannot read $file"
  files=$((files + 1))
done
[ $files -ge 20 ] || fail "only $files files of queues in debugfs"
grep -qx RTS "$debug_b"/QPs/*/state 2>/dev/null || fail "no QP in RTS in debugfs"
kill $client $server
wait $client $server 2>/dev/null

# Congestion: what is set is what is read, and what makes no sense is refused.
for file in "$debug_b"/cc_params/*; do
  cat "$file" >/dev/null || fail "cannot read $file"
done
expect "np_cnp_dscp" "$(cat "$debug_b/cc_params/np_cnp_dscp")" 48
echo 10 >"$debug_b/cc_params/np_cnp_dscp" || fail "cannot set np_cnp_dscp"
expect "np_cnp_dscp" "$(cat "$debug_b/cc_params/np_cnp_dscp")" 10
echo 48 >"$debug_b/cc_params/np_cnp_dscp"
marked=$(counter b np_ecn_marked_roce_packets) handled=$(counter a rp_cnp_handled)
perftest ib_write_bw -s 65536 -n 20 --tclass=3
[ "$(counter b np_ecn_marked_roce_packets)" -gt "$marked" ] || fail "marked packets are not counted"
[ "$(counter b np_cnp_sent)" -gt 0 ] || fail "no CNP was sent"
[ "$(counter a rp_cnp_handled)" -gt "$handled" ] || fail "no CNP was heeded"
clean_dmesg
