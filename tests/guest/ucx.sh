#!/bin/bash
# ucx.sh [-a] [TRANSPORT...]: UCX over each of its transports: verbs (rc_v, ud_v) and its own paths past libibverbs (rc_x,
# ud_x, dc_x), which make their objects by DevX and write WQEs themselves. Every kind of operation, from 1 byte to 8 MiB.
# Then an MPI job that compares every byte. Without -a, UCP's streams and active messages are left out: to the device they
# are the same messages as tags.
. "$(dirname "$0")/lib.sh"
two_hosts
all=
[ "${1:-}" != -a ] || { all=yes; shift; }
transports="${*:-rc_v ud_v rc_x ud_x dc_x}"
export UCX_WARN_UNUSED_ENV_VARS=n UCX_VFS_ENABLE=n UCX_IB_GID_INDEX=auto

# Each line is a test. ucx_perftest repeats it for each line of the file behind it.
cat >/tmp/small <<END
tag_lat -t tag_lat
stream_lat -t stream_lat
am_lat -t ucp_am_lat
put_lat -t ucp_put_lat
get -t ucp_get
END
cat >/tmp/small_sizes <<END
1 -s 1 -n 10 -w 1
2000 -s 2000 -n 10 -w 1
60000 -s 60000 -n 3 -w 1
END
cat >/tmp/large <<END
tag_bw -t tag_bw
stream_bw -t stream_bw
am_bw -t ucp_am_bw
put_bw -t ucp_put_bw
get -t ucp_get
END
cat >/tmp/large_sizes <<END
8m -s 8388608 -n 1 -w 1
END
cat >/tmp/atomic <<END
add -t ucp_add
fadd -t ucp_fadd
swap -t ucp_swap
cswap -t ucp_cswap
END
cat >/tmp/atomic_sizes <<END
4 -s 4 -n 20 -w 1
8 -s 8 -n 20 -w 1
END

port=13337

[ -n "$all" ] || sed -i '/^stream_/d; /^am_/d' /tmp/small /tmp/large

# ucx_on HOST TRANSPORT COMMAND...: a program of UCX with the host's device, in place of this shell.
ucx_on() {
  local host=$1 transport=$2 device
  eval "device=\$IB_$host"
  shift 2
  exec ip netns exec "$host" env UCX_TLS="$transport,self" UCX_NET_DEVICES="$device:1" "$@"
}

# batch TRANSPORT TESTS: all tests of the file, with all sizes of the file beside it.
batch() {
  local transport=$1 tests=$2 want got status
  local options=(-P 0 -p $port -v -b "/tmp/$tests" -b "/tmp/${tests}_sizes")
  (ucx_on b "$transport" ucx_perftest "${options[@]}") >/tmp/server.log 2>&1 &
  server=$!
  wait_for 120 "ucx_perftest that listens" listens $server $port
  (ucx_on a "$transport" timeout 600 ucx_perftest "$ADDRESS_b" "${options[@]}") >/tmp/client.log 2>&1
  status=$?
  [ $status = 0 ] || { cat /tmp/client.log /tmp/server.log >&2; fail "$transport, $tests: exit status $status"; }
  wait $server
  status=$?
  [ $status = 0 ] || { cat /tmp/client.log /tmp/server.log >&2; fail "$transport, $tests: server's exit status $status"; }
  want=$(($(wc -l <"/tmp/$tests") * $(wc -l <"/tmp/${tests}_sizes")))
  got=$(grep -cE '^[a-z_]+,[0-9a-z]+, *[0-9]+,' /tmp/client.log)
  echo "$transport, $tests: $got of $want"
  # A batch continues after a failed test, and its status does not report the failure.
  if [ "$got" -ne "$want" ] || grep -E 'ERROR|WARN|FATAL|Assertion' /tmp/client.log /tmp/server.log; then
    cat /tmp/client.log /tmp/server.log >&2
    fail "$transport, $tests: $got of $want results"
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
  for tests in small large atomic; do
    batch "$transport" "$tests"
  done
  mpi_job "$transport"
  clean_dmesg
done
