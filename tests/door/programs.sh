#!/bin/bash
# Unmodified programs of the distribution between two processes of `softhca run`, with content checks where they have
# them: programs.sh SOFTHCA LOST_MEMORY IDLE_QUEUES MANY_CLIENTS FOLLOW_GIDS XRC_TARGETS TWO_DEVICES EXTENDED_CQ CM_CALLS CM_BACKLOG
# In a network of its own, where nobody else has perftest's port.
set -u
if [ -z "${OWN_NETWORK:-}" ]; then
  [ "$(id -u)" = 0 ] && user=() || user=(--map-current-user --keep-caps)
  OWN_NETWORK=1 exec unshare --net "${user[@]}" sh -c 'ip link set lo up; exec "$0" "$@"' "$0" "$@"
fi
softhca=$1 lost_memory=$2 idle_queues=$3 many_clients=$4 follow_gids=$5 xrc_targets=$6 two_devices=$7 extended_cq=$8 cm_calls=$9 cm_backlog=${10}
[ "$(id -u)" = 0 ] && nobody=(setpriv --reuid=nobody --regid=nogroup --clear-groups) || nobody=()
# Nor is it on the network of other runs of this user.
export HOME=/tmp XDG_RUNTIME_DIR
XDG_RUNTIME_DIR=$("${nobody[@]}" mktemp -d) && trap 'rm -rf "$XDG_RUNTIME_DIR"' EXIT
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
# iproute2's, by NETLINK_RDMA.
rdma=$("${nobody[@]}" timeout 60 "$softhca" run --devices 2 -- sh -c 'rdma dev; rdma link show -j; rdma link show mlx5_1/1; rdma res' 2>&1)
if [ "$(grep -cE '^[01]: mlx5_[01]: node_type ca .*node_guid 0200:00ff:fe00:000[01]' <<<"$rdma")" = 2 ] &&
  grep -q '"ifname":"mlx5_1","port":1,"state":"ACTIVE","physical_state":"LINK_UP"' <<<"$rdma" &&
  grep -q '^link mlx5_1/1 state ACTIVE' <<<"$rdma" && grep -q 'not supported' <<<"$rdma"; then
  echo "ok: rdma"
else
  echo "FAILED: rdma"; echo "$rdma"; failed=1
fi
pair "RC ping-pong" "200 iters in" ibv_rc_pingpong -g 3 -c -n 200
pair "RC ping-pong with events" "200 iters in" ibv_rc_pingpong -g 3 -c -e -n 200
pair "UC ping-pong" "200 iters in" ibv_uc_pingpong -g 3 -c -n 200
pair "UD ping-pong" "200 iters in" ibv_ud_pingpong -g 3 -c -n 200
pair "SRQ ping-pong with events" "200 iters in" ibv_srq_pingpong -g 3 -c -e -n 200
pair "XRC ping-pong" "" ibv_xsrq_pingpong -g 3 -n 200
pair "RC ping-pong on demand" "200 iters in" ibv_rc_pingpong -g 3 -c -o -n 200
pair "ib_send_bw, XRC" "^ 65536 +200 " ib_send_bw -d mlx5_0 -x 3 -c XRC -n 200
# Nobody sends these again: the receiver keeps up, or the sender waits.
pair "ib_send_bw, UC" "^ 65536 +2000 " ib_send_bw -d mlx5_0 -x 3 -c UC -n 2000
for test in ib_write_bw ib_read_bw ib_send_bw; do
  pair "$test" "^ 65536 +200 " $test -d mlx5_0 -x 3 -n 200
done
pair "ib_atomic_bw" "^ 8 +200 " ib_atomic_bw -d mlx5_0 -x 3 -n 200
# MACs are made of numbers that grow from one process to the next: the link-local GID has that of the first one.
frames=$(mktemp -d) && chmod 777 "$frames"
"${nobody[@]}" timeout 100 "$softhca" run -- bash -c "
  first=\$(ibv_devinfo -v | sed -n 's/.*GID\[ *0\]:.*cbff:fe00:\(....\).*/\1/p')
  mac() { printf 02:5f:cb:00:%02x:%02x \$(((0x\$first + \$1) >> 8)) \$(((0x\$first + \$1) & 255)); }
  raw_ethernet_bw -d mlx5_0 --server -E 02:5f:cb:00:00:99 -B \$(mac 1) -s 1024 -n 500 >$frames/server 2>&1 & sleep 2
  timeout 60 raw_ethernet_bw -d mlx5_0 --client -B \$(mac 2) -E \$(mac 1) -s 1024 -n 500 >$frames/client 2>&1
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
# docs/run.md, "Several devices": each with a port of its own, in one process or two.
devices=$("${nobody[@]}" timeout 60 "$softhca" run --devices 3 -- sh -c \
  'ibv_devices | grep -c mlx5_; ibv_devinfo -v | grep -o "GID\[ *3\].*" | sort -u | wc -l' 2>&1)
