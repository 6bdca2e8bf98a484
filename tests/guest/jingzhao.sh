#!/bin/bash
# driver/jingzhao on two JingZhao functions of the guest's bus, through VFIO, with the operations of the tests in one
# process. $1: the kind of link; Ethernet by default. A guest with four has two of each link, Ethernet first.
. /share/vfio_lib.sh
link=${1:-Ethernet}
set -- $(lspci -Dn -d 10ee:1011 | cut -d' ' -f1)
if [ $# -eq 4 ]; then
  [ "$link" = InfiniBand ] && shift 2
  set -- "$1" "$2"
fi
[ $# -eq 2 ] || fail "not two JingZhao functions, nor four"
give_to_vfio "$1"
give_to_vfio "$2"

# Twice: the second run must not depend on the state that the first one leaves.
run program jingzhao_guest "$1" "$2"
program jingzhao_guest "$1" "$2" | grep "over $link" || fail "not over $link"
# The same after a program that is killed in the middle of its work.
exec_program jingzhao_guest "$1" "$2" forever >/tmp/forever.log 2>&1 &
pid=$!
wait_for 60 "WRITEs that flow" says $pid /tmp/forever.log 'WRITEs flow'
kill -KILL $pid || { cat /tmp/forever.log >&2; fail "it has ended by itself"; }
wait $pid
for test in send write read atomic; do
  run program softhca perf $test --at "$1" --at "$2" -n 200
done
run program softhca perf send --at "$1" --at "$2" -n 200 -c UD
run program softhca perf write --at "$1" --at "$2" -n 200 -c UC
dmesg | grep -E 'DMAR:.*fault|WARNING:|BUG:' && fail "the kernel log"
exit 0
