#!/bin/bash
# Step 18: the tools' view of the device: counters by sysfs and "rdma statistic", of the port and of QPs that are bound to
# counters, "rdma resource", page faults of regions, the clock page, the queues in mlx5's debugfs, and congestion: its
# parameters, and the effect of marked packets.
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

# Q counters match the operations, and both interfaces report the same values.
before=$(counter b rx_write_requests)
perftest ib_write_bw -s 4096 -n 100
after=$(counter b rx_write_requests)
[ $((after - before)) -ge 100 ] || fail "rx_write_requests moved by $((after - before))"
expect "rdma statistic" "$(statistic b "$IB_b" rx_write_requests)" "$after"

# Each counter that the driver knows for such a card exists, and is a number.
counters=/sys/class/infiniband/$IB_b/ports/1/hw_counters
for name in rx_write_requests rx_read_requests rx_atomic_requests rx_dct_connect out_of_buffer out_of_sequence \
  duplicate_request rnr_nak_retry_err packet_seq_err implied_nak_seq_err local_ack_timeout_err resp_local_length_error \
  resp_cqe_error resp_cqe_flush_error resp_remote_access_errors req_cqe_error req_cqe_flush_error \
  req_remote_invalid_request req_remote_access_errors rp_cnp_handled rp_cnp_ignored np_cnp_sent np_ecn_marked_roce_packets; do
  counter b $name | grep -qx '[0-9][0-9]*' || fail "hw_counters/$name: $(counter b $name)"
done
for file in $(on b ls "$counters"); do
  counter b "$file" | grep -qx '[0-9][0-9]*' || fail "hw_counters/$file: $(counter b "$file")"
done

# A QP that is bound to a counter counts there. Both ways to bind, because perftest's server is in RTS then.
ip netns exec b ib_write_bw -d "$IB_b" -x "$GID_b" -F -b -D 3600 >/tmp/server.log 2>&1 &
server=$!
wait_for 60 "ib_write_bw server" listens $server 18515
ip netns exec a ib_write_bw -d "$IB_a" -x "$GID_a" -F -b -D 3600 "$ADDRESS_b" >/tmp/client.log 2>&1 &
client=$!
qp_of_b() { on b rdma resource show qp link "$IB_b/1" type RC | sed -n 's/.* lqpn \([0-9]*\) .*state RTS.*/\1/p' | grep .; }
wait_for 60 "QP in RTS" qp_of_b
qpn=$(qp_of_b)
run on b rdma statistic qp bind link "$IB_b/1" lqpn "$qpn"
bound() { on b rdma statistic qp show link "$IB_b/1" lqpn "$qpn" | tr -s ' \n' '\n' | grep -A1 "^$1\$" | tail -n 1; }
have_moved() { [ "$(bound rx_write_requests)" -gt 0 ]; }
wait_for 60 "WRITEs in the counters of QP $qpn" have_moved
run on b rdma statistic qp unbind link "$IB_b/1" cntn "$(bound cntn)" lqpn "$qpn"
# The QP is not disturbed: the WRITEs go on.
before=$(counter b rx_write_requests)
go_on() { [ "$(counter b rx_write_requests)" -gt "$before" ]; }
wait_for 60 "WRITEs after QP $qpn is unbound" go_on
! gone $client && ! gone $server || { cat /tmp/client.log /tmp/server.log; fail "ib_write_bw with counters of its own"; }
kill $client $server
wait $client $server 2>/dev/null

# Page faults of a region with on-demand paging, its invalidated and its prefetched pages.
run on b python3 "$(dirname "$0")/odp_counters.py" "$IB_b" "$GID_b"

# The page of the card's clock (ibv_query_rt_values_ex), whose frequency is the reported one: each value lies between two of
# the system's clock, and so does the frequency.
on b python3 - "$IB_b" <<'END' || fail "the clock page"
import sys
import time
from pyverbs.device import Context

context = Context(name=sys.argv[1])
khz = context.query_device_ex().hca_core_clock


def look():
    before = time.monotonic_ns()
    _, value = context.query_rt_values_ex()
    return before, value, time.monotonic_ns()


earliest, begin, before = look()
while True:
    after, end, latest = look()
    shortest, longest = after - before, latest - earliest
    if shortest > 0 and longest < 1.01 * shortest:
        break
least, most = (1e6 * (end - begin) / time for time in (longest, shortest))
print(f"the clock page: {least:.0f} to {most:.0f} kHz, and hca_core_clock is {khz}")
sys.exit(not least * 0.99 < khz < most * 1.01)
END

ip netns exec b ibv_rc_pingpong -d "$IB_b" -g "$GID_b" -n 100000000 >/tmp/server.log 2>&1 &
server=$!
wait_for 60 "pingpong server" listens $server 18515
ip netns exec a ibv_rc_pingpong -d "$IB_a" -g "$GID_a" -n 100000000 "$ADDRESS_b" >/tmp/client.log 2>&1 &
client=$!
wait_for 60 "QP in RTS" sh -c "ip netns exec b rdma resource show qp link $IB_b/1 type RC | grep -q 'state RTS'"
# The tools list the objects that exist meanwhile, with their owner.
for what in qp cq mr pd ctx; do
  on b rdma resource show $what | grep -q "comm ibv_rc_pingpong" || fail "rdma resource show $what does not tell of ibv_rc_pingpong"
done
# Each file of each queue can be read; the driver queries the device for it.
files=0
for file in $(find "$debug_b"/EQs "$debug_b"/CQs "$debug_b"/QPs -type f); do
  cat "$file" >/dev/null 2>&1 || [ ! -e "$file" ] || fail "cannot read $file"
  files=$((files + 1))
done
[ $files -ge 20 ] || fail "only $files files of queues in debugfs"
grep -qx RTS "$debug_b"/QPs/*/state 2>/dev/null || fail "no QP in RTS in debugfs"
kill $client $server
wait $client $server 2>/dev/null

# Congestion: written parameters are read back, and invalid values are refused.
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
