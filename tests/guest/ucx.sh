#!/bin/bash
# ucx.sh [-a] [TRANSPORT...]: UCX over each of its transports: verbs (rc_v, ud_v) and its own paths past libibverbs (rc_x,
# ud_x, dc_x), which make their objects by DevX and write WQEs themselves. Every kind of operation, from 1 byte to 8 MiB.
# Then an MPI job that compares every byte. Without -a, what the device cannot tell from other tests is left out: UCP's streams
# and active messages, which are the same messages as tags, and on UD also reads and atomics, of which UCP makes SENDs.
. "$(dirname "$0")/lib.sh"
two_hosts
all=
[ "${1:-}" != -a ] || { all=yes; shift; }
transports="${*:-rc_v ud_v rc_x ud_x dc_x}"
export UCX_WARN_UNUSED_ENV_VARS=n UCX_VFS_ENABLE=n UCX_IB_GID_INDEX=auto

# tests TYPE OPTIONS...: a line for the test of ucx_perftest with each of these OPTIONS.
tests() {
  local type=$1 options number=0
  shift
  for options; do echo "${type}_$((number += 1)) -t $type $options"; done
}
small=("-s 1 -n 10 -w 1" "-s 2000 -n 10 -w 1" "-s 60000 -n 3 -w 1")
large=("-s 8388608 -n 1 -w 1")
for type in tag_lat ${all:+stream_lat ucp_am_lat} ucp_put_lat; do tests $type "${small[@]}"; done >/tmp/tests
for type in tag_bw ${all:+stream_bw ucp_am_bw} ucp_put_bw; do tests $type "${large[@]}"; done >>/tmp/tests
tests ucp_get "${small[@]}" "${large[@]}" >>/tmp/tests
for type in ucp_add ucp_fadd ucp_swap ucp_cswap; do tests $type "-s 4 -n 20 -w 1" "-s 8 -n 20 -w 1"; done >>/tmp/tests

port=13337

# ucx_on HOST TRANSPORT COMMAND...: a program of UCX with the host's device, in place of this shell.
ucx_on() {
  local host=$1 transport=$2 device
  eval "device=\$IB_$host"
  shift 2
  exec ip netns exec "$host" env UCX_TLS="$transport,self" UCX_NET_DEVICES="$device:1" "$@"
}

# batch TRANSPORT: all tests.
batch() {
  local transport=$1 list=/tmp/tests want got status
  if [[ -z $all && $transport == ud_* ]]; then
    list=/tmp/tests_of_ud
    grep -vE '^ucp_(get|add|fadd|swap|cswap)_' /tmp/tests >$list
  fi
  local options=(-P 0 -p $port -v -b $list)
  (ucx_on b "$transport" ucx_perftest "${options[@]}") >/tmp/server.log 2>&1 &
  server=$!
  wait_for 120 "ucx_perftest that listens" listens $server $port
  (ucx_on a "$transport" timeout 600 ucx_perftest "$ADDRESS_b" "${options[@]}") >/tmp/client.log 2>&1
  status=$?
  [ $status = 0 ] || { cat /tmp/client.log /tmp/server.log >&2; fail "$transport: exit status $status"; }
  wait $server
  status=$?
  [ $status = 0 ] || { cat /tmp/client.log /tmp/server.log >&2; fail "$transport: server's exit status $status"; }
  want=$(wc -l <$list)
  got=$(grep -cE '^[a-z_]+_[0-9], *[0-9]+,' /tmp/client.log)
  echo "$transport: $got of $want"
  # A batch continues after a failed test, and its status does not report the failure.
  if [ "$got" -ne "$want" ] || grep -E 'ERROR|WARN|FATAL|Assertion' /tmp/client.log /tmp/server.log; then
    cat /tmp/client.log /tmp/server.log >&2
    fail "$transport: $got of $want results"
  fi
}

# mpi_job TRANSPORT: two ranks on one device, which must not communicate by shared memory.
mpi_job() {
  (ucx_on a "$1" timeout 600 mpirun --allow-run-as-root --oversubscribe -n 2 --mca pml ucx --mca osc ucx --mca coll ^hcoll \
    --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any -x UCX_TLS -x UCX_NET_DEVICES \
    python3 /share/mpi_check.py) >/tmp/mpi.log 2>&1 || { cat /tmp/mpi.log >&2; fail "$1, MPI: it ended in an error"; }
  if [ "$(grep -o 'all is well' /tmp/mpi.log | wc -l)" -ne 2 ] || grep -E 'ERROR|WARN' /tmp/mpi.log; then
    cat /tmp/mpi.log >&2
    fail "$1, MPI: it says no good"
  fi
  echo "$1, MPI: done"
}

for transport in $transports; do
  batch "$transport"
  mpi_job "$transport"
  clean_dmesg
done
