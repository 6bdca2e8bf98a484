#!/bin/bash
# Unmodified programs that use librdmacm, and test programs: cm.sh SOFTHCA PROGRAMS
. "$(dirname "$0")/lib.sh" "$@"

rping=$(realpath "$(dirname "$0")/rping")
export rping
# control [OPTION...] -- COMMAND...: a run that cm_listens can inspect.
control() { run --control "$control" "$@"; }

test_that rping says 3 'ping data: rdma-ping' \
  control -- bash -c 'meet "cm_listens 7174" "$rping -s -C 3" "$rping -c -a 127.0.0.1 -C 3 -v"'
# rping finds the device that has the address.
test_that "rping to the second device" says 3 'ping data: rdma-ping' \
  control --devices 2 --address 198.19.7.1,198.19.7.2 -- bash -c \
  'meet "cm_listens 7174" "$rping -s -a 198.19.7.2 -C 3" "$rping -c -a 198.19.7.2 -C 3 -v"'
# A MAC and a link-local address follow from a program's number on the hub. The server, the first program of the network, has the
# first number of the hub's block. A later program's address shows the block.
test_that "rping by IPv6" says 3 'ping data: rdma-ping' control --private -- bash -c '
  meet "cm_listens 7174" "$rping -s -a :: -C 3" \
    "$rping -c -a \$(sed s/..\$/01/ /sys/class/infiniband/mlx5_0/ports/1/gids/0)%lo -C 3 -v"'
test_that "an address of another network" says 1 'no process of this private network has the address 198\.18\.255\.253: nothing' \
  run --private -- bash -c '$rping -c -C 1 -a 198.18.255.253; true'
test_that mckey says 2 'data transfers complete' run -- bash -c '
  meet "has $folder/member \"joined dgid\"" "stdbuf -oL mckey -m 239.1.2.3 >$folder/member" "mckey -m 239.1.2.3 -s"
  status=$?; cat $folder/member; exit $status'
# perftest closes its listener of RDMA_PS_TCP and opens one of RDMA_PS_UDP while the client already connects.
test_that "perftest's -R over UD" says 2 "^ 1024 +200 " control -- bash -c '
  meet "cm_listens 18515" "ib_send_bw -F -R -c UD -s 1024 -n 200" "ib_send_bw -F -R -c UD -s 1024 -n 200 127.0.0.1"'
test_that "perftest's -R with its second request behind the second listener" says 2 "^ 65536 +200 " control -- bash -c '
  meet_twice 18515 "ib_write_bw -F -R -n 200" "ib_write_bw -F -R -n 200 127.0.0.1"'
# A server with 64 threads, and as many clients, each a process with a device of its own.
test_that "64 clients" says 1 '^served 64$' run -- bash -c '
  "$programs/many_clients" server 64 >$folder/many & server=$!
  eventually holds_or_ended $server "has $folder/many listening"
  clients=() failed=0
  for i in {1..64}; do "$programs/many_clients" client & clients+=($!); done
  for one in "${clients[@]}" $server; do wait $one || failed=1; done
  cat $folder/many; exit $failed'
# A listener with a backlog of one request, and twenty clients.
test_that "a small backlog" prints "20 established" run -- "$programs/cm_backlog"
# With many signals. As root, since the program drops its privileges.
nobody=() XDG_RUNTIME_DIR=""
test_that "librdmacm's calls" prints "restarted
interrupted
unprivileged" run --private -- "$programs/cm_calls"
exit $failed
