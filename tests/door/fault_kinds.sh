#!/bin/bash
# Each kind of network fault, as programs of the distribution see it: fault_kinds.sh SOFTHCA PROGRAMS
#
# Counters of the program's port and the counts of the rules show that a fault has happened. Latencies have only a least value
# here, which the rule gives.
. "$(dirname "$0")/lib.sh" "$@"

# with RULE... -- LINE: runs the line of bash in a run with these rules. It prints the rules with their counts at the end.
with() {
  local rules=()
  until [ "$1" = -- ]; do
    rules+=(--fault "$1")
    shift
  done
  run --control "$folder/kinds" "${rules[@]}" -- bash -c "$2"'
    status=$?
    "$softhca" fault "$folder/kinds" list
    exit $status'
}
# sends OPTION... -- RULE...: ib_send_bw between two processes. Prints the counters of the port, and the rules.
sends() {
  local options=()
  until [ "$1" = -- ]; do
    options+=("$1")
    shift
  done
  local program="ib_send_bw -d mlx5_0 -x 3 -F -n 500 ${options[*]}"
  with "${@:2}" -- "meet 'listens 18515' '$program' '$program localhost' &&
    cd /sys/class/infiniband/mlx5_0/ports/1/hw_counters && grep -H . *"
}
# pings RULE...: ib_send_lat.
pings() {
  local program="ib_send_lat -d mlx5_0 -x 3 -F -s 64 -n 30"
  with "$@" -- "meet 'listens 18515' '$program' '$program localhost'"
}
# compares RULE...: ibv_rc_pingpong, which compares each byte.
compares() {
  local program="ibv_rc_pingpong -g 3 -c -s 4096 -n 50"
  with "$@" -- "meet 'listens 18515' '$program' '$program localhost'"
}
# shows REGEX... -- COMMAND...: the command succeeds, and a line of its output matches each.
shows() {
  local expected=() out status regex
  until [ "$1" = -- ]; do
    expected+=("$1")
    shift
  done
  out=$("${@:2}" 2>&1)
  status=$?
  for regex in "${expected[@]}"; do
    grep -qE -- "$regex" <<<"$out" || status="no line of '$regex', $status"
  done
  [ "$status" = 0 ] && return
  echo "status $status: $out"
  return 1
}
# column_is COLUMN CONDITION COMMAND...: the command succeeds, and in perftest's rows the column meets the condition of awk.
column_is() {
  local column=$1 condition=$2 out
  out=$("${@:3}" 2>&1) &&
    awk -v column="$column" '$1 ~ /^[0-9]+$/ && NF > 4 {x = $column; ++rows; if (!('"$condition"')) bad = 1}
      END {exit bad || rows < 2}' <<<"$out" && return
  echo "$out"
  return 1
}

some='[1-9][0-9]*'
send=port=*,opcode=send

test_that "lose: a NAK and a retry" shows "^packet_seq_err:$some" "^out_of_sequence:$some" "fired 1$" -- \
  sends -s 4096 -- $send,nth=100,do=lose
test_that "duplicate: the responder counts it" shows "^duplicate_request:$some" "fired $some$" -- \
  sends -s 4096 -- $send,every=50,do=duplicate
test_that "reorder: a NAK and a retry" shows "^packet_seq_err:$some" "^out_of_sequence:$some" "fired 1$" -- \
  sends -s 4096 -- $send,nth=100,do=reorder,distance=2
test_that "delay with jitter: latency" column_is 3 'x >= 2000' pings $send,do=delay,time=2ms,jitter=3ms
test_that "delay beyond the ACK timeout: a retry" shows "^local_ack_timeout_err:$some" "fired 1$" -- \
  sends -s 4096 -- $send,nth=500,do=delay,time=1s
for part in header payload icrc; do
  test_that "corrupt $part: the packet is dropped and sent again" shows "^packet_seq_err:$some" "fired 1$" -- \
    sends -s 4096 -- $send,nth=100,do=corrupt,part=$part
done
test_that "corrupt payload: no program has it" shows "50 iters in" "fired $some$" -- \
  compares $send,every=20,do=corrupt,part=payload
test_that "mark-ecn: a CNP" shows "^np_ecn_marked_roce_packets:$some" "^np_cnp_sent:$some" "^rp_cnp_handled:$some" -- \
  sends -s 4096 --tclass=2 -- $send,every=50,do=mark-ecn
test_that "mark-ecn: packets that do not allow it stay as they are" shows "^np_ecn_marked_roce_packets:0" "fired 0$" -- \
  sends -s 4096 -- $send,do=mark-ecn
test_that "mark-ecn by the length of a queue" shows "^np_ecn_marked_roce_packets:$some" "do=mark-ecn,queue=8K: .*fired $some$" -- \
  sends -s 4096 --tclass=2 -- port=*,do=limit,rate=400mbit $send,do=mark-ecn,queue=8K
# 100 Mbit/s are 11.92 MiB/s.
test_that "limit: bandwidth" column_is 4 'x > 0 && x <= 11.93' sends -s 4096 -t 16 -- port=*,do=limit,rate=100mbit
# 16 messages are 64 KiB. If the last ones are lost, only the ACK timeout ends the wait, so there are few of them.
test_that "limit with a queue: loss and retries" shows "^(packet_seq_err|local_ack_timeout_err):$some" "lost $some$" -- \
  sends -s 4096 -t 16 -n 100 -- port=*,do=limit,rate=400mbit,queue=48K
# perftest prints half of a round trip, and leaves out the two longest.
test_that "pause: latency" column_is 4 'x >= 25000' pings $send,every=5,do=pause,time=50ms
test_that "pause: no loss" shows "^ 64 +30 " "fired $some$" -- pings $send,every=5,do=pause,time=50ms
test_that "link-down for a short time: retries" shows "^(packet_seq_err|local_ack_timeout_err):$some" "fired 1" -- \
  sends -s 4096 -- $send,nth=100,do=link-down,time=30ms
test_that "link-down that stays: status 12" says 1 "transport retry counter exceeded" \
  run --fault $send,nth=20,do=link-down -- bash -c '
  ibv_rc_pingpong -g 3 -n 50 >/dev/null 2>&1 & server=$!
  eventually holds_or_ended $server "listens 18515"
  timeout 60 ibv_rc_pingpong -g 3 -n 50 localhost && echo "it has succeeded" || kill $server'
exit $failed
