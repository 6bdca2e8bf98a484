#!/bin/bash
# Programs that share the IP address of their machine: machines_shared.sh SOFTHCA PROGRAMS. On each of two machines several
# programs have --address if:NAME at the same time. Programs without it reach each of them by the network of the machine.
. "$(dirname "$0")/lib.sh" "$@"
. "$here/two_machines.sh"

# A program of machine 1 on the same network, with an address of that network only.
c="${nobody[*]} env XDG_RUNTIME_DIR=$folder/1 timeout 100 $softhca run"
ipv4="-g 3" ipv6="-g 5"

# at_once COUNT REGEX PROGRAM...: COUNT servers at one address and as many clients at another run at the same time. Each prints
# a line that matches.
at_once() {
  local count=$1 expected=$2 i port ports=() running=() status=0
  shift 2
  for ((i = 0; i < count; ++i)); do
    port=$((18600 + i))
    ports+=("$port")
    $a --control $control.$port -- "$@" -p $port >"$folder/server$i" 2>&1 & running+=($!)
  done
  for port in "${ports[@]}"; do control=$control.$port eventually ready "$port"; done
  for ((i = 0; i < count; ++i)); do
    $b -- "$@" -p $((18600 + i)) 10.77.0.1 >"$folder/client$i" 2>&1 & running+=($!)
  done
  for i in "${running[@]}"; do wait "$i" || status=1; done
  for ((i = 0; i < count; ++i)); do
    for end in server client; do has "$folder/$end$i" "$expected" || { status=1; cat "$folder/$end$i"; }; done
  done
  return $status
}
# A program listens by TCP, or by rdma_cm (-R of perftest).
ready() { listens "$1" || cm_listens "$1"; }
for count in 2 4; do
  test_that "$count pairs of rc_pingpong" at_once $count "300 iters in" ibv_rc_pingpong $ipv4 -c -n 300
  test_that "$count pairs of ud_pingpong" at_once $count "300 iters in" ibv_ud_pingpong $ipv4 -c -n 300 -s 1024
  test_that "$count pairs of write_bw" at_once $count "^ 65536 +400 " ib_write_bw -F -x 3 -q 4 -n 100
done
test_that "2 pairs of rc_pingpong by IPv6" at_once 2 "300 iters in" ibv_rc_pingpong $ipv6 -c -n 300
test_that "4 pairs with 64 connections" at_once 4 "^ 4096 +6400 " ib_write_bw -F -x 3 -q 64 -n 100 -s 4096
test_that "2 pairs of read_bw by rdma_cm" at_once 2 "^ 65536 +100 " ib_read_bw -F -x 3 -n 100 -R

