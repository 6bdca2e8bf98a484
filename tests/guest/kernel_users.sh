#!/bin/bash
# Users of RDMA in the kernel: NVMe over Fabrics, iSER and NFS, initiator and target on softhca's devices, every byte
# compared.
#
# kernel_users.sh [MIB [USER...]]: the users nvme, iser, iser_pi (iSER with T10-DIF), nfs, or all of these, with MIB of data
# each. With --guests 2, each of one function, guest 1 is the target and guest 2 the initiator, and they synchronize by
# files in /share. In a single guest the first function is both. iser needs the package open-iscsi, nfs nfs-kernel-server.
. "$(dirname "$0")/lib.sh"
here=$(cd "$(dirname "$0")" && pwd)
mib=${1:-8}
shift
[ $# -gt 0 ] || set -- nvme iser iser_pi nfs
GUESTS=${GUESTS:-1} GUEST=${GUEST:-1}
config=/sys/kernel/config
name=iqn.2026-01.org.softhca:disk

is_target() { [ "$GUEST" = 1 ]; }
is_initiator() { [ "$GUEST" = "$GUESTS" ]; }
# `tell WORD`, `hear WORD`: one guest waits until the other has reached a step.
tell() { touch "/share/said.$1"; }
hear() { wait_for 300 "word of the other guest: $1" test -e "/share/said.$1"; }

# An address that only the first function has: its netdev has no other.
if [ "$GUESTS" = 1 ]; then
  expect_functions 2
  IF_here=$(netdev_of "$(mlx5_functions | head -n 1)") IB_here=$(ibdev_of "$(mlx5_functions | head -n 1)")
  ADDRESS_here=192.168.11.1
  run ip addr add $ADDRESS_here/24 dev "$IF_here"
  run ip link set "$IF_here" up
  wait_for 60 "carrier" carrier here
  wait_for 60 "RoCE v2 GID" gid_index here
else
  one_host
  IB_here=$IB
fi
TARGET=192.168.11.1
mountpoint -q $config || run mount -t configfs none $config

# disk_of SECONDS TEXT PATTERN...: waits for a block device in /dev, and sets `disk`.
disk_of() {
  wait_for "$1" "$2" sh -c "ls $3"
  disk=$(ls $3 | head -n 1)
}
random_blocks() { run python3 "$here/blocks.py" "$disk" "$mib" 4 "${WRITES:-100}"; }
# sum_of FILE: checksum of the first MIB. The initiator's, read past its cache, must equal the target's.
sum_of() { head -c $((mib << 20)) "$1" | sha256sum | cut -d ' ' -f 1; }

nvme_target() {
  local nvmet=$config/nvmet
  run modprobe -a nvmet-rdma
  [ -e /dev/ram0 ] || run modprobe brd rd_nr=1 rd_size=65536
  mkdir -p $nvmet/subsystems/softhca/namespaces/1 $nvmet/ports/1
  echo 1 >$nvmet/subsystems/softhca/attr_allow_any_host
  echo -n /dev/ram0 >$nvmet/subsystems/softhca/namespaces/1/device_path
  echo 1 >$nvmet/subsystems/softhca/namespaces/1/enable
  echo ipv4 >$nvmet/ports/1/addr_adrfam
  echo rdma >$nvmet/ports/1/addr_trtype
  echo $TARGET >$nvmet/ports/1/addr_traddr
  echo 4420 >$nvmet/ports/1/addr_trsvcid
  run ln -s $nvmet/subsystems/softhca $nvmet/ports/1/subsystems/softhca
}
nvme_initiator() {
  run modprobe nvme-rdma
  echo "transport=rdma,traddr=$TARGET,trsvcid=4420,nqn=softhca,nr_io_queues=2,queue_size=32" >/dev/nvme-fabrics ||
    fail "connecting to the NVMe target"
  disk_of 60 "NVMe disk" "/dev/nvme*n1"
  random_blocks
  sum_of "$disk" >/share/nvme.sum
  echo 1 >"$(ls -d /sys/class/nvme/nvme*/delete_controller | head -n 1)" || fail "disconnecting"
}
nvme_end() {
  local nvmet=$config/nvmet
  echo 3 >/proc/sys/vm/drop_caches
  [ "$(sum_of /dev/ram0)" = "$(cat /share/nvme.sum)" ] || fail "the NVMe target has other bytes"
  rm $nvmet/ports/1/subsystems/softhca
  echo 0 >$nvmet/subsystems/softhca/namespaces/1/enable
  rmdir $nvmet/ports/1 $nvmet/subsystems/softhca/namespaces/1 $nvmet/subsystems/softhca || fail "taking the target away"
}

iser_target() {
  local core=$config/target/core/rd_mcp_1/disk tpg=$config/target/iscsi/$name/tpgt_1
  run modprobe -a target_core_mod iscsi_target_mod ib_isert
  mkdir -p $core
  echo rd_pages=16384 >$core/control
  echo 1 >$core/enable || fail "enabling the disk"
  [ "$user" != iser_pi ] || echo 1 >$core/attrib/pi_prot_type || fail "a disk with protection"
  mkdir -p "$tpg/lun/lun_0" "$tpg/np/$TARGET:3260"
  run ln -s $core "$tpg/lun/lun_0/disk"
  echo 1 >"$tpg/np/$TARGET:3260/iser" || fail "a portal of iSER"
  for attribute in authentication=0 demo_mode_write_protect=0 generate_node_acls=1 cache_dynamic_acls=1; do
    echo "${attribute#*=}" >"$tpg/attrib/${attribute%=*}"
  done
  [ "$user" != iser_pi ] || echo 1 >"$tpg/attrib/t10_pi" || fail "protection on the wire"
  echo 1 >"$tpg/enable" || fail "enabling the iSCSI target"
}
iser_initiator() {
  local node=(iscsiadm -m node -T $name -p $TARGET:3260)
  if [ "$user" = iser_pi ]; then
    run modprobe -r ib_iser
    run modprobe ib_iser pi_enable=1
  else
    run modprobe ib_iser
  fi
  echo "InitiatorName=$name.initiator" >/etc/iscsi/initiatorname.iscsi
  iscsid || fail "iscsid"
  run "${node[@]}" -I iser -o new
  # A connection with protection first makes thousands of keys.
  run "${node[@]}" -I iser -o update -n 'node.conn[0].timeo.login_timeout' -v 300
  run "${node[@]}" -I iser --login
  disk_of 60 "iSER disk" "/dev/disk/by-path/*$TARGET*"
  # In memory with IP checksums, on the wire with CRCs.
  [ "$user" != iser_pi ] ||
    [ "$(cat "/sys/block/$(basename "$(readlink -f "$disk")")/integrity/format")" = T10-DIF-TYPE1-IP ] ||
    fail "the disk has no protection"
  random_blocks
  # When a program closes the device that it had opened for writing, udev scans for partitions again.
  udev-settle 60
  run "${node[@]}" -I iser --logout
  run "${node[@]}" -I iser -o delete
  iscsiadm -k 0
}
iser_end() {
  local core=$config/target/core/rd_mcp_1/disk tpg=$config/target/iscsi/$name/tpgt_1
  # Linux does not wait for the end of a session that is being closed, and frees objects that it still uses ("list_del
  # corruption").
  wait_for 60 "end of the session" sh -c "! grep -q . '$tpg/dynamic_sessions'"
  echo 0 >"$tpg/enable"
  rm "$tpg/lun/lun_0/disk"
  rmdir "$tpg/np/$TARGET:3260" "$tpg/lun/lun_0" "$tpg" "${tpg%/*}" $core ${core%/*} || fail "taking the target away"
}

# The same with T10-DIF: each block carries protection information, which both cards check.
iser_pi_target() { iser_target; }
iser_pi_initiator() { iser_initiator; }
iser_pi_end() { iser_end; }

nfs_target() {
  run modprobe -a nfsd rpcrdma
  mkdir -p /srv/nfs /run/rpc_pipefs
  run mount -t tmpfs none /srv/nfs
  mountpoint -q /proc/fs/nfsd || run mount -t nfsd none /proc/fs/nfsd
  # The server has no clients from an earlier run, so it needs no grace period.
  run rpc.nfsd --no-nfs-version 3 --grace-time 10 --lease-time 10 4
  echo Y >/proc/fs/nfsd/v4_end_grace
  run exportfs -o rw,fsid=0,no_root_squash,insecure "*:/srv/nfs"
  run rpc.mountd --no-nfs-version 3
  echo "rdma 20049" >/proc/fs/nfsd/portlist || fail "NFS over RDMA"
}
nfs_initiator() {
  local size
  run modprobe rpcrdma
  mkdir -p /mnt/nfs
  run mount.nfs4 $TARGET:/ /mnt/nfs -o proto=rdma,port=20049,vers=4.2,soft,timeo=600
  head -c $((mib << 20)) /dev/urandom >/root/nfs.from
  for size in 1 100 4096 4097 65536 100000 $((mib << 20)); do
    head -c $size /root/nfs.from >/mnt/nfs/$size || fail "writing $size bytes"
  done
  for i in $(seq 50); do echo "$i" >"/mnt/nfs/file $i"; done
  sync -f /mnt/nfs || fail "sync"
  echo 3 >/proc/sys/vm/drop_caches
  for size in 1 100 4096 4097 65536 100000 $((mib << 20)); do
    cmp -n $size /root/nfs.from /mnt/nfs/$size || fail "$size bytes"
    [ "$(stat -c %s /mnt/nfs/$size)" = $size ] || fail "the size of $size bytes"
  done
  [ "$(cat /mnt/nfs/file* | sort -n | tail -n 1)" = 50 ] && [ "$(ls /mnt/nfs | wc -l)" = 57 ] || fail "the small files"
  sum_of /root/nfs.from >/share/nfs.sum
  run umount /mnt/nfs
}
nfs_end() {
  [ "$(sum_of /srv/nfs/$((mib << 20)))" = "$(cat /share/nfs.sum)" ] || fail "the NFS server has other bytes"
  rpc.nfsd 0
  exportfs -ua
  pkill -x rpc.mountd
}

for user in "$@"; do
  began=$SECONDS
  if is_target; then
    "${user}_target"
    tell "$user.up"
  fi
  if is_initiator; then
    hear "$user.up"
    reads=$(counter here rx_read_requests) writes=$(counter here rx_write_requests)
    "${user}_initiator"
    # The target moves the data: by READs and WRITEs to memory that the initiator has registered.
    [ "$(counter here rx_read_requests)" -gt "$reads" ] || fail "$user: the target has read nothing"
    [ "$(counter here rx_write_requests)" -gt "$writes" ] || fail "$user: the target has written nothing"
    tell "$user.done"
  fi
  if is_target; then
    hear "$user.done"
    "${user}_end"
  fi
  echo "$user: done after $((SECONDS - began)) s"
  clean_dmesg
done
[ "$GUESTS" != 1 ] || ip addr del "$ADDRESS_here/24" dev "$IF_here"
