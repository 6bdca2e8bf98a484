#!/bin/bash
# Two guests, each with an RSNIC (host a) and a ConnectX-4 (host b): RDMA, ping and iperf3 between two RSNICs, and between
# an RSNIC and a ConnectX-4, in any order. Guest 1 asks guest 2 to start each server; guest 2 announces in /share that it
# listens.
#
# Runs with --guests 2 --device rsnic --device connectx.
. "$(dirname "$0")/lib.sh"
ADDRESS_a=192.168.10.${GUEST}1 ADDRESS_b=192.168.10.${GUEST}2
expect_functions 2
[ "$(lspci -n -d 15b3:1015 | wc -l)" -eq 1 ] || fail "no RSNIC"
[ "$(lspci -n -d 15b3:1013 | wc -l)" -eq 1 ] || fail "no ConnectX-4"
two_hosts
# The receiver's buffer holds a whole UDP stream, so that any loss is on the way.
sysctl -qw net.core.rmem_max=8000000 net.core.wmem_max=8000000 || fail "the largest buffers of sockets"
on a ibv_devinfo -d "$IB_a" | grep -q 'vendor_part_id:.*4117' || fail "host a is no RSNIC"
for host in a b; do
  eval "name=\$IF_$host"
  run ip -n "$host" addr add "fd00::$GUEST$host/64" dev "$name" nodad
done

rounds=0
# between HOST1 HOST2 PORT PROGRAM OPTION...: between HOST1 of guest 1 and HOST2 of guest 2, whose address is $address.
# @DEVICE and @GID stand for the values of either side.
between() {
  local server=$2 port=$3 host=$1 process words=() word
  shift 3
  rounds=$((rounds + 1))
  [ "$GUEST" = 1 ] || host=$server
  for word; do
    case $word in
    @DEVICE) eval "word=\$IB_$host" ;;
    @GID) eval "word=\$GID_$host" ;;
    esac
    words+=("$word")
  done
  if [ "$GUEST" = 2 ]; then
    [ "$1" != iperf3 ] || words=(iperf3 -s -1 --json)
    ip netns exec "$host" "${words[@]}" >/tmp/server.log 2>&1 &
    process=$!
    wait_for 60 "$1 that listens" listens "$process" "$port"
    touch "/share/listens.$BOOT.$rounds"
    wait "$process" || { cat /tmp/server.log >&2; fail "the server's $*: exit status $?"; }
  else
    wait_for 120 "server of $*" test -e "/share/listens.$BOOT.$rounds"
    case $1 in
    iperf3) iperf "$host" "${words[@]:1}" ;;
    *) run on "$host" timeout 500 "${words[@]}" "$address" ;;
    esac
  fi
}

# iperf HOST OPTION...: fails if a datagram is lost. iperf3 ends with status 0 however much of a UDP stream is lost.
iperf() {
  local host=$1
  shift
  echo "+ iperf3 $*"
  on "$host" timeout 500 iperf3 --json "$@" >/tmp/iperf.json || { cat /tmp/iperf.json; fail "iperf3 $*: exit status $?"; }
  python3 -IS - "$@" <<'END' || fail "iperf3 $*"
import json
import sys

end = json.load(open("/tmp/iperf.json"))["end"]
if "-u" in sys.argv:
    total = end["sum"]
    print(f"{total['packets']} datagrams, {total['lost_percent']} % lost")
    sys.exit(total["packets"] == 0 or total["lost_packets"] != 0)
# The server stops reading when it is notified of the end, which may come before the last bytes.
sent, received = end["sum_sent"]["bytes"], end["sum_received"]["bytes"]
print(f"{received} of {sent} bytes")
sys.exit(received < sent // 2)
END
}

for hosts in "a a" "a b" "b a"; do
  echo "== $hosts (a: RSNIC, b: ConnectX-4)"
  server=${hosts#* }
  [ "$server" = a ] && address=192.168.10.21 || address=192.168.10.22
  for program in ib_read_bw ib_write_bw ib_send_bw; do
    between $hosts 18515 $program -d @DEVICE -x @GID -s 65536 -n 100 -F
  done
  between $hosts 18515 ibv_rc_pingpong -d @DEVICE -g @GID -c -n 100
  if [ "$GUEST" = 1 ]; then
    run on "${hosts% *}" ping -q -c 3 -i 0.2 "$address"
    run on "${hosts% *}" ping -q -c 3 -i 0.2 "fd00::2$server"
  fi
  # TCP and UDP, over IPv4 and IPv6 (11.5).
  between $hosts 5201 iperf3 -c "$address" -n 16M
  between $hosts 5201 iperf3 -c "fd00::2$server" -n 4M
  between $hosts 5201 iperf3 -c "$address" -u -w 4M -b 20M -n 1M
  between $hosts 5201 iperf3 -c "fd00::2$server" -u -w 4M -b 20M -n 1M
done
clean_dmesg
