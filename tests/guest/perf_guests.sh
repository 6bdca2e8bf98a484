#!/bin/bash
# softhca perf between two guests: the first listens, the second measures, each with our driver on its function, through VFIO.
. /share/vfio_lib.sh
function=$(lspci -Dn -d 10ee:1011 | cut -d' ' -f1)
[ -n "$function" ] || function=$(lspci -Dn -d 15b3: | cut -d' ' -f1)
[ -n "$function" ] || fail "no HCA"
give_to_vfio "$function"
# perf_test WORD...: both ends of one measurement.
perf_test() {
  if [ "$GUEST" -eq 1 ]; then
    run program softhca perf "$@" --at "$function" --listen
  else
    run program softhca perf "$@" --at "$function" "$PEER"
  fi
}
PEER=guest1
for test in send write read; do
  perf_test $test -n 100
done
perf_test write_lat -a -n 20
perf_test send -c UD -n 100
lspci -Dn -d 15b3:1015 | grep -q . || perf_test atomic -n 100
exit 0
