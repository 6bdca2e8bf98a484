#!/bin/bash
# All of rdma-core's own tests (pyverbs): `make pyverbs TESTS=FOLDER`, which puts the package `tests` of rdma-core beside
# this script. pyverbs.sh SUITE: the Debian of this pyverbs. pyverbs_failing.txt lists the tests that fail,
# pyverbs_skipped.txt and docs/pyverbs.md the reasons for skips.
. "$(dirname "$0")/lib.sh"
here=$(cd "$(dirname "$0")" && pwd)
suite=${1:-trixie}
# The expected numbers of passed and skipped tests.
case $suite in
trixie) want_ok=188 want_skip=132 ;;
sid) want_ok=230 want_skip=158 ;;
esac
one_host_here
run modprobe -a rdma_ucm
# Some tests want pages of 2 MiB.
echo 32 >/proc/sys/vm/nr_hugepages
log=/tmp/pyverbs.log
export PYTHONDONTWRITEBYTECODE=1
python3 "$here/rdma_core_tests.py" "$here" --dev "$IB_here" --limit 300 | grep -v '^START ' | tee $log
for verdict in ok skip FAIL ERROR CRASH HANG; do
  echo "$verdict: $(grep -c "^$verdict " $log)"
done
linux=$(uname -r | grep -oE '^[0-9]+\.[0-9]+')
new=$(grep -E '^(FAIL|ERROR|CRASH|HANG) ' $log | cut -d ' ' -f 2 | grep -vxFf <(sed -nE "s/^$suite(@$linux)? //p" "$here/pyverbs_failing.txt"))
[ -z "$new" ] || fail "tests of rdma-core that are not known to fail: $new"
new=$(sed -n 's/^skip tests[^ ]* //p' $log | awk -v known="$here/pyverbs_skipped.txt" '
  BEGIN { while ((getline line <known) > 0) if (line !~ /^#/) begins[line] }
  { for (line in begins) if (index($0, line) == 1) next; print }' | sort -u)
[ -z "$new" ] || fail "tests of rdma-core are skipped for other reasons than those known: $new"
ok=$(grep -c '^ok ' $log) skipped=$(grep -c '^skip ' $log)
[ "$ok" -ge "$want_ok" ] || fail "$ok tests are ok, fewer than $want_ok"
[ "$skipped" -le "$want_skip" ] || fail "$skipped tests are skipped, more than $want_skip"
# Some tests of 65.0 let CQs overrun, to see the event.
kernel_log() { dmesg -x | grep -v 'CQ error on CQN 0x[0-9a-f]*, syndrome 0x1$'; }
clean_dmesg
