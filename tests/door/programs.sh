#!/bin/bash
# Unmodified programs of the distribution between two processes of `softhca run`, with content checks where they have
# them: programs.sh SOFTHCA LOST_MEMORY IDLE_QUEUES MANY_CLIENTS
# In a network of its own, where nobody else has perftest's port.
set -u
if [ -z "${OWN_NETWORK:-}" ]; then
  [ "$(id -u)" = 0 ] && user=() || user=(--map-current-user --keep-caps)
  OWN_NETWORK=1 exec unshare --net "${user[@]}" sh -c 'ip link set lo up; exec "$0" "$@"' "$0" "$@"
fi
softhca=$1 lost_memory=$2 idle_queues=$3 many_clients=$4
[ "$(id -u)" = 0 ] && nobody=(setpriv --reuid=nobody --regid=nogroup --clear-groups) || nobody=()
export HOME=/tmp XDG_RUNTIME_DIR=
failed=0

# pair NAME EXPECTED SERVER... : the client is the same with localhost behind it.
pair() {
  local name=$1 expected=$2 out
  shift 2
  out=$("${nobody[@]}" timeout 100 "$softhca" run -- sh -c "$* & sleep 1; timeout 60 $* localhost; s=\$?; wait \$!; exit \$s" 2>&1)
  if [ $? = 0 ] && grep -qE "$expected" <<<"$out"; then
    echo "ok: $name"
  else
    echo "FAILED: $name"; echo "$out"; failed=1
  fi
}

info=$("${nobody[@]}" timeout 60 "$softhca" run -- ibv_devinfo -v 2>&1)
if grep -q 'PORT_ACTIVE' <<<"$info" && grep -q 'GID\[ *3\]:.*198.18' <<<"$info"; then
  echo "ok: ibv_devinfo -v"
else
  echo "FAILED: ibv_devinfo -v"; echo "$info"; failed=1
fi
pair "RC ping-pong" "200 iters in" ibv_rc_pingpong -g 3 -c -n 200
pair "RC ping-pong with events" "200 iters in" ibv_rc_pingpong -g 3 -c -e -n 200
pair "UC ping-pong" "200 iters in" ibv_uc_pingpong -g 3 -c -n 200
pair "UD ping-pong" "200 iters in" ibv_ud_pingpong -g 3 -c -n 200
pair "SRQ ping-pong with events" "200 iters in" ibv_srq_pingpong -g 3 -c -e -n 200
pair "XRC ping-pong" "" ibv_xsrq_pingpong -g 3 -n 200
pair "RC ping-pong on demand" "200 iters in" ibv_rc_pingpong -g 3 -c -o -n 200
pair "ib_send_bw, XRC" "^ 65536 +200 " ib_send_bw -d mlx5_0 -x 3 -c XRC -n 200
for test in ib_write_bw ib_read_bw ib_send_bw; do
  pair "$test" "^ 65536 +200 " $test -d mlx5_0 -x 3 -n 200
done
pair "ib_atomic_bw" "^ 8 +200 " ib_atomic_bw -d mlx5_0 -x 3 -n 200
# The first program of a run has the first MAC of its hub, the next one the second.
frames=$(mktemp -d) && chmod 777 "$frames"
"${nobody[@]}" timeout 100 "$softhca" run -- sh -c "
  raw_ethernet_bw -d mlx5_0 --server -E 02:5f:cb:00:00:99 -B 02:5f:cb:00:00:01 -s 1024 -n 500 >$frames/server 2>&1 & sleep 2
  timeout 60 raw_ethernet_bw -d mlx5_0 --client -B 02:5f:cb:00:00:02 -E 02:5f:cb:00:00:01 -s 1024 -n 500 >$frames/client 2>&1
  wait \$!"
if [ $? = 0 ] && grep -qE '^ 1024 +500 ' "$frames/server" && grep -qE '^ 1024 +500 ' "$frames/client"; then
  echo "ok: raw_ethernet_bw"
else
  echo "FAILED: raw_ethernet_bw"; cat "$frames/server" "$frames/client"; failed=1
