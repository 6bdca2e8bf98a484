#!/usr/bin/env python3
"""The package of `make deb` on other releases of Debian: distributions.py BUILD SUITE...

In a fresh system of each suite an unprivileged user runs that suite's own programs, and each has a line: ok or FAILED.
The package is that of this machine's release; what it needs of that and a newer one has not (libfmt) comes along."""

import subprocess
import sys
import tempfile
from pathlib import Path

import fresh_debian

PACKAGES = "iproute2 ibverbs-utils perftest rdmacm-utils infiniband-diags ucx-utils libfabric-bin openmpi-bin python3-mpi4py"
SCRIPT = """
apt-get update -qq
apt-get install -y --no-install-recommends /tmp/files/*.deb PACKAGES >/tmp/apt.log 2>&1 || { tail -5 /tmp/apt.log; exit 9; }
dpkg-query -W -f '${Package} ${Version}\\n' libc6 libibverbs1 perftest ucx-utils
useradd user
cat >/tmp/all <<'EOF'
failed=0
# one NAME COMMAND: both ends of it, if it has two.
one() {
  name=$1; shift
  if timeout -k 1 100 softhca run -- sh -c "$*" >/tmp/out.$$ 2>&1 </dev/null; then
    echo "ok: $name"
  else
    echo "FAILED: $name"; tail -6 /tmp/out.$$; failed=1
  fi
}
# both NAME SERVER CLIENT: the client tries again while the server is not up yet.
both() {
  one "$1" "timeout 80 $2 & for i in 1 2 3 4 5; do sleep 2; timeout 70 $3; s=\\$?; [ \\$s = 0 ] && break; kill -0 \\$! || break; done; wait; exit \\$s"
}
# pair NAME COMMAND: a server, and a client with localhost behind it. Each at a port of its own: that of the one before may not be free yet.
port=20000
pair() {
  name=$1 port=$((port + 1)); shift
  both "$name" "$* -p $port" "$* -p $port localhost"
}
one ibv_devices "ibv_devices | grep mlx5_0"
one "ibv_devinfo -v" "ibv_devinfo -v | grep PORT_ACTIVE"
one ibstat "ibstat | grep 'State: Active'"
for p in rc uc ud srq; do pair ibv_${p}_pingpong ibv_${p}_pingpong -g 3 -c -n 200; done
pair ibv_xsrq_pingpong ibv_xsrq_pingpong -g 3 -n 200
for p in write read send; do
  for w in bw lat; do pair ib_${p}_$w ib_${p}_$w -d mlx5_0 -x 3 -n 200; done
done
pair ib_atomic_bw ib_atomic_bw -d mlx5_0 -x 3 -n 200
for c in UC UD XRC; do pair "ib_send_bw -c $c" ib_send_bw -d mlx5_0 -x 3 -c $c -n 200; done
pair "ib_send_bw -R" ib_send_bw -R -n 200
both rping "rping -s -C 3" "rping -c -a 127.0.0.1 -C 3 -v"
both ucmatose ucmatose "ucmatose -s 127.0.0.1"
both udaddy udaddy "udaddy -s 127.0.0.1"
both mckey "mckey -m 239.1.2.3" "mckey -m 239.1.2.3 -s"
both rdma_client rdma_server "rdma_client -s 127.0.0.1"
both rstream "rstream -S 1000" "rstream -S 1000 -s 127.0.0.1"
both riostream "riostream -S 1000" "riostream -S 1000 -s 127.0.0.1"
# Where it is built for MPI, it is told to do without.
alone=
ucx_perftest -h 2>&1 | grep -q -- ' -P ' && alone="-P 0"
for t in rc_v ud_v rc_x ud_x dc_x; do
  export UCX_NET_DEVICES=mlx5_0:1 UCX_TLS=$t
  both "ucx_perftest, $t" "ucx_perftest $alone" "ucx_perftest $alone localhost -t tag_lat -n 200"
done
unset UCX_NET_DEVICES UCX_TLS
both "fi_pingpong, MSG" "fi_pingpong -p verbs -e msg" "fi_pingpong -p verbs -e msg 127.0.0.1"
both "fi_pingpong, RDM" "fi_pingpong -p 'verbs;ofi_rxm' -e rdm" "fi_pingpong -p 'verbs;ofi_rxm' -e rdm 127.0.0.1"
both "fi_pingpong, DGRAM" "fi_pingpong -p verbs -e dgram" "fi_pingpong -p verbs -e dgram 127.0.0.1"
for n in 2 4 8; do
  one "Open MPI, $n ranks" "mpirun --oversubscribe -n $n --mca pml ucx -x UCX_NET_DEVICES=mlx5_0:1 -x UCX_TLS=self,rc_x \\
    python3 /tmp/files/mpi_ring.py | grep '$n ranks: right'"
done
exit $failed
EOF
# In a network of its own, where nobody else has perftest's port.
unshare --net sh -c 'ip link set lo up && exec setpriv --reuid=user --regid=user --clear-groups env HOME=/tmp sh /tmp/all'
""".replace("PACKAGES", PACKAGES)


def main():
    build, suites = Path(sys.argv[1]).resolve(), sys.argv[2:]
    files = list(build.glob("softhca_*.deb"))
    assert len(files) == 1, "make deb first"
    worst = 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", "-q", "libfmt9"], cwd=folder, check=False, capture_output=True)
        for suite in suites:
            print(f"{suite}:", flush=True)
            own = [] if suite == "bookworm" else list(Path(folder).glob("*.deb"))
            status, output = fresh_debian.run(SCRIPT, [*files, *own, Path(__file__).parent / "mpi_ring.py"], suite=suite, build=build, timeout=900, output=sys.stdout)
            worst = max(worst, status)
    return worst


if __name__ == "__main__":
    sys.exit(main())
