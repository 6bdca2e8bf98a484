#!/bin/bash
# A guest on the network of `softhca run`: host_programs.sh up | server PROGRAM... | stop | end | client PROGRAM... | clean
. "$(dirname "$0")/lib.sh"
case $1 in
up)
  expect_functions 1
  # The port is up, and RDMA finds it, before the first command: guest/run has seen to it.
  IF_here=$(netdev_of "$(mlx5_functions)") IB_here=$(ibdev_of "$(mlx5_functions)") ADDRESS_here=198.19.1.1
  [ "$HCA_IFS $HCA_DEVICES $HCA_ADDRESSES" = "$IF_here $IB_here $ADDRESS_here" ] || fail "the environment: $HCA_IFS $HCA_DEVICES $HCA_ADDRESSES"
  getent hosts hca1 | grep -q "^$ADDRESS_here " || fail "hca1 is not in /etc/hosts"
  carrier here && gid_index here >/dev/null || fail "the port is not ready"
  run ip addr add fd00:198:19::1:1/64 dev "$IF_here" nodad
  run modprobe -a rdma_ucm
  ;;
server) # Stays when the script ends.
  shift
  "$@" >/tmp/server.log 2>&1 &
  echo $! >/tmp/server.pid
  wait_for 60 "$1 that listens" sh -c "! kill -0 $! || rdma resource show cm_id | grep -q LISTEN"
  ;;
stop) # Of a server whose client did not come to it.
  kill "$(cat /tmp/server.pid)" 2>/dev/null
  wait_for 60 "end of the server" sh -c "! kill -0 $(cat /tmp/server.pid)"
  ;;
end) # Of the server: its output and status are looked at, since who left it is gone.
  wait_for 60 "end of the server" sh -c "! kill -0 $(cat /tmp/server.pid)"
  cat /tmp/server.log
  ! grep -iE 'mismatch|error|fail|return status [^0]' /tmp/server.log || fail "the server's output"
  ;;
client)
  shift
  echo "+ $*"
  timeout 100 "$@" >/tmp/client.log 2>&1
  status=$?
  cat /tmp/client.log
  [ $status = 0 ] || fail "exit status $status"
  ! grep -iE 'mismatch|error|fail|return status [^0]' /tmp/client.log || fail "the client's output"
  ;;
clean) clean_dmesg ;;
esac
