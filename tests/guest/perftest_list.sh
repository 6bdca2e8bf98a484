# The runs of perftest but for those of raw Ethernet: sourced by perftest_all.sh, and by tests/door/four_machines.sh. Each line is
# `one FUNCTION PROGRAM OPTION...`. The sourcing script defines `one` and the functions:
# - `perftest`: a server and its client, which exchange their addresses by TCP;
# - `cm_perftest`: the same with -R, by the connection manager;
# - `group_perftest`: the same as `perftest`, with addresses of IPv6, since the group is one of IPv6.
# It may set `datagram`, the longest message of UD: that is the path MTU, 4096 by default.
#
# Not tested, since perftest itself refuses it: READs and atomics of UC and UD, RDMA WRITE by UD, events of
# WRITEs, inline data of READs.
datagram=${datagram:-4096}
at_most_2000=$((datagram < 2000 ? datagram : 2000))
services_of() {
  case $1 in
  ib_send_*) echo RC UC UD XRC DC ;;
  ib_write_*) echo RC UC XRC DC ;;
  *) echo RC XRC DC ;;
  esac
}
for verb in send write read atomic; do
  for service in $(services_of ib_${verb}_bw); do
    sized="-s 20000"
    all=-a
    [ $service != UD ] || sized="-s $datagram"
    [ $verb != atomic ] || sized="" all=""
    one perftest ib_${verb}_bw -c $service $all -n 10
    one perftest ib_${verb}_lat -c $service $all -n 10
    one perftest ib_${verb}_bw -c $service $sized -q 16 -n 20
    one perftest ib_${verb}_bw -c $service $sized -b -n 100
    if [ $verb != write ]; then
      one perftest ib_${verb}_bw -c $service $sized -e -n 100
      one perftest ib_${verb}_lat -c $service -e -n 20
    fi
    one perftest ib_${verb}_bw -c $service $sized -q 4 --mr_per_qp -n 20
    case $verb in send | write)
      one perftest ib_${verb}_bw -c $service -s 64 -I 64 -n 100
      one perftest ib_${verb}_lat -c $service -s 64 -I 64 -n 100
      ;;
    esac
    if [ $service != UC ]; then
      one perftest ib_${verb}_bw -c $service $sized --odp -n 50
      one perftest ib_${verb}_lat -c $service --odp -n 50
    fi
  done
done
one perftest ib_atomic_bw -A CMP_AND_SWAP -n 100
one perftest ib_atomic_bw -A FETCH_AND_ADD -q 16 -n 20
one perftest ib_send_bw --use-srq -q 8 -s 20000 -n 50
one perftest ib_send_lat --use-srq -n 50
# Datagrams without a buffer are lost, and no transport retransmits them: so post fewer than the SRQ has.
one perftest ib_send_bw -c UD --use-srq -q 8 -s $at_most_2000 -n 10
one perftest ib_write_bw --write_with_imm -s 20000 -n 50
one perftest ib_write_lat --write_with_imm -n 50
one perftest ib_atomic_lat -A CMP_AND_SWAP -n 100
# Lists of requests with one doorbell, the old way of posting, the null key.
for verb in send write read; do
  one perftest ib_${verb}_bw -s 20000 -l 8 -n 80
  one perftest ib_${verb}_bw -s 20000 --use_old_post_send -n 50
done
one perftest ib_send_bw -s 20000 --recv_post_list=4 -n 80
one perftest ib_write_bw -s 20000 --use-null-mr -n 50
for verb in send write read atomic; do
  one cm_perftest ib_${verb}_bw -n 50
  one cm_perftest ib_${verb}_lat -n 50
done
one cm_perftest ib_send_bw -c UD -s $at_most_2000 -n 50
one cm_perftest ib_send_lat -c UD -n 50
one cm_perftest ib_write_bw -q 4 -s 20000 -n 20
one cm_perftest ib_send_bw -b -s 20000 -n 50
one cm_perftest ib_read_bw -a -n 10
one group_perftest ib_send_bw -c UD -g -s $at_most_2000 -n 50
one group_perftest ib_send_lat -c UD -g -n 50