# Members of a group: two at the address of the other machine, one at that of the sender, and one with an address of the
# network of the machine. Each gets the ten messages.
multicast() {
  local member members=() status=0
  for member in "1 $b" "2 $b" "3 $a" "4 $c"; do
    ${member#* } -- stdbuf -oL mckey -m 239.77.0.2 -C 10 >"$folder/member${member%% *}" 2>&1 & members+=($!)
    eventually holds_or_ended $! "has $folder/member${member%% *} 'joined dgid'"
  done
  $a -- mckey -m 239.77.0.2 -s -C 10 || status=1
  for member in "${members[@]}"; do wait "$member" || status=1; done
  cat "$folder"/member?
  return $status
}
test_that "each member of a group gets a copy" says 5 'data transfers complete' multicast

# serve PORT...: an rping server of machine 1 on each port, for several clients one after the other. `stop_servers` ends them.
servers=()
serve() {
  local port
  for port; do
    $a --control $control.$port -- bash -c "echo \$\$ >$folder/pid.$port; exec rping -s -P -a 10.77.0.1 -p $port" \
      >"$folder/rping.$port" 2>&1 & servers+=($!)
    control=$control.$port eventually cm_listens "$port"
  done
}
stop_servers() {
  local port
  for port; do kill -9 "$(cat "$folder/pid.$port")" 2>/dev/null; done
  wait "${servers[@]}" 2>/dev/null
  servers=()
}
ping_from() { says 3 'ping data: rdma-ping' $1 -- "$rping" -c -v -a 10.77.0.1 -p "$2" -C 3; }

serve 7301 7302
for port in 7301 7302; do
  test_that "rping from the other machine to $port" ping_from "$b" $port
  test_that "rping from a program without the address to $port" ping_from "$c" $port
  test_that "rping from a program with the address to $port" ping_from "$a" $port
done
again() { says 1 'Address already in use' bash -c "! $a -- rping -s -a 10.77.0.1 -p $1"; }
test_that "a port number is one program's" again 7301
shows_block() { says 1 'block: 0x' "$softhca" inspect $control.7301 mlx5_0; }
test_that "inspect shows the block" shows_block

# A server is killed: its clients on the machine notice it, although the other server has the address. The other goes on.
notices() {
  $1 -- "$rping" -c -a 10.77.0.1 -p 7301 -C 100000000 >"$folder/left" 2>&1 & local client=$!
  control=$control.7301 eventually connected
  kill -9 "$(cat "$folder/pid.7301")"
  wait $client
  has "$folder/left" 'DISCONNECT EVENT|cq completion failed|wait for'
}
connected() { "$softhca" inspect "$control" rdma_cm 2>/dev/null | grep -q 'state: connect'; }
test_that "the end of a server is noticed" notices "$c"
test_that "the other server goes on" ping_from "$b" 7302
test_that "the other server goes on for the machine" ping_from "$c" 7302
serve 7301
test_that "the next server of the number" ping_from "$b" 7301
test_that "the next server of the number, on the machine" ping_from "$c" 7301
stop_servers 7301 7302

# pair FROM COUNT REGEX SERVER...: a server with the address, and a client of the same machine.
pair() {
  local from=$1 count=$2 expected=$3
  shift 3
  test_that "$from $*" says "$count" "$expected" meet "ready 18515" "$a --control $control -- $*" "${!from} -- $* 10.77.0.1"
}
for from in a c; do
  for service in rc uc ud srq; do pair $from 2 "200 iters in" ibv_${service}_pingpong $ipv4 -c -n 200; done
  pair $from 2 "^ 65536 +200 " ib_write_bw -F -x 3 -n 200
  pair $from 2 "^ 65536 +200 " ib_read_bw -F -x 3 -n 200 -R
done
pair a 2 "200 iters in" ibv_rc_pingpong $ipv6 -c -n 200

# A client whose server is killed ends with an error, and a pair that runs meanwhile with none.
goes_on() {
  $a -- bash -c "echo \$\$ >$folder/pid; exec ib_write_bw -x 3 -F -n 5000000 -p 18700" >"$folder/killed" 2>&1 & local killed=$!
  $a -- ibv_rc_pingpong $ipv4 -c -n 20000 -p 18701 >"$folder/server" 2>&1 & local server=$!
  eventually listens 18700 18701
  $b --control $control.b -- ib_write_bw -x 3 -F -n 5000000 -p 18700 10.77.0.1 >"$folder/left" 2>&1 & local left=$!
  $b -- ibv_rc_pingpong $ipv4 -c -n 20000 -p 18701 10.77.0.1 >"$folder/client" 2>&1 & local client=$!
  eventually has_sent
  kill -9 "$(cat "$folder/pid")"
  wait $left && return 1
  wait $killed && return 1
  wait $server && wait $client && has "$folder/client" '20000 iters in' && has "$folder/server" '20000 iters in'
}
has_sent() { "$softhca" inspect $control.b mlx5_0 2>/dev/null | grep -A9 'udp 10.77.0.2' | grep -qE 'sent: [0-9]{4}'; }
test_that "a killed program disturbs no other" goes_on
exit $failed
