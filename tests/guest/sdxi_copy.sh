#!/bin/bash
# softhca sdxi copy --pci in a guest: the unchanged driver of src/driver/sdxi on a function of the guest's bus.
. /share/sdxi_lib.sh
set -- $(sdxi_functions)
[ $# -eq 2 ] || fail "not two SDXI functions"

# If it cannot work, the error must say what to do.
take_from_vfio "$1"
program softhca sdxi copy --pci "$1" /etc/passwd /root/copy 2> /tmp/words && fail "copied without vfio-pci"
grep -q 'driver_override' /tmp/words || fail "no advice: $(cat /tmp/words)"
give_to_vfio "$1"
give_to_vfio "$2"

for size in 0 1 4095 1048577 20000000; do
  head -c "$size" /dev/urandom > /root/from
  for mode in '' --interrupts; do
    run program softhca sdxi copy --pci "$1" --verify $mode /root/from /root/to
    cmp /root/from /root/to || fail "$size bytes $mode differ"
  done
done
# Both functions concurrently.
exec_program softhca sdxi copy --pci "$2" /root/from /root/to2 &
run program softhca sdxi copy --pci "$1" --block-size 64K --blocks 16 --interrupts /root/from /root/to
wait $! || fail "the other function's copy"
cmp /root/from /root/to && cmp /root/from /root/to2 || fail "copies at the same time differ"

# After Ctrl-C nothing is left behind; after a kill the function serves the next program.
exec_program softhca sdxi copy --pci "$1" --quiet /dev/zero /root/endless &
pid=$!
wait_for 60 "copy that has begun" test -s "/root/endless.$pid.part"
kill -INT $pid
wait $pid
[ $? -eq 130 ] || fail "exit status after Ctrl-C"
ls /root/endless* 2>/dev/null && fail "the interrupted copy left a file"
exec_program softhca sdxi copy --pci "$1" --quiet /dev/zero /root/killed &
pid=$!
wait_for 60 "copy that has begun" test -s "/root/killed.$pid.part"
kill -KILL $pid
wait $pid
rm /root/killed.*
run program softhca sdxi copy --pci "$1" --verify /root/from /root/to
cmp /root/from /root/to || fail "the copy after a killed one differs"

run program sdxi_guest producers "$1"
dmesg | grep -E 'DMAR:.*fault|WARNING:|BUG:' && fail "the kernel log"
exit 0
