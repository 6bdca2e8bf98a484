#!/bin/bash
# The guest's part of host_network, and the list of programs that both ends go through: which end is the server, the program,
# its options. All of it twice: with the card's own RoCE, then with rdma_rxe, which offers 128 outstanding READs, while a card has 16.
list() {
  local rounds
  for rounds in 1 2; do
    for side in host guest; do
      echo "$side ib_write_bw -F -n 200"
      echo "$side ib_read_bw -F -n 200 -o 16"
      echo "$side ib_send_bw -F -n 200"
      echo "$side ib_send_bw -F -c UD -n 200 -s 1024"
      echo "$side ib_atomic_bw -F -n 100 -o 16"
    done
  done
}
if [ "$1" = list ]; then
  list
  exit
fi
. "$(dirname "$0")/lib.sh"
one_host
function=$(mlx5_functions) host=198.19.1.254

own_roce() {
  wait_for 60 "the host" ping -q -c 1 -W 1 $host
  local IB_here=$IB ADDRESS_here=198.19.1.1
  device=$IB index=$(gid_index here)
}
rxe() {
  run devlink dev param set "pci/$function" name enable_roce value false cmode driverinit
  run devlink dev reload "pci/$function"
  wait_for 60 "netdev after the reload" sh -c "ls /sys/bus/pci/devices/$function/net/*"
  udev-settle
  local netdev
  netdev=$(netdev_of "$function")
  ip addr replace 198.19.1.1/24 dev "$netdev"
  run ip link set "$netdev" up
  wait_for 60 "the host" ping -q -c 1 -W 1 $host
  run modprobe rdma_rxe
  run rdma link add rxe0 type rxe netdev "$netdev"
  udev-settle
  device=rxe0 index=1
  wait_for 60 "a GID of rxe0" grep -q ffff:c613:0101 /sys/class/infiniband/rxe0/ports/1/gids/1
}

run python3 -c "
import hashlib, urllib.request
got = urllib.request.urlopen('http://$host:8000/blob').read()
open('/tmp/sum', 'w').write(hashlib.sha256(got).hexdigest() + ' ' + str(len(got)))"
[ "$(cat /tmp/sum)" = "$(sha256sum </share/blob | cut -d' ' -f1) 10000000" ] || fail "another file came by TCP"

own_roce
number=0 half=$(($(list | wc -l) / 2))
while read -r side program options; do
  number=$((number + 1))
  [ $number -eq $((half + 1)) ] && rxe
  line=("$program" $options -d "$device" -x "$index")
  if [ "$side" = host ]; then
    wait_for 60 "the server $program of the host" test -e /share/$number.up
    timeout 240 "${line[@]}" $host >/tmp/out.log 2>&1 || fail "the client $program ($number) failed: $(cat /tmp/out.log)"
  else
    timeout 240 "${line[@]}" >/tmp/out.log 2>&1 &
    process=$!
    wait_for 60 "the server $program" listens $process 18515
    touch /share/$number.up
    wait $process || fail "the server $program ($number) failed: $(cat /tmp/out.log)"
  fi
  echo "$number $side $device $program $options: passed"
done < <(list)