fi
rm -rf "$frames"
pair "ib_write_bw, 16 QPs" "^ 65536 +3200 " ib_write_bw -d mlx5_0 -x 3 -q 16 -n 200
# docs/first-program.md
hello=$(mktemp) && cc -Wall -Werror -o "$hello" "$(dirname "$0")/../../examples/libibverbs/hello_rdma.c" -libverbs && chmod 755 "$hello"
if "${nobody[@]}" timeout 60 "$softhca" run -- "$hello" 2>&1 | grep -q "^target: written by RDMA"; then
  echo "ok: the first program"
else
  echo "FAILED: the first program"; failed=1
fi
rm -f "$hello"
rping=$("${nobody[@]}" timeout 60 "$softhca" run -- sh -c \
  'rping -s -C 3 & sleep 1; timeout 20 rping -c -a 127.0.0.1 -C 3 -v; s=$?; wait $!; exit $s' 2>&1)
if [ $? = 0 ] && [ "$(grep -c 'ping data: rdma-ping' <<<"$rping")" = 3 ]; then
  echo "ok: rping"
else
  echo "FAILED: rping"; echo "$rping"; failed=1
fi
mckey=$("${nobody[@]}" timeout 60 "$softhca" run -- sh -c \
  'timeout 20 mckey -m 239.1.2.3 & sleep 1; timeout 20 mckey -m 239.1.2.3 -s; s=$?; wait $! && exit $s' 2>&1)
if [ $? = 0 ] && [ "$(grep -c 'data transfers complete' <<<"$mckey")" = 2 ]; then
  echo "ok: mckey"
else
  echo "FAILED: mckey"; echo "$mckey"; failed=1
fi
# A server with 64 threads, and as many clients, each a process with a device of its own.
many=$("${nobody[@]}" timeout 200 "$softhca" run -- bash -c '
  "$0" server 64 >/tmp/many_clients.$$ & server=$!
  until grep -q listening /tmp/many_clients.$$ || ! kill -0 $server; do sleep 0.1; done
  clients=() failed=0
  for i in {1..64}; do "$0" client & clients+=($!); done
  for client in "${clients[@]}"; do wait $client || failed=$((failed + 1)); done
  wait $server; cat /tmp/many_clients.$$; rm /tmp/many_clients.$$; echo "$failed failed"' "$many_clients" 2>&1)
if grep -q '^served 64$' <<<"$many" && grep -q '^0 failed$' <<<"$many"; then echo "ok: 64 clients"; else echo "FAILED: 64 clients: $many"; failed=1; fi
# docs/run.md: the library's thread looks once a second where there is nothing to do, with queues (the server waits for
# its client) and without. It has gone to sleep after two.
for idle in ibv_asyncwatch "ibv_rc_pingpong -g 3"; do
  wakes=$("${nobody[@]}" timeout 60 "$softhca" run -- bash -c "$idle"' >/dev/null & p=$!; sleep 3
    count() { for t in /proc/$p/task/*; do [ "$(cat $t/comm)" = softhca ] && awk "/^voluntary/ { print \$2 }" $t/status; done; }
    before=$(count); sleep 3; after=$(count); kill $p; echo $((after - before))' 2>/dev/null)
  if [ -n "$wakes" ] && [ "$wakes" -le 5 ]; then
    echo "ok: $idle wakes once a second"
  else
    echo "FAILED: $idle wakes once a second: $wakes times in three seconds"; failed=1
  fi
done
for how in events polls "events blocked"; do
  out=$("${nobody[@]}" timeout 60 "$softhca" run -- "$idle_queues" $how 2>&1)
  if grep -q "^in time" <<<"$out"; then echo "ok: after a rest, $how"; else echo "FAILED: after a rest, $how: $out"; failed=1; fi
done
# lost WORDS EXPECTED: memory that is unmapped while it is registered.
lost() {
  local out
  out=$("${nobody[@]}" timeout 60 "$softhca" run -- "$lost_memory" $1 2>/dev/null)
  if [ $? = 0 ] && [ "$out" = "$2" ]; then echo "ok: $1"; else echo "FAILED: $1: $out"; failed=1; fi
}
lost "write nothing" "success"
for verb in read write; do
  for place in source target; do lost "$verb $place" "an error completion"; done
done
lost "crash source" "an error completion
the program's own handler"
exit $failed
