#!/bin/bash
# Two guests of one server, each with two ConnectX and an SDXI function. Guest 1 does to the first ConnectX, and to the
# SDXI function, all that a hostile guest can, SECONDS for each attack; guest 2 uses all of its own by perftest,
# pingpong and softhca sdxi copy the while, and no round fails. Afterwards the ConnectX that was attacked serves its own
# driver again. Runs with --guests 2 --iommu; in /share each tells the other how far it is.
#
# neighbours.sh SECONDS [ATTACK...]: those, or all of connectx_guest and sdxi_guest in an order that SEED decides
. /share/sdxi_lib.sh
seconds=${1:-2}
shift
sdxi=$(sdxi_functions)
give_to_vfio "$sdxi"

if [ "$GUEST" = 2 ]; then
  two_hosts
  head -c 1000001 /dev/urandom >/root/from
  rounds=0
  until [ -e /share/attacked ] && [ "$rounds" -gt 0 ]; do
    perftest ib_write_bw -s 65536 -n 100 >/dev/null
    perftest ib_send_lat -s 64 -n 100 >/dev/null
    perftest ib_read_bw -s 65536 -n 50 >/dev/null
    pingpong ibv_rc_pingpong -c -n 50 >/dev/null
    program softhca sdxi copy --pci "$sdxi" --verify --quiet /root/from /root/to && cmp /root/from /root/to ||
      fail "softhca sdxi copy"
    rounds=$((rounds + 1))
    echo "round $rounds after $SECONDS s"
    touch /share/works
  done
  clean_dmesg
  touch /share/done
  wait_for 60 "last look at the server" test -e /share/measured
  exit 0
fi

# The other guest has the addresses of lib.sh.
ADDRESS_a=192.168.20.1 ADDRESS_b=192.168.20.2
expect_functions 2
read -r victim second <<<"$(mlx5_functions | xargs)"
other=$(netdev_of "$second")
ip link set "$other" up
take_from_vfio "$victim"
give_to_vfio "$victim"
wait_for 300 "round of the other guest" test -e /share/works
export SEED=${SEED:-1}
echo "SEED=$SEED"
[ $# -gt 0 ] ||
  set -- $({ program connectx_guest attacks; printf 'sdxi_%s\n' hostile crowd; } | shuf --random-source=<(yes "$SEED"))
for name in "$@"; do
  echo "$name" >/share/attack
  case $name in
  sdxi_*) program sdxi_guest "${name#sdxi_}" "$sdxi" "$seconds" || fail "the attack $name" ;;
  *) program connectx_guest attack "$name" "$victim" "$other" "$seconds" || fail "the attack $name" ;;
  esac
done
run program connectx_guest check "$victim"
touch /share/attacked

take_from_vfio "$victim"
echo "$victim" >/sys/bus/pci/drivers_probe
two_hosts
run on a ping -q -c 3 -i 0.2 -W 5 "$ADDRESS_b"
pingpong ibv_rc_pingpong -c -n 50
