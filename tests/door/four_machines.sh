#!/bin/bash
# Unmodified programs on four machines, which are network namespaces on a bridge:
# four_machines.sh SOFTHCA PROGRAMS WIRE MTU FAULTS [WORD]
# - WIRE: `sockets` (--address if:NAME) or `trunk` (--join);
# - FAULTS: `none`, or `lossy`: then only the runs whose programs survive lost frames;
# - WORD: only the runs that it matches.
# The runs are those of the lists of tests/guest, UCX, libfabric, and programs that are killed and started again. Each run has another
# pair of machines. MPI jobs on four machines are in clusters.py.
for program in ib_write_bw rping ibv_rc_pingpong ucx_perftest fi_pingpong; do
  command -v $program >/dev/null && continue
  echo "four_machines.sh needs $program: apt install perftest rdmacm-utils ibverbs-utils ucx-utils libfabric-bin" >&2
  exit 1
done
. "$(dirname "$0")/lib.sh" "$@"
shift 2
. "$here/machines_lib.sh"
mtu=$2 faults=$3 only=${4:-.}
make_machines "$mtu"
[ "$faults" != lossy ] || lossy
[ "$wire" != trunk ] || join_machines
# The GID table: link-local, then IPv4, then IPv6, each for RoCE v1 and v2.
gid=3 bad=() runs=0 left=0
# The longest datagram. On a trunk, frames cross in pieces.
[ "$wire $mtu" = "sockets 1500" ] && datagram=1024 || datagram=4096

# one FUNCTION ARGUMENT...: a run on the next pair of machines. A failure is recorded, and the other runs continue.
one() {
  local line="$*"
  [[ $line =~ $only ]] || return 0
  can "$line" || { left=$((left + 1)); return 0; }
  a=$((runs % machines + 1)) b=$(((runs + runs / machines % (machines - 1) + 1) % machines + 1))
  runs=$((runs + 1))
  if ("$@") >"$folder/run" 2>&1; then
    echo "ok: $line"
  else
    echo "FAILED: $line (from $a to $b)"
    grep -vE '^ *$|^---' "$folder/run" | tail -n 25
    bad+=("$line")
    clear_machines
  fi
}
# can LINE: the run suits the wire, the faults and the program.
can() {
  # perftest 4.5 lacks some options of later ones.
  [[ ! $1 =~ perftest\ (ib_[a-z_]+).*\ (--(write_with_imm|use-null-mr)) ]] ||
    "${BASH_REMATCH[1]}" --help 2>&1 | grep -q -- "${BASH_REMATCH[2]}" || return
  # With several QPs, perftest 4.5 posts too few buffers to the SRQ, and messages without a buffer are lost.
  [[ ! $1 =~ "-c UD --use-srq -q" ]] || return
  # The group of perftest has the scope of an interface (ff01::), whose packets no machine takes from another.
  [[ $wire != sockets || ! $1 =~ group_ ]] || return
  # UC and UD do not retransmit, and lost frames cause timeouts that are not of a killed peer. All sizes take too long: one of a hundred
  # packets is sent again with those behind it.
  [[ $faults != lossy || ! $1 =~ " -a "|"-c U"|uc_pingpong|ud_pingpong|udaddy|multicast|group_|dgram|killed ]]
}

