#!/bin/bash
# DPDK's mlx5 driver: testpmd on two devices, with Linux on a third and a fourth. Hosts a and b are each on a switch with
# one port of testpmd, and reach each other only through testpmd. `make dpdk`. dpdk.sh [DEVARGS...]: by default everything
# runs twice: with queues and flows that DPDK makes by DevX (dv_flow_en=1), and with those of libibverbs (dv_flow_en=0).
. "$(dirname "$0")/lib.sh"
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || set -- dv_flow_en=1 dv_flow_en=0
NOBODY=192.168.10.77  # an address that only testpmd answers for
log=/tmp/testpmd.log

# Words to testpmd -------------------------------------------------------------------------------

marked() { [ "$(grep -c 'FDIR matched *ID=0x2a' $log)" -ge "$1" ]; }
# wait_for discards what its condition prints, so the log of a failure goes elsewhere.
exec 4>&2
trap '[ $? = 0 ] || cat $log >&4' EXIT
prompts() { grep -o 'testpmd> ' $log | wc -l; }
# prompted COUNT: testpmd has prompted more often than that, or has ended.
prompted() { gone $testpmd || [ "$(prompts)" -gt "$1" ]; }
# ask COMMAND: waits for the next prompt, and sets `answer`.
ask() {
  local before=$(prompts) from=$(stat -c %s $log)
  echo "$*" >&3
  wait_for 60 "answer of testpmd to: $*" prompted "$before"
  [ "$(prompts)" -gt "$before" ] || fail "testpmd has ended at: $*"
  answer=$(tail -c +$((from + 1)) $log)
  ! grep -qE 'Caught|Bad arguments|Command not found' <<<"$answer" || fail "testpmd refuses: $*"
}
begin() {
  rm -f /tmp/testpmd.in $log
  mkfifo /tmp/testpmd.in
  # Standard output line by line, as on a terminal.
  stdbuf -oL dpdk-testpmd -l 0-1 --in-memory -m 320 --no-telemetry --log-level=pmd.net.mlx5:${LOG:-info} \
    --log-level=pmd.common.mlx5:${LOG:-info} -a "$port0,$1" -a "$port1,$1" -- -i --nb-cores=1 --rxq=2 --txq=2 \
    --rxd=512 --txd=512 --total-num-mbufs=6000 </tmp/testpmd.in >$log 2>&1 4>&- &
  testpmd=$!
  exec 3>/tmp/testpmd.in
  wait_for 120 "prompt of testpmd" prompted 0
  [ "$(prompts)" -gt 0 ] || fail "testpmd has ended before its first prompt"
}
end() {
  echo quit >&3
  exec 3>&-
  wait $testpmd || fail "testpmd: exit status $?"
}
forward() {
  ask "set fwd $*"
  ask start
}
# xstat NAME: the value in the last answer.
xstat() { sed -n "s/^$1: //p" <<<"$answer"; }
# got PORT PACKETS: PACKETS have arrived.
got() {
  ask show port xstats "$1"
  [ "$(xstat rx_good_packets)" -ge "$2" ]
}
# rule PORT ACTION...: makes a flow for UDP to the port, and sets `created` to its number.
rule() {
  ask "flow create 0 ingress pattern eth / ipv4 / udp dst is $1 / end actions ${*:2} / end"
  created=$(grep -oE 'Flow rule #[0-9]+ created' <<<"$answer" | grep -oE '[0-9]+')
  [ -n "$created" ] || fail "no flow rule"
}
expect() { [ "$1" = "$2" ] || fail "$2 $3, and not $1"; }

# The work of a and b ----------------------------------------------------------------------------------

transfer() {
  local server
  rm -f /tmp/transfer.port
  ip netns exec b python3 "$here/transfer.py" serve "$1" "$2" $ADDRESS_b /tmp/transfer.port &
  server=$!
  wait_for 60 "receiver on host b" test -s /tmp/transfer.port
  run on a timeout 240 python3 "$here/transfer.py" send "$1" "$2" "$3" $ADDRESS_b "$(cat /tmp/transfer.port)"
  wait $server || fail "the receiver"
}
# frames HOST: frames that have reached the host.
frames() { on "$1" ethtool -S "$(eval "echo \$IF_$1")" | sed -n 's/^ *rx_packets_phy: //p'; }
# datagrams COUNT PORT: sends to an address that no host has.
datagrams() { on a python3 "$here/dpdk_peer.py" send $NOBODY "$2" "$1" || fail "sending"; }

expect_functions 4
functions=($(mlx5_functions))
port0=${functions[1]} port1=${functions[2]}
_host a "${functions[0]}" 1500
_host b "${functions[3]}" 1500
for host in a b; do
  eval "name=\$IF_$host"
  # Only the test's own frames.
  on $host sysctl -qw "net.ipv6.conf.$name.disable_ipv6=1"
done
echo 200 >/proc/sys/vm/nr_hugepages
run modprobe -a ib_uverbs

for arguments; do
  echo "== $arguments"
  begin "$arguments"
  on a ip neigh flush nud all
  ask show port info 0
  echo "$answer" | grep -E 'MAC|Driver|Link|queues'

  echo "-- io: what comes at one port leaves at the other"
  forward io
  run on a ping -q -c 5 -i 0.2 $ADDRESS_b
  transfer tcp 4 262144
  transfer udp 1 60000
  ask stop

  echo "-- icmpecho: testpmd answers for everybody"
  forward icmpecho
  run on a ping -q -c 5 -i 0.2 $NOBODY
  ask stop

  echo "-- 5tswap: UDP comes back"
  ask set portlist 0  # frames leave by the port that they arrived at
  forward 5tswap
  mac=$(cat "/sys/class/net/$(netdev_of "$port0")/address")
  run on a ip neigh replace $NOBODY lladdr "$mac" dev "$IF_a"
  run on a python3 "$here/dpdk_peer.py" echo $NOBODY 5000 200
  ask stop
  ask set portlist 0,1

  echo "-- flow rules"
  forward rxonly
  rule 5000 queue index 1
  rule 5001 count / queue index 0
  counted=$created
  rule 5002 drop
  rule 5003 mark id 0x2a / queue index 0
  on a ip neigh flush all  # removes b's entry, which a would refresh by ARP; the one of the test is permanent
  ask clear port stats 0
  datagrams 50 5000
  datagrams 30 5001
  datagrams 20 5002
  wait_for 60 "all packets" got 0 80
  ask show port xstats 0
  grep -E '^rx_q[01]_packets' <<<"$answer"
  expect 30 "$(xstat rx_q0_packets)" "packets of queue 0"
  expect 50 "$(xstat rx_q1_packets)" "packets of queue 1"
  ask flow query 0 "$counted" count
  grep -qE '^ *hits: 30$' <<<"$answer" || fail "the flow's counter"
  ask set verbose 1
  datagrams 3 5003
  wait_for 60 "marked packets" marked 3
  ask set verbose 0
  expect 3 "$(grep -c 'FDIR matched *ID=0x2a' $log)" "marked packets"
  ask flow flush 0
  ask stop

  echo "-- csum: checksums, and segments of 800 bytes, by the device"
  ask port stop all
  for port in 0 1; do
    for header in ip udp tcp; do ask csum set $header hw $port; done
    ask csum mac-swap off $port
    ask tso set 800 $port
  done
  ask port start all
  forward csum
  before=$(frames b)
  transfer tcp 2 262144
  [ $(($(frames b) - before)) -ge $((2 * 262144 / 800)) ] || fail "$(($(frames b) - before)) frames: no segments of 800 bytes"
  transfer udp 1 60000
  ask stop
  end
done
clean_dmesg
