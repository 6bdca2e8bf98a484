#!/bin/bash
# softhca perf between two guests: the first listens, the second measures. Each uses softhca's driver on its function,
# through VFIO. Repeated for each kind of HCA that they have.
. /share/vfio_lib.sh
# perf_test FUNCTION WORD...: runs one end of a measurement; the other guest runs the other end.
perf_test() {
  local function=$1
  shift
  if [ "$GUEST" -eq 1 ]; then
    run program softhca perf "$@" --at "$function" --listen
  else
    run program softhca perf "$@" --at "$function" guest1
  fi
}
found=0
for kind in 15b3:1013 15b3:1015 10ee:1011; do
  function=$(lspci -Dn -d $kind | cut -d' ' -f1)
  [ -n "$function" ] || continue
  found=$((found + 1))
  echo "== $kind"
  give_to_vfio "$function"
  for test in send write read; do
    perf_test "$function" $test -n 100
  done
  perf_test "$function" write_lat -a -n 20
  perf_test "$function" send -c UD -n 100
  [ $kind = 15b3:1015 ] || perf_test "$function" atomic -n 100
done
[ $found -eq 3 ] || fail "$found kinds of HCA, not three"
