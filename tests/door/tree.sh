#!/bin/bash
# The devices as programs see them: sysfs, device files, netlink, GIDs, counters: tree.sh SOFTHCA PROGRAMS
. "$(dirname "$0")/lib.sh" "$@"

test_that "ibv_devinfo -v" says 2 'state:.*PORT_ACTIVE|GID\[ *3\]:.*198.18' run -- ibv_devinfo -v
# The command of iproute2, by NETLINK_RDMA.
run --devices 2 -- sh -c 'rdma dev; rdma link show -j; rdma link show mlx5_1/1; rdma res' >"$folder/rdma" 2>&1
test_that "rdma dev" says 2 '^[01]: mlx5_[01]: node_type ca .*node_guid 0200:00ff:fe00:000[01]' cat "$folder/rdma"
test_that "rdma link -j" says 1 '"ifname":"mlx5_1","port":1,"state":"ACTIVE","physical_state":"LINK_UP"' cat "$folder/rdma"
test_that "rdma link" says 1 '^link mlx5_1/1 state ACTIVE' cat "$folder/rdma"
test_that "rdma res" says 1 'not supported' cat "$folder/rdma"
# docs/run.md, "Several devices": each has a port and an address of its own.
test_that "three devices" prints "3
3" run --devices 3 -- sh -c 'ibv_devices | grep -c mlx5_; ibv_devinfo -v | grep -o "GID\[ *3\].*" | sort -u | wc -l'
# GIDs in sysfs are those of the process that reads; counters are those of all programs of the run.
test_that sysfs says 7 "^([0-9a-f]{4}:){4}0000:ffff:c612:[0-9a-f]{4}\$|^RoCE v2\$|^lo\$|types/200: Invalid argument\$|^409600\$|^0\$|^1\$" \
  run -- bash -c '
  cd /sys/class/infiniband/mlx5_0/ports/1 && cat gids/3 gid_attrs/types/3 gid_attrs/ndevs/3; cat gid_attrs/types/200
  meet "listens 18515" "ibv_rc_pingpong -g 3 -n 200 >$folder/server" "ibv_rc_pingpong -g 3 -n 200 localhost >$folder/client" || exit
  # In units of four bytes: 200 messages of 4096 bytes in each direction, and headers.
  sent=$(cat counters/port_xmit_data); [ "$sent" -ge 409600 ] && [ "$sent" = "$(cat counters/port_rcv_data)" ] && echo 409600
  cat hw_counters/rx_write_requests; python3 -c "import fcntl; print(fcntl.fcntl(open(\"gids/3\"), fcntl.F_GETFD))"'
# Scripts change to directories of sysfs, as ibstatus does, and leave them.
test_that directories prints "mlx5_0
/sys/class/infiniband
4: ACTIVE
/sys/devices/pci5348:00/5348:00:00.0/infiniband/mlx5_0/ports
1: CA
/sys/devices
system
rdma_cm
uverbs0
/dev/infiniband/../null
/dev True" run -- sh -c '
  cd /sys/class/infiniband && echo * && /bin/pwd && cat mlx5_0/ports/1/state
  cd -P mlx5_0/ports && /bin/pwd && (cd .. && cat node_type) && cd -P ../../../../.. && /bin/pwd && ls -d system
  cd /dev/infiniband && ls && ls -la >/dev/null && test -c uverbs0 && stat -c %n /dev/infiniband/../null && python3 -c "import os
os.close(os.open(\"uverbs0\", os.O_RDWR)); os.chdir(\"..\"); print(os.getcwd(), os.path.exists(\"null\"))"'
# GIDs follow an interface whose addresses come and go while the program runs. Each address has two entries (RoCE v1 and v2), and
# each entry gives an event.
has_lines() { [ "$(wc -l <"$2")" -ge "$1" ]; }
follow() {
  local gids=$folder/gids lines=1 change
  ip addr add 198.19.8.1/32 dev lo
  run --address if:lo -- "$programs/follow_gids" 4 >"$gids" &
  for change in "add 198.19.8.2/32" "del 198.19.8.1/32"; do
    eventually has_lines $lines "$gids" || return
    ip addr $change dev lo
    lines=$((lines + 2))
  done
  wait $! && cat "$gids"
}
test_that "GIDs follow an interface" prints "gids 3:198.19.8.1
gids 3:198.19.8.1 5:198.19.8.2
gids 3:198.19.8.1 5:198.19.8.2
gids 5:198.19.8.2
gids 5:198.19.8.2" follow
# `softhca inspect` shows a waiting program, with the objects of its device.
inspect() {
  run --devices 2 --control "$control" -- bash -c '
    ibv_rc_pingpong -d mlx5_1 -g 3 >/dev/null & waits=$!
    eventually holds_or_ended $waits "listens 18515"
    "$softhca" inspect "$control" && "$softhca" inspect --json "$control" mlx5_1 >$folder/json
    "$softhca" inspect "$control" rdma_cm | grep -x " *identifiers_count: 0"
    kill $waits'
  python3 -m json.tool "$folder/json" >/dev/null && echo json
}
test_that inspect says 4 '^  ibv_rc_pingpong\.[0-9]*:$|^    mlx5_1:$|^ *identifiers_count: 0$|^json$' inspect
exit $failed