tcp_pair() { # PORT PROGRAM OPTION...
  serve "listens_on $b $1" "${@:2}"
  call "${@:2}" "$(tcp_address "$b")"
}
perftest() { tcp_pair 18515 "$@" -x $gid -F || is_of_perftest " $* "; }
# Failures of perftest 4.5 on every wire. It refuses atomics on demand. With events, a DC target keeps a CQ, so that perftest cannot close the
# channel at its end.
is_of_perftest() {
  local end
  for end in client server; do
    case $1 in
    *ib_atomic_*--odp*) has "$folder/$end" 'ODP does not support ATOMICS' || return ;;
    *DC*' -e '*) has "$folder/$end" '^ [0-9]+ +[0-9]+ +[0-9.]+ ' || return ;;
    *) return 1 ;;
    esac
  done
  [[ $1 == *--odp* ]] || grep -q 'Failed to close event channel' "$folder"/{client,server}
}
group_perftest() { gid=1 perftest "$@"; }
# The last acknowledgement may be lost, and its sender has ended: then the other end runs out of retries. The content is compared.
pingpong() {
  tcp_pair 18515 "$@" -g $gid && return
  [ "$faults" = lossy ] && ! grep -q 'invalid data' "$folder"/{client,server} && grep -q ' iters in ' "$folder"/{client,server} || return
  for end in client server; do has "$folder/$end" " iters in |transport retry counter exceeded" || return; done
}
# cm_pair SERVER... -- CLIENT...: by the connection manager. Neither prints a failure.
cm_pair() {
  local server_words=()
  while [ "$1" != -- ]; do server_words+=("$1") && shift; done
  shift
  serve "cm_listens_on $b" "${server_words[@]}"
  call "$@" || return
  ! grep -iE 'mismatch|error|fail|return status [^0]' "$folder"/{client,server}
}
cm_perftest() { cm_pair "$@" -R -F -- "$@" -R -F "$(rdma_address "$b")"; }
cm() {
  # The server of rdma-core 44 does not end by itself.
  [ "$1" != cmtime ] || { times "${@:2}"; return; }
  cm_pair "$1" -b "$(rdma_address "$b")" "${@:2}" -- "$1" -s "$(rdma_address "$b")" -b "$(rdma_address "$a")" "${@:2}"
}
times() { # OPTION...
  serve "cm_listens_on $b" cmtime -b "$(rdma_address "$b")" "$@"
  on "$a" cmtime -s "$(rdma_address "$b")" -b "$(rdma_address "$a")" "$@" >"$folder/client" 2>&1 || return
  stop
  cat "$folder"/{client,server}
  grep '^connect ' "$folder/client" && ! grep 'event:' "$folder/client"
}
rping_() { cm_pair "$here/rping" -s -a "$(rdma_address "$b")" "$@" -- "$here/rping" -c -a "$(rdma_address "$b")" "$@"; }
endpoint() { cm_pair rdma_server -- rdma_client -s "$(rdma_address "$b")"; }
x_endpoint() { cm_pair rdma_xserver "$@" -- rdma_xclient -s "$(rdma_address "$b")" "$@"; }
devices() { on "$a" ibv_devices | grep mlx5_0 && on "$a" ibv_devinfo -v | grep PORT_ACTIVE; }
# The server does not end by itself.
copy() {
  head -c 3000000 /dev/urandom >"$folder/original"
  serve "cm_listens_on $b" rcopy
  on "$a" rcopy "$folder/original" "$(rdma_address "$b"):$folder/$b/copied"
  stop
  cat "$folder/server"
  cmp "$folder/original" "$folder/$b/copied"
}
multicast() {
  on "$b" stdbuf -oL mckey -m 239.77.0.1 -b "$(rdma_address "$b")" -C 10 "$@" >"$folder/server" 2>&1 & server=$!
  eventually holds_or_ended $server "has $folder/server 'joined dgid'"
  call mckey -m 239.77.0.1 -s -b "$(rdma_address "$a")" -C 10 "$@"
}
# Events of the port whose link goes down and comes back.
asyncwatch() {
  serve "has $folder/server 'async event FD'" stdbuf -oL ibv_asyncwatch
  "$softhca" fault "$(control_of "$b")" add 'port=mlx5_0,do=link-down,time=300ms'
  eventually has "$folder/server" 'PORT_ACTIVE|port active' && has "$folder/server" 'PORT_ERR|port error'
  local status=$?
  cat "$folder/server"
  stop
  return $status
}
# fi_pingpong compares the content. Its datagrams have no connection from which libfabric would learn the GID.
fabric() { # OPTION...
  export FI_VERBS_GID_IDX=$gid
  tcp_pair 47592 fi_pingpong -c -I 50 "$@"
}
# rxm closes its endpoint when the other end disconnects, even if the program has not read its last completions: then a program that has
# exchanged and compared all messages reports a flushed request.
fabric_rdm() { # OPTION...
  fabric -p 'verbs;ofi_rxm' -e rdm "$@" && return
  ! grep -v 'cq_readerr: Work Request Flushed Error' "$folder"/{client,server} | grep -qi 'error' || return
  has "$folder/client" '50 +=50 ' && has "$folder/server" '50 +=50 '
}
# All tests of ucx_perftest over a transport, by RoCE v2 over IPv4.
ucx() {
  server_side() { patience=300 on "$b" "$@"; }
  client_side() { patience=300 on "$a" "$@"; }
  ucx_listens() { listens_on "$b" "$1"; }
  ucx_server=$(tcp_address "$b")
  export UCX_IB_GID_INDEX=$gid
  . "$here/ucx.sh" "$1"
}

# killed WHO TIMEOUTS PROGRAM OPTION...: a program is killed in the middle of its traffic. The other end ends with an error. It has run into
# at most TIMEOUTS, which are 8 for each of its QPs that wait for an answer: 7 retries, and the end. Then a new pair works.
killed() {
  local who=$1 most=$2 victim=$a client other timeouts
  shift 2
  [ $who = client ] || victim=$b
  serve "listens_on $b 18515" "$here/with_timeouts.sh" "$folder/$b/process" "$@" -n 5000000 -x $gid -F
  on "$a" "$here/with_timeouts.sh" "$folder/$a/process" "$@" -n 5000000 -x $gid -F "$(tcp_address "$b")" >"$folder/client" 2>&1 & client=$!
  eventually holds_or_ended $client "exchanges $a 1000"
  kill -9 "$(cat "$folder/$victim/process")"
  local status_of_client=0 status_of_server=0
  wait $client || status_of_client=$?
  wait $server || status_of_server=$?
  cat "$folder"/{client,server}
  [ $who = client ] && other=server || other=client
  local status_of_victim=status_of_$who status_of_other=status_of_$other
  [ ${!status_of_victim} = 137 ] || { echo "the victim's status: ${!status_of_victim}"; return 1; }
  [ ${!status_of_other} != 0 ] && [ ${!status_of_other} -lt 124 ] || { echo "the other's status: ${!status_of_other}"; return 1; }
  timeouts=$(sed -n 's/^ACK timeouts: //p' "$folder/$other")
  echo "timeouts: $timeouts"
  [ "$timeouts" -le "$most" ] && [ "$most" = 0 -o "$timeouts" -gt 0 ] || return
  perftest "$@" -n 100
}

. "$here/../guest/examples_list.sh"
. "$here/../guest/perftest_list.sh"
for size in 64 4096 1048576 all; do one fabric -p verbs -e msg -S $size; done
for size in 64 4096 1048576; do one fabric_rdm -S $size; done
for size in 64 1000; do one fabric -p verbs -e dgram -S $size; done
for who in client server; do
  [ $who = client ] && most=0 || most=8
  one killed $who $most ib_write_bw -s 4096
  one killed $who $((4 * most)) ib_read_bw -s 65536 -q 4
  one killed $who $most ib_atomic_bw
  one killed $who 8 ib_send_bw -s 20000 -b
done
for transport in rc_verbs ud_verbs rc_mlx5 ud_mlx5 dc_mlx5; do one ucx $transport; done
echo "$runs runs on 4 machines ($wire, MTU $mtu, faults: $faults), ${#bad[@]} of them bad; $left left out"
[ ${#bad[@]} -eq 0 ]
