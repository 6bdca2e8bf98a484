#!/usr/bin/env python3
"""The package of `make deb` on other releases of Debian: distributions.py BUILD SUITE...

In a fresh system of each suite an unprivileged user runs that suite's own programs, and each has a line: ok or FAILED.
The package is that of this machine's release."""

import sys
from pathlib import Path

import fresh_debian

PACKAGES = "iproute2 ibverbs-utils perftest rdmacm-utils infiniband-diags ucx-utils libfabric-bin openmpi-bin python3-mpi4py python3-pyverbs"
SCRIPT = """
apt-get update -qq
apt-get install -y --no-install-recommends /tmp/files/*.deb PACKAGES >/tmp/apt.log 2>&1 || { tail -5 /tmp/apt.log; exit 9; }
dpkg-query -W -f '${Package} ${Version}\\n' libc6 libibverbs1 perftest ucx-utils libfabric1 openmpi-bin
useradd user
cat >/tmp/all <<'EOF'
. /tmp/files/rendezvous.sh
export softhca=softhca control=/tmp/control.$$ patience=140
failed=0
# Messages of failure from programs that end with status 0.
wrong='mismatch|invalid data|return status [^0]'
# one NAME COMMAND: both ends of it, if it has two.
one() {
  name=$1; shift
  if timeout -k 1 200 softhca run --control "$control" -- bash -c "$*" >/tmp/out.$$ 2>&1 </dev/null && ! grep -iqE "$wrong" /tmp/out.$$; then
    echo "ok: $name"
  else
    echo "FAILED: $name"; grep -vE '^ *$|^---|^ [A-Z][a-zA-Z -]*:' /tmp/out.$$ | tail -n 12; failed=1
  fi
}
# both NAME SERVER CLIENT: the client starts when the server listens by rdma_cm.
both() { one "$1" "meet cm_listens '$2' '$3'"; }
# stays NAME SERVER CLIENT: the same with a server that does not end by itself.
stays() { one "$1" "begins '$2' cm_listens || exit; timeout 60 $3; s=\$?; kill \$server; exit \$s"; }
# pair NAME COMMAND: a server, and a client with localhost appended that starts when the server listens. Each pair has its own
# port, because the previous pair's may still be in use.
port=20000
pair() {
  name=$1 port=$((port + 1)); shift
  one "$name" "meet 'listens $port' '$* -p $port' '$* -p $port localhost'"
}
one ibv_devices "ibv_devices | grep mlx5_0"
one "ibv_devinfo -v" "ibv_devinfo -v | grep PORT_ACTIVE"
one "rdma link" "rdma link show mlx5_0/1 | grep 'state ACTIVE' && rdma dev | grep 'mlx5_0: node_type ca'"
one ibstat "ibstat | grep 'State: Active'"
for options in "-c" "-c -e" "-c -o" "-c -t" "-c -N"; do pair "ibv_rc_pingpong $options" ibv_rc_pingpong -g 3 -n 200 $options; done
for p in uc ud srq; do
  for options in "-c" "-c -e"; do pair "ibv_${p}_pingpong $options" ibv_${p}_pingpong -g 3 -n 200 $options; done
done
# It has no -c.
for options in "" "-e" "-o"; do pair "ibv_xsrq_pingpong $options" ibv_xsrq_pingpong -g 3 -n 200 $options; done
verbs() { pair "$*" "$@" -d mlx5_0 -x 3 -F; }
# READs and atomics are not of UC and UD, WRITEs not of UD, and perftest refuses events of WRITEs.
for verb in send write read atomic; do
  case $verb in send) services="RC UC UD XRC" ;; write) services="RC UC XRC" ;; *) services="RC XRC" ;; esac
  for c in $services; do
    for w in bw lat; do
      verbs ib_${verb}_$w -c $c -n 200
      [ $verb = atomic ] || verbs ib_${verb}_$w -c $c -a -n 20
      [ $verb = write ] || verbs ib_${verb}_$w -c $c -e -n 100
    done
    verbs ib_${verb}_bw -c $c -q 8 -n 40
    verbs ib_${verb}_bw -c $c -b -n 100
  done
done
for w in bw lat; do verbs ib_atomic_$w -A CMP_AND_SWAP -n 100; done
verbs ib_send_bw --use-srq -q 8 -n 40
verbs ib_send_lat --use-srq -n 100
# One QP: with several, perftest posts too few buffers to the SRQ, and messages without a buffer are lost.
verbs ib_send_bw -c UD --use-srq -n 10
# perftest's -R makes two connections, and its server listens for each.
cm() {
  port=$((port + 1))
  one "$*" "meet_twice $port '$* -F -p $port' '$* -F -p $port localhost'"
}
for verb in send write read atomic; do for w in bw lat; do cm ib_${verb}_$w -R -n 100; done; done
for w in bw lat; do cm ib_send_$w -R -c UD -n 100; done
cm ib_write_bw -R -a -n 20
cm ib_send_bw -R -e -n 100
both rping "rping -s -C 20 -S 60000 -V" "rping -c -a 127.0.0.1 -C 20 -S 60000 -V"
both ucmatose "ucmatose -c 4 -C 20" "ucmatose -s 127.0.0.1 -c 4 -C 20"
both udaddy "udaddy -c 4 -C 20" "udaddy -s 127.0.0.1 -c 4 -C 20"
one mckey "meet 'has /tmp/member joined' 'stdbuf -oL mckey -m 239.1.2.3 >/tmp/member' 'mckey -m 239.1.2.3 -s'; s=\$?; cat /tmp/member; exit \$s"
both rdma_client rdma_server "rdma_client -s 127.0.0.1"
for c in r x; do both "rdma_xclient -c $c" "rdma_xserver -c $c" "rdma_xclient -s 127.0.0.1 -c $c"; done
# Its server does not end by itself in rdma-core 44. In rdma-core 65 it is another program, with a controller and peers.
if cmtime -h 2>&1 | grep -q controller; then
  echo "not run: cmtime of this Debian, which is another program"
else
  stays cmtime "cmtime -c 20" "cmtime -s 127.0.0.1 -c 20"
fi
both rstream "rstream -S 1000" "rstream -S 1000 -s 127.0.0.1"
for t in b n v r; do both "rstream -T $t" "rstream -T $t -S 16384 -C 20" "rstream -T $t -S 16384 -C 20 -s 127.0.0.1"; done
both riostream "riostream -S 1000" "riostream -S 1000 -s 127.0.0.1"
both "riostream -T v" "riostream -T v -S 16384 -C 20" "riostream -T v -S 16384 -C 20 -s 127.0.0.1"
head -c 3000000 /dev/urandom >/tmp/original
stays rcopy rcopy "rcopy /tmp/original 127.0.0.1:/tmp/copied"
one "what rcopy has copied" "cmp /tmp/original /tmp/copied"
one "pyverbs" "python3 /tmp/files/verbs_program.py"
if ls /usr/lib/*/ucx/libuct_ib.so* >/dev/null 2>&1; then
  softhca run -- bash /tmp/files/ucx.sh || failed=1
  for n in 2 3 4 5 6 7 8; do
    one "Open MPI over UCX, $n ranks" "mpirun --oversubscribe -n $n --mca pml ucx -x UCX_NET_DEVICES=mlx5_0:1 -x UCX_TLS=self,rc_x \\
      python3 /tmp/files/mpi_ring.py | grep '$n ranks: right'"
  done
else
  echo "not there: UCX of this Debian has no RDMA transports"
fi
one fi_info "fi_info -p verbs | grep 'domain: mlx5_0' && fi_info -p 'verbs;ofi_rxm' | grep FI_EP_RDM"
# fabric NAME SIZE OPTION...: the content is compared (-c). Over rxm both ends leave together: leave_together.cc says why.
fabric() {
  name="fi_pingpong, $1, $2" size=$2 port=$((port + 1)) together=""
  [ $1 != RDM ] || together='env LD_PRELOAD=/tmp/files/libleave_together.so:$LD_PRELOAD'
  shift 2
  one "$name" "meet 'listens $port' '$together fi_pingpong -c -I 50 -S $size $* -B $port' \\
    '$together fi_pingpong -c -I 50 -S $size $* -P $port 127.0.0.1'"
}
for size in 64 4096 1048576 all; do
  fabric MSG $size -p verbs -e msg
  fabric RDM $size -p '"verbs;ofi_rxm"' -e rdm
done
for size in 64 1024; do fabric DGRAM $size -p verbs -e dgram; done
for n in 2 8; do
  one "Open MPI over libfabric, $n ranks" "mpirun --oversubscribe -n $n --mca pml cm --mca mtl ofi \\
    --mca mtl_ofi_provider_include 'verbs;ofi_rxm' python3 /tmp/files/mpi_ring.py | grep '$n ranks: right'"
done
exit $failed
EOF
# In a separate network namespace, where perftest's port is free. libfabric finds the device by the address of an interface, for which
# lo does not count.
unshare --net sh -c 'ip link set lo up && ip link add veth0 type veth peer name veth1 && ip addr add 10.77.0.1/24 dev veth0 &&
  ip link set veth0 up && ip link set veth1 up && exec setpriv --reuid=user --regid=user --clear-groups env HOME=/tmp bash /tmp/all'
""".replace("PACKAGES", PACKAGES)


def main():
    build, suites = Path(sys.argv[1]).resolve(), sys.argv[2:]
    files = list(build.glob("softhca_*.deb"))
    assert len(files) == 1, "make deb first"
    worst = 0
    for suite in suites:
        print(f"{suite}:", flush=True)
        here = Path(__file__).resolve().parent
        programs = [build / "tests/package/libleave_together.so", here / "mpi_ring.py", here / "verbs_program.py",
                    *(here.parent / "door" / name for name in ("ucx.sh", "rendezvous.sh"))]
        status, _ = fresh_debian.run(SCRIPT, [*files, *programs], suite=suite, timeout=2400, output=sys.stdout)
        worst = max(worst, status)
    return worst


if __name__ == "__main__":
    sys.exit(main())
