#!/bin/bash
# Unmodified programs of libibverbs and perftest between two processes of `softhca run`: verbs.sh SOFTHCA PROGRAMS. Programs that
# can compare the data do so.
. "$(dirname "$0")/lib.sh" "$@"

# pair COUNT REGEX SERVER...: the client's command is the server's with localhost appended. COUNT lines of their output match.
pair() {
  local count=$1 expected=$2
  shift 2
  test_that "$*" says "$count" "$expected" run -- bash -c 'meet "listens 18515" "$0" "$0 localhost"' "$*"
}
for options in "rc" "rc -e" "uc" "ud" "srq -e" "rc -o"; do
  read -r service option <<<"$options"
  pair 2 "200 iters in" "ibv_${service}_pingpong" -g 3 -c -n 200 $option
done
pair 2 "^success$" ibv_xsrq_pingpong -g 3 -n 200
pair 2 "^ 65536 +200 " ib_send_bw -F -d mlx5_0 -x 3 -c XRC -n 200
# UC does not retransmit: the receiver keeps up, or the sender waits.
pair 2 "^ 65536 +2000 " ib_send_bw -F -d mlx5_0 -x 3 -c UC -n 2000
for test in ib_write_bw ib_read_bw ib_send_bw; do pair 2 "^ 65536 +200 " $test -F -d mlx5_0 -x 3 -n 200; done
pair 2 "^ 8 +200 " ib_atomic_bw -F -d mlx5_0 -x 3 -n 200
pair 2 "^ 65536 +3200 " ib_write_bw -F -d mlx5_0 -x 3 -q 16 -n 200
# IPv6: the link-local address of a process.
pair 2 "200 iters in" ibv_rc_pingpong -g 1 -c -n 200

# docs/first-program.md
cc -Wall -Werror -o "$folder/hello" "$here/../../examples/libibverbs/hello_rdma.c" -libverbs
test_that "the first program" says 1 "^target: written by RDMA" run -- "$folder/hello"
test_that "from one device to another" says 2 "200 iters in" \
  run --devices 2 --address 198.19.7.1,198.19.7.2 -- bash -c 'meet "listens 18515" \
    "ibv_rc_pingpong -d mlx5_1 -g 3 -c -n 200" "ibv_rc_pingpong -d mlx5_0 -g 3 -c -n 200 localhost | tee $folder/client"'
test_that "GIDs of two devices" grep -q 'remote address: .*GID ::ffff:198.19.7.2' "$folder/client"
# Two terminals, with the commands of every tutorial: all runs of a user are on one network.
terminal="${nobody[*]} $softhca run ib_write_bw -n 200"
test_that "two terminals" says 2 "^ 65536 +200 " meet "listens 18515" "$terminal" "$terminal localhost"
# A run without standard streams, as daemons and cron start programs. The program then lacks them as well.
test_that "closed streams" prints "stdin closed
stderr closed" run -- bash -c '
  "$softhca" run -- bash -c "test -e /proc/self/fd/0 || echo stdin closed; test -e /proc/self/fd/2 || echo stderr closed" <&- 2>&-'
# docs/run.md: many programs poll and share the processors, and all make progress.
test_that "a crowd" says 48 "200 iters in" run -- bash -c '
  clients=() ports=$(seq 20001 20024) wrong=0
  for port in $ports; do timeout 90 ibv_rc_pingpong -g 3 -c -n 200 -p $port & clients+=($!); done
  eventually listens $ports
  for port in $ports; do timeout 90 ibv_rc_pingpong -g 3 -c -n 200 -p $port localhost & clients+=($!); done
  for one in "${clients[@]}"; do wait $one || wrong=1; done
  exit $wrong'
exit $failed
