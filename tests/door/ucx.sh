#!/bin/bash
# All tests of ucx_perftest between two programs of a run: `softhca run -- ucx.sh [TRANSPORT...]`. For each transport that UCX has
# for the device, they test the upper layer (UCP: tags, streams, messages, RMA, atomics) and each operation of the transport
# (UCT). `ucx_info -d` lists the operations of a transport. ucx_perftest must have a result for these, and refuse all others.
#
# A script that sources it can place the two programs on two machines: by the functions `server_side` and `client_side`, which run a
# command, `ucx_listens PORT`, and the server's address in `ucx_server`.
set -u
. "$(dirname "$0")/rendezvous.sh"
transports=("$@")
[ $# != 0 ] || transports=(rc_verbs ud_verbs rc_mlx5 ud_mlx5 dc_mlx5)
export UCX_WARN_UNUSED_ENV_VARS=n UCX_VFS_ENABLE=n
declare -F server_side >/dev/null || server_side() { "$@"; }
declare -F client_side >/dev/null || client_side() { "$@"; }
declare -F ucx_listens >/dev/null || ucx_listens() { listens "$1"; }
batches=$(mktemp -d)
chmod 755 "$batches"
trap 'rm -rf "$batches"' EXIT
port=23000 failed=0
# If ucx_perftest is built for MPI, an option turns MPI off.
alone=()
ucx_perftest -h 2>&1 | grep -q -- ' -P ' && alone=(-P 0)

# batch NAME OPTION...: runs the tests in file NAME between two programs. Their output goes to NAME.client and NAME.server.
batch() {
  local name=$1 server
  shift
  port=$((port + 1))
  server_side timeout 200 ucx_perftest "${alone[@]}" -p $port -v -b "$batches/$name" "$@" >"$batches/$name.server" 2>&1 &
  server=$!
  eventually holds_or_ended $server "ucx_listens $port"
  client_side timeout 200 ucx_perftest "${alone[@]}" "${ucx_server:-127.0.0.1}" -p $port -v -b "$batches/$name" "$@" >"$batches/$name.client" 2>&1
  wait $server
}
# The tests of a batch that have a result. The status does not show failures: a batch goes on after one.
results() { sed -nE 's/^([a-z_]+,?[a-z0-9_.]*), *[0-9]+,.*/\1/p' "$batches/$1.client"; }
# all_of NAME: each test of the batch has a result, and softhca prints nothing.
all_of() {
  local missing
  missing=$(comm -23 <(cut -d' ' -f1 "$batches/$1" | sort) <(results "$1" | sort))
  if [ -z "$missing" ] && ! grep -qE 'ERROR|WARN|FATAL|Assertion' "$batches/$1.client" "$batches/$1.server"; then
    echo "ok: $transport, $1: $(wc -l <"$batches/$1") tests"
  else
    echo "FAILED: $transport, $1:" $missing
    grep -hE 'ERROR|WARN|FATAL|Assertion' "$batches/$1.client" "$batches/$1.server" | head -12
    failed=1
  fi
}
# can WORD [TEXT]: ucx_info has a line for this operation of the transport, with the text in it.
can() { grep -qE "^# +$1: .*${2:-}" "$batches/info"; }
# uct CAPABILITY TEXT TEST OPTION...: adds a test to the batch `uct`, or to `refused` if the transport lacks the capability.
uct() {
  local capability=$1 text=$2 test=$3 batch=uct
  shift 3
  can "$capability" "$text" || batch=refused
  count=$((count + 1))
  echo "$test.$count -t $test -n 100 -w 10 $*" >>"$batches/$batch"
}

for transport in "${transports[@]}"; do
  client_side ucx_info -d 2>&1 | sed -n "/^# *Transport: $transport\$/,/^# *error handling/p" >"$batches/info"
  [ -s "$batches/info" ] || { echo "FAILED: $transport: ucx_info -d does not have it"; failed=1; continue; }
  rm -f "$batches"/{ucp,uct,refused}
  for test in tag_lat tag_bw tag_sync_lat tag_sync_bw ucp_put_lat ucp_put_bw ucp_get stream_bw stream_lat ucp_am_lat ucp_am_bw; do
    for size in 1 2000 60000 1000000; do echo "$test.$size -t $test -s $size -n 50 -w 5"; done
  done >"$batches/ucp"
  for test in ucp_add ucp_fadd ucp_swap ucp_cswap; do
    for size in 4 8; do echo "$test.$size -t $test -s $size -n 100 -w 10"; done
  done >>"$batches/ucp"
  count=0
  for test in am_lat am_bw put_lat put_bw; do
    kind=${test%_*}
    uct "${kind}_short" "" $test -D short -s 16
    uct "${kind}_bcopy" "" $test -D bcopy -s 2000
    uct "${kind}_zcopy" "" $test -D zcopy -s 4000
  done
  uct get_bcopy "" get -D bcopy -s 2000
  uct get_zcopy "" get -D zcopy -s 60000
  for bits in 32 64; do
    for test in add_lat add_mr fadd swap cswap; do
      uct "atomic_${test%_*}" "$bits(,| bit)" $test -s $((bits / 8))
    done
  done
  # The short name also selects the auxiliary transport by which UCX connects.
  short=${transport/verbs/v} short=${short/mlx5/x}
  UCX_TLS=$short,self UCX_NET_DEVICES=mlx5_0:1 batch ucp
  all_of ucp
  batch uct -x "$transport" -d mlx5_0:1
  all_of uct
  if [ -s "$batches/refused" ]; then
    batch refused -x "$transport" -d mlx5_0:1
    if [ -z "$(results refused)" ]; then
      echo "ok: $transport, refused by UCX: $(sed 's/\..*-t [a-z_]*/ /; s/-n 100 -w 10//' "$batches/refused" | tr -s ' ' | tr '\n' ';')"
    else
      echo "FAILED: $transport: UCX does what it says it cannot:" $(results refused)
      failed=1
    fi
  fi
done
exit $failed
