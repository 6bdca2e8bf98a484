#!/bin/bash
# A host with an RDMA device that its kernel drives. `softhca run` shows a program only softhca's device, or both on
# request, and both work.
. "$(dirname "$0")/vfio_lib.sh"
two_hosts
# softhca was built for another Debian than this guest's; of the libraries that it needs, only ISA-L is missing.
mkdir -p /tmp/isal
cp $PROGRAMS/lib/libisal.so* /tmp/isal
export LD_LIBRARY_PATH=/tmp/isal SOFTHCA_LIBRARY=$PROGRAMS/libsofthca.so
words='. /share/wait.sh; fail() { echo "FAIL: $*" >&2; exit 1; }'
on_a() { on a bash -c "$(declare -p PROGRAMS); $(declare -f exec_program); exec_program softhca \"\$@\"" on_a "$@"; }
devices() { on_a run "$@" -- ibv_devices | awk 'NR > 2 { print $1 }' | sort | tr '\n' ' '; }

alone=$(devices)
[ "$alone" = "mlx5_0 " ] || fail "without --host-devices: $alone"
both=$(devices --host-devices)
echo "with --host-devices: $both"
echo "$both" | grep -qw "$IB_a" || fail "the host's $IB_a is not among $both"
[ "$(wc -w <<<"$both")" = 2 ] || fail "not two devices: $both"
ours=$(tr ' ' '\n' <<<"$both" | grep -vw "$IB_a" | grep .)

# Both devices in one run, each with its own driver: both ends of ib_write_bw.
for device in "$IB_a" "$ours"; do
  on_a run --host-devices -- ibv_devinfo -d "$device" -v >/tmp/devinfo || fail "ibv_devinfo -d $device"
  grep -q PORT_ACTIVE /tmp/devinfo || fail "$device is not active"
  index=3
  [ "$device" != "$IB_a" ] || index=$GID_a
  echo "+ ib_write_bw on $device"
  on_a run --host-devices -- bash -c "$words
    timeout 300 ib_write_bw -F -d $device -x $index -s 4096 -n 200 >/tmp/server &
    wait_for 60 server listens \$! 18515
    timeout 250 ib_write_bw -F -d $device -x $index -s 4096 -n 200 localhost && wait \$!" || fail "ib_write_bw on $device"
done
# rdma_cm connects only by softhca's device.
rm -f /tmp/go
on_a run --host-devices --control /tmp/control -- bash -c "$words
  rping -s -C 5 &
  wait_for 60 'word that it listens' test -e /tmp/go
  rping -c -a 127.0.0.1 -C 5 && wait \$!" &
process=$!
listening() { gone $process || on_a inspect /tmp/control | grep -q 'state: listening'; }
wait_for 60 "rping that listens" listening
touch /tmp/go
wait $process || fail rping
clean_dmesg
