#!/bin/bash
# A guest on the network of `softhca run`: host_programs.sh up | server PROGRAM... | end | client PROGRAM... | clean
. "$(dirname "$0")/lib.sh"
FUNCTIONS=1 # the guest may have others, on other networks
wrong='mismatch|error|fail|return status [^0]'
case $1 in
up)
  expect_functions 1
  # guest/run waits until the port is up and RDMA finds it, before the first command.
  IF_here=$(netdev_of "$(mlx5_functions)") IB_here=$(ibdev_of "$(mlx5_functions)") ADDRESS_here=198.19.1.1
  [ "${HCA_IFS%% *} ${HCA_DEVICES%% *} ${HCA_ADDRESSES%% *}" = "$IF_here $IB_here $ADDRESS_here" ] || fail "the environment: $HCA_IFS $HCA_DEVICES $HCA_ADDRESSES"
  getent hosts hca1 | grep -q "^$ADDRESS_here " || fail "hca1 is not in /etc/hosts"
  wait_for 60 "carrier" carrier here
  wait_for 60 "RoCE v2 GID" gid_index here
  run ip addr add fd00:198:19::1:1/64 dev "$IF_here" nodad
  run modprobe -a rdma_ucm
  ;;
server)  # Continues after the script; its exit status goes to a file.
  shift
  rm -f /tmp/server.{pid,status}
  { "$@" & echo $! >/tmp/server.pid; wait $!; echo $? >/tmp/server.status; } >/tmp/server.log 2>&1 &
  wait_for 60 "$1 that has begun" test -s /tmp/server.pid
  wait_for 60 "$1 that listens" cm_listens "$(cat /tmp/server.pid)"
  ;;
end)  # Ends the server.
  wait_for 60 "end of the server" test -s /tmp/server.status
  cat /tmp/server.log
  [ "$(cat /tmp/server.status)" = 0 ] || fail "the server's exit status is $(cat /tmp/server.status)"
  ! grep -iE "$wrong" /tmp/server.log || fail "the server's output"
  ;;
client)
  shift
  echo "+ $*"
  timeout 250 "$@" >/tmp/client.log 2>&1
  status=$?
  cat /tmp/client.log
  [ $status = 0 ] || fail "exit status $status"
  ! grep -iE "$wrong" /tmp/client.log || fail "the client's output"
  ;;
clean) clean_dmesg ;;
esac