if [ "$devices" = "3
3" ]; then echo "ok: three devices"; else echo "FAILED: three devices: $devices"; failed=1; fi
two=$("${nobody[@]}" timeout 60 "$softhca" run --devices 2 --address 198.19.7.1,198.19.7.2 -- sh -c '
  ibv_rc_pingpong -d mlx5_1 -g 3 -c -n 200 & sleep 1
  timeout 20 ibv_rc_pingpong -d mlx5_0 -g 3 -c -n 200 localhost; s=$?; wait $!; exit $s' 2>&1)
if [ $? = 0 ] && [ "$(grep -c '200 iters in' <<<"$two")" = 2 ] && grep -q 'GID ::ffff:198.19.7.2' <<<"$two"; then
  echo "ok: from one device to another"
else
  echo "FAILED: from one device to another"; echo "$two"; failed=1
fi
# rping finds the device that has the address.
bound=$("${nobody[@]}" timeout 60 "$softhca" run --devices 2 --address 198.19.7.1,198.19.7.2 -- sh -c \
  'rping -s -a 198.19.7.2 -C 3 & sleep 1; timeout 20 rping -c -a 198.19.7.2 -C 3 -v; s=$?; wait $!; exit $s' 2>&1)
if [ $? = 0 ] && [ "$(grep -c 'ping data: rdma-ping' <<<"$bound")" = 3 ]; then
  echo "ok: rping to the second device"
else
  echo "FAILED: rping to the second device"; echo "$bound"; failed=1
fi
ctl=$("${nobody[@]}" mktemp -d)
asked=$("${nobody[@]}" timeout 60 "$softhca" run --devices 2 --control "$ctl/c" -- sh -c "
  ibv_rc_pingpong -d mlx5_1 -g 3 >/dev/null & p=\$!; sleep 1
  '$softhca' inspect $ctl/c; '$softhca' inspect --json $ctl/c mlx5_1 | python3 -m json.tool >/dev/null && echo json; kill \$p" 2>&1)
if grep -q '^  ibv_rc_pingpong\.[0-9]*:$' <<<"$asked" && grep -q '^    mlx5_1:$' <<<"$asked" && grep -q '^json$' <<<"$asked"; then
  echo "ok: inspect"
else
  echo "FAILED: inspect"; head -40 <<<"$asked"; failed=1
fi
rm -rf "$ctl"
# GIDs that follow an interface: addresses come and go while the program runs.
out=$(mktemp) && chmod 666 "$out"
ip addr add 198.19.8.1/32 dev lo
"${nobody[@]}" timeout 60 "$softhca" run --address if:lo -- "$follow_gids" 4 >"$out" 2>&1 &
lines=1
for change in "add 198.19.8.2/32" "del 198.19.8.1/32"; do
  for _ in {1..100}; do [ "$(wc -l <"$out")" -ge $lines ] && break; sleep 0.1; done
  ip addr $change dev lo
  lines=$((lines + 2))
done
wait $!
# An event for each entry: those of RoCE v1 and v2.
if [ "$(cat "$out")" = "gids 3:198.19.8.1
gids 3:198.19.8.1 5:198.19.8.2
gids 3:198.19.8.1 5:198.19.8.2
gids 5:198.19.8.2
gids 5:198.19.8.2" ]; then
  echo "ok: GIDs follow an interface"
else
  echo "FAILED: GIDs follow an interface"; cat "$out"; failed=1
fi
ip addr del 198.19.8.2/32 dev lo; rm -f "$out"
# GIDs of sysfs are of the process that reads; counters are of all programs of the run.
sysfs=$("${nobody[@]}" timeout 60 "$softhca" run -- sh -c '
  cd /sys/class/infiniband/mlx5_0/ports/1 && cat gids/3 gid_attrs/types/3 gid_attrs/ndevs/3; cat gid_attrs/types/200
  ibv_rc_pingpong -g 3 -n 200 >/dev/null & sleep 1; timeout 30 ibv_rc_pingpong -g 3 -n 200 localhost >/dev/null; wait $!
  sent=$(cat counters/port_xmit_data); [ "$sent" -ge 409600 ] && [ "$sent" = "$(cat counters/port_rcv_data)" ] && echo counted
  cat hw_counters/rx_write_requests; python3 -c "import fcntl; print(fcntl.fcntl(open(\"gids/3\"), fcntl.F_GETFD))"
  ls -la /dev/infiniband >/dev/null && stat -c %n /dev/infiniband/../null' 2>&1)
if [ "$(head -1 <<<"$sysfs" | cut -c 21-35)" = "0000:ffff:c612:" ] && [ "$(tail -n +2 <<<"$sysfs")" = "RoCE v2
lo
cat: gid_attrs/types/200: Invalid argument
counted
0
1
/dev/infiniband/../null" ]; then
  echo "ok: sysfs"
else
  echo "FAILED: sysfs"; echo "$sysfs"; failed=1
fi
# Scripts work in directories of sysfs, as ibstatus does, and leave them.
directories=$("${nobody[@]}" timeout 60 "$softhca" run -- sh -c '
  cd /sys/class/infiniband && echo * && /bin/pwd && cat mlx5_0/ports/1/state
  cd -P mlx5_0/ports && /bin/pwd && (cd .. && cat node_type) && cd -P ../../../../.. && /bin/pwd && ls -d system
  cd /dev/infiniband && ls && test -c uverbs0 && python3 -c "import os
os.close(os.open(\"uverbs0\", os.O_RDWR)); os.chdir(\"..\"); print(os.getcwd(), os.path.exists(\"null\"))"' 2>&1)
if [ "$directories" = "mlx5_0
/sys/class/infiniband
4: ACTIVE
/sys/devices/pci5348:00/5348:00:00.0/infiniband/mlx5_0/ports
1: CA
/sys/devices
system
rdma_cm
uverbs0
/dev True" ]; then echo "ok: directories"; else echo "FAILED: directories"; echo "$directories"; failed=1; fi
# IPv6: the link-local address of a process.
v6=$("${nobody[@]}" timeout 60 "$softhca" run -- sh -c '
  ibv_rc_pingpong -g 1 -c -n 200 & sleep 1; timeout 20 ibv_rc_pingpong -g 1 -c -n 200 localhost; s=$?; wait $!; exit $s' 2>&1)
if [ $? = 0 ] && [ "$(grep -c '200 iters in' <<<"$v6")" = 2 ]; then echo "ok: IPv6"; else echo "FAILED: IPv6: $v6"; failed=1; fi
# rdma_cm by IPv6. The first program of a network has the first number of its hub's block, from which MAC and link-local
# address follow; the address of a later one shows the block.
v6=$("${nobody[@]}" timeout 60 "$softhca" run --private -- sh -c \
  'rping -s -a :: -C 3 & sleep 1; first=$(sed "s/..$/01/" /sys/class/infiniband/mlx5_0/ports/1/gids/0)
   timeout 20 rping -c -a "$first%lo" -C 3 -v; s=$?; wait $!; exit $s' 2>&1)
if [ $? = 0 ] && [ "$(grep -c 'ping data: rdma-ping' <<<"$v6")" = 3 ]; then
  echo "ok: rping by IPv6"
else
  echo "FAILED: rping by IPv6"; echo "$v6"; failed=1
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
# docs/run.md: many programs that poll share a processor, and each has its turn.
crowd=$("${nobody[@]}" timeout 200 "$softhca" run -- bash -c '
  folder=$(mktemp -d) pairs=24 wrong=0
  for i in $(seq $pairs); do ibv_rc_pingpong -g 3 -c -n 200 -p $((20000 + i)) >$folder/$i 2>&1 & servers+=($!); done
  for i in $(seq $pairs); do
    until grep -qi ":$(printf %04x $((20000 + i))) [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done
  done
  for i in $(seq $pairs); do timeout 150 ibv_rc_pingpong -g 3 -c -n 200 -p $((20000 + i)) localhost >>$folder/client.$i 2>&1 & clients+=($!); done
  for one in "${clients[@]}"; do wait $one || wrong=$((wrong + 1)); done
  echo "$wrong of $pairs wrong"; cat $folder/client.* | grep -vE "address|iter|bytes" | sort | uniq -c; rm -r $folder
  [ $wrong = 0 ] || kill "${servers[@]}"' 2>&1)
if grep -q '^0 of 24 wrong$' <<<"$crowd"; then echo "ok: a crowd"; else echo "FAILED: a crowd: $crowd"; failed=1; fi
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
# Contexts that share an XRC domain (docs/run.md).
out=$("${nobody[@]}" timeout 60 "$softhca" run -- "$xrc_targets" 2>/dev/null)
want="without O_CREAT: Resource temporarily unavailable
another's number: Invalid argument
opened
domain: Device or resource busy
its maker has closed it
transport retry counter exceeded"
if [ "$out" = "$want" ]; then echo "ok: XRC targets"; else echo "FAILED: XRC targets: $out"; failed=1; fi
# A process that writes between its devices, with others beside them that do nothing.
out=$("${nobody[@]}" timeout 60 "$softhca" run --devices 4 -- "$two_devices" 2>&1)
if [ "$out" = "at once" ]; then echo "ok: two devices"; else echo "FAILED: two devices: $out"; failed=1; fi
# A wire that loses frames: every byte arrives, and the counters say what it took. Where nothing passes retries run out.
out=$("${nobody[@]}" timeout 90 "$softhca" run --loss 0.02 --loss-seed 3 --control /tmp/loss.$$ -- sh -c "
  ib_send_bw -d mlx5_0 -x 3 -s 4096 -D 5 >/dev/null 2>&1 & sleep 1; ib_send_bw -d mlx5_0 -x 3 -s 4096 -D 5 localhost >/dev/null & sleep 3
  $softhca inspect /tmp/loss.$$ | grep -cE '(packet_seq_err|local_ack_timeout_err): [1-9]'; wait
  ibv_rc_pingpong -g 3 -c -n 200 & sleep 1; ibv_rc_pingpong -g 3 -c -n 200 localhost; wait" 2>&1)
# Where the last acknowledgement is lost and who sent it has gone, the other's retries run out.
if grep -q '200 iters in' <<<"$out" && ! grep -q 'invalid data' <<<"$out" && grep -qxE '[1-9][0-9]*' <<<"$out"; then
  echo "ok: a wire that loses frames"
else
  echo "FAILED: a wire that loses frames: $out"; failed=1
fi
out=$("${nobody[@]}" timeout 90 "$softhca" run --loss 1 -- sh -c '
  ibv_rc_pingpong -g 3 >/dev/null 2>&1 & p=$!; sleep 1; timeout 30 ibv_rc_pingpong -g 3 localhost; kill $p' 2>&1)
if grep -q "transport retry counter exceeded" <<<"$out"; then echo "ok: a wire that loses all"; else echo "FAILED: a wire that loses all: $out"; failed=1; fi
# Calls of librdmacm beside signals; as root, who drops his privileges.
out=$(XDG_RUNTIME_DIR="" timeout 60 "$softhca" run --private -- "$cm_calls" 2>&1)
if [ "$(xargs <<<"$out")" = "restarted interrupted unprivileged" ]; then echo "ok: librdmacm's calls"; else echo "FAILED: librdmacm's calls: $out"; failed=1; fi
# Two terminals, in the words of every tutorial: all runs of a user are on one network.
"${nobody[@]}" timeout 60 "$softhca" run ib_write_bw -n 200 >/dev/null 2>&1 &
sleep 1
out=$("${nobody[@]}" timeout 60 "$softhca" run ib_write_bw -n 200 localhost 2>&1)
if [ $? = 0 ] && wait $! && grep -qE '^ 65536 +200 ' <<<"$out"; then echo "ok: two terminals"; else echo "FAILED: two terminals: $out"; failed=1; fi
# And where they are not, the program is told so.
server=$(mktemp)
"${nobody[@]}" timeout 60 "$softhca" run --private ibv_rc_pingpong -g 3 >"$server" 2>&1 &
sleep 1
out=$("${nobody[@]}" timeout 60 "$softhca" run --private timeout 30 ibv_rc_pingpong -g 3 localhost 2>&1)
status=$?
kill $! 2>/dev/null
wait $! 2>/dev/null
# The server is the first to look for its peer.
if [ $status != 0 ] && grep -qE 'no process of this private network has the address 198\.18\.[0-9.]+: nothing' "$server"; then
  echo "ok: two networks"
else
  echo "FAILED: two networks: $status $out; the server: $(cat "$server")"; failed=1
fi
rm -f "$server"
# The hub is killed: the port of a program that waits goes down.
events=$(mktemp) && chmod 666 "$events"
"${nobody[@]}" timeout 60 "$softhca" run stdbuf -oL ibv_asyncwatch >"$events" 2>&1 &
for _ in {1..100}; do grep -q 'async event FD' "$events" && break; sleep 0.1; done
for process in $(pgrep -x softhca-hub); do
  tr '\0' '\n' <"/proc/$process/environ" | grep -qx "XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR" && kill -KILL "$process"
done
for _ in {1..100}; do grep -q 'event_type' "$events" && break; sleep 0.1; done
if grep -q 'event_type IBV_EVENT_PORT_ERR (10), port 1' "$events" && grep -q 'mlx5_0: the hub has gone' "$events"; then
  echo "ok: a hub that is killed"
else
  echo "FAILED: a hub that is killed: $(cat "$events")"; failed=1
fi
kill $!; wait $! 2>/dev/null
rm -f "$events"
# A listener that lets one request wait, and twenty clients.
out=$("${nobody[@]}" timeout 150 "$softhca" run -- "$cm_backlog" 2>&1)
if [ "$out" = "20 established" ]; then echo "ok: a small backlog"; else echo "FAILED: a small backlog: $out"; failed=1; fi
# Polled in the extended way.
out=$("${nobody[@]}" timeout 60 "$softhca" run -- "$extended_cq" 2>&1)
if [ "$out" = "at once" ]; then echo "ok: an extended CQ"; else echo "FAILED: an extended CQ: $out"; failed=1; fi
exit $failed
