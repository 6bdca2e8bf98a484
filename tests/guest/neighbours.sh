#!/bin/bash
# Two guests of one server, each with two ConnectX and an SDXI function. Guest 1 attacks the first ConnectX and the SDXI
# function in every way, each attack with TIMES times its usual deeds. Meanwhile guest 2 uses all its functions by perftest,
# pingpong and softhca sdxi copy, and no round may fail. Afterwards the attacked ConnectX must work with its own driver
# again. Runs with --guests 2 --iommu; the guests synchronize by files in /share.
#
# neighbours.sh TIMES [ATTACK...]: these attacks, or all of connectx_guest and sdxi_guest, in an order that SEED decides
. /share/sdxi_lib.sh
times=${1:-1}
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
    echo "round $rounds"
    touch /share/works
  done
  clean_dmesg
  exit 0
fi

# The addresses of lib.sh belong to the other guest.
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
  sdxi_hostile) program sdxi_guest hostile "$sdxi" $((times * 5000)) || fail "the attack $name" ;;
  sdxi_crowd) program sdxi_guest crowd "$sdxi" $((times * 100)) || fail "the attack $name" ;;
  *) program connectx_guest attack "$name" "$victim" "$other" "$times" || fail "the attack $name" ;;
  esac
done
run program connectx_guest check "$victim"
touch /share/attacked

take_from_vfio "$victim"
echo "$victim" >/sys/bus/pci/drivers_probe
two_hosts
all_pings a -c 5 -i 0.1 -W 5 "$ADDRESS_b"
pingpong ibv_rc_pingpong -c -n 50
