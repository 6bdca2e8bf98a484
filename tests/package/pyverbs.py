#!/usr/bin/env python3
"""rdma-core's own tests in programs of `softhca run` on a fresh Debian: pyverbs.py BUILD SUITE TESTS

TESTS is the folder tests/ of the sources of that Debian's rdma-core. First an unprivileged user runs them, then root, who runs
more of them. Fails if a test fails that tests/guest/pyverbs_failing.txt does not list, or is skipped for an unknown
reason (docs/pyverbs.md)."""

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import fresh_debian

HERE = Path(__file__).resolve().parent
FILES = [HERE.parent / "guest" / name for name in ("rdma_core_tests.py", "pyverbs_failing.txt", "pyverbs_skipped.txt")]
SCRIPT = """
apt-get update -qq
apt-get install -y --no-install-recommends /tmp/files/*.deb iproute2 python3-pyverbs python3-scapy >/tmp/apt.log 2>&1 || {
  tail -5 /tmp/apt.log; exit 9; }
dpkg-query -W -f '${Package} ${Version}\\n' libibverbs1 python3-pyverbs
useradd user
mkdir /tmp/suite && tar -xf /tmp/files/tests.tar -C /tmp/suite
# The skip reasons of tests that need root or CAP_NET_RAW.
printf '%s\\n' 'Must be run by root' 'The process must have CAP_NET_RAW' 'To Create RAW QP must be done by' >/tmp/user_skipped.txt
cat >/tmp/all <<'EOF'
who=$1; shift
cd /tmp
softhca run -- python3 -B /tmp/files/rdma_core_tests.py /tmp/suite --dev mlx5_0 --limit 60 \\
  --skips /tmp/files/pyverbs_skipped.txt --skips /tmp/files/pyverbs_door.txt "$@" >/tmp/log.$who
for verdict in ok skip FAIL ERROR CRASH HANG; do echo "$who: $verdict $(grep -c "^$verdict " /tmp/log.$who)"; done
known=$(sed -n 's/^SUITE //p' /tmp/files/pyverbs_failing.txt)
failed=$(grep -E '^(FAIL|ERROR|CRASH|HANG) ' /tmp/log.$who | while read -r verdict name reason; do
  grep -qxF "$name" <<<"$known" || echo "$verdict: $name $reason"
done; grep '^skipped for a reason' /tmp/log.$who | sort -u)
echo "$failed"
grep -q '^ok ' /tmp/log.$who && [ -z "$failed" ]
EOF
status=0
own_net() { unshare --net sh -c 'ip link set lo up && exec "$@"' sh "$@"; }
own_net setpriv --reuid=user --regid=user --clear-groups env HOME=/tmp bash /tmp/all user --skips /tmp/user_skipped.txt || status=1
own_net bash /tmp/all root || status=1
exit $status
"""


def main():
    build, suite, tests = Path(sys.argv[1]).resolve(), sys.argv[2], Path(sys.argv[3])
    packages = list(build.glob("softhca_*.deb"))
    assert len(packages) == 1, "make deb first"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with tarfile.open(folder / "tests.tar", "w") as archive:
            archive.add(tests, arcname="tests")
        door = folder / "pyverbs_door.txt"
        door.write_bytes((HERE.parent / "door" / "pyverbs_skipped.txt").read_bytes())
        status, _ = fresh_debian.run(SCRIPT.replace("SUITE", suite), [*packages, *FILES, folder / "tests.tar", door],
                                     suite=suite, timeout=1800, output=sys.stdout)
    return status


if __name__ == "__main__":
    sys.exit(main())
