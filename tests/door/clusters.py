#!/usr/bin/env python3
"""The recipes of docs/clusters.md on two and on four machines: clusters.py SOFTHCA

A machine is a set of namespaces: a network, a hostname, /etc/hosts, and directories for sockets and shared memory of
its own. A bridge joins them. In place of ssh, the launchers have a script that enters the namespaces of a machine, with a new environment.
All ranks have the same command line. UCX gets RC of the device as its only transport, and the jobs compare every byte.
Needs root, or user namespaces.
"""
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PACKAGES = ("mpich", "openmpi-bin", "python3-mpi4py", "python3-yaml", "slurm-client", "slurmctld", "slurmd")
try:
    import mpi4py  # noqa: F401
    import yaml
except ImportError:
    sys.exit("clusters.py needs packages that `make deps` leaves out: apt install " + " ".join(PACKAGES))
if not all(map(shutil.which, ("mpirun.openmpi", "mpiexec.hydra", "srun", "slurmctld", "slurmd"))):
    sys.exit("clusters.py needs packages that `make deps` leaves out: apt install " + " ".join(PACKAGES))

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import own_network  # noqa: E402
from eventually import PATIENCE, eventually  # noqa: E402

TESTS = Path(__file__).resolve().parents[1]
PYTHON = "/usr/bin/python3"  # Debian's, which has mpi4py
RANKS = int(os.environ.get("RANKS", "16"))  # of the jobs by RoCEv2 over UDP
MTU = 9000
UNSHARE = ["unshare", "--net", "--mount", "--uts"]
BOOT = """
mount -t tmpfs -o mode=700 none "$1/run" && mount -t tmpfs -o mode=1777 none /dev/shm && mount --bind "$1/hosts" /etc/hosts &&
hostname "$2" && ip link set lo up && touch "$1/$2" && exec sleep 1000
"""
# As sshd does, it begins a new environment, and passes the words to a shell.
AGENT = """#!/bin/sh
while case $1 in -*) ;; *) false ;; esac; do shift; done
host=$1
shift
exec nsenter --target=$(cat {folder}/pid-$host) --net --mount --uts -- env -i {environment} sh -c "$*"
"""

UCX = {"UCX_TLS": "self,rc_x", "UCX_NET_DEVICES": "mlx5_0:1", "UCX_WARN_UNUSED_ENV_VARS": "n", "UCX_VFS_ENABLE": "n"}


def open_mpi(options):
    """The command of a launch, up to the program."""
    exported = " ".join(f"-x {name}={value}" for name, value in UCX.items())
    root = "--allow-run-as-root" if os.geteuid() == 0 else ""
    return f"mpirun.openmpi {root} {options} --mca pml ucx --mca osc ucx --mca btl ^openib {exported}"


def network_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None  # it has ended


def kill_others_of(holder):
    """Kills all processes of a machine but its holder: what daemons leave behind, too. Returns their number."""
    machine = network_of(holder)
    if machine in (None, network_of("self")):
        return 0
    others = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != holder and network_of(pid) == machine]
    for pid in others:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return len(others)


class Cluster(unittest.TestCase):
    MACHINES = 2

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="softhca-")
        self.folder = Path(self.temporary.name)
        (self.folder / "run").mkdir()
        self.names = [f"node{number}" for number in range(1, self.MACHINES + 1)]
        others = {"node1": "server server.softhca", "node2": "client client.softhca"}
        hosts = "".join(f"10.9.0.{number} {name} {others.get(name, '')}\n" for number, name in enumerate(self.names, 1))
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{hosts}", encoding="utf-8")
        (self.folder / "key").write_text("a key that all machines share\n", encoding="utf-8")
        (self.folder / "key").chmod(0o600)
        self.nodes = [subprocess.Popen([*UNSHARE, "sh", "-c", BOOT, "sh", self.folder, name]) for name in self.names]
        for name in self.names:
            eventually((self.folder / name).exists, f"{name} is up")
        subprocess.run(["ip", "link", "add", "name", "bridge0", "mtu", str(MTU), "type", "bridge"], check=True)
        subprocess.run(["ip", "link", "set", "bridge0", "up"], check=True)
        for number, node in enumerate(self.nodes, 1):
            self.plug(number, node.pid)
        environment = {"PATH": f"{SOFTHCA.parent}:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": self.folder, "TMPDIR": self.folder / "run",
                       "XDG_RUNTIME_DIR": self.folder / "run", "SOFTHCA_FABRIC_KEY": "a key that all machines share"}
        words = " ".join(f"'{name}={value}'" for name, value in environment.items())
        self.agent = self.folder / "agent"
        self.agent.write_text(AGENT.format(folder=self.folder, environment=words), encoding="utf-8")
        self.agent.chmod(0o755)

    def plug(self, number, pid):
        """Plugs a machine into the bridge."""
        (self.folder / f"pid-node{number}").write_text(str(pid), encoding="utf-8")
        subprocess.run(["ip", "link", "add", f"port{number}", "mtu", str(MTU), "type", "veth", "peer", "name", "eth0", "mtu", str(MTU),
                        "netns", str(pid)], check=True)
        subprocess.run(["ip", "link", "set", f"port{number}", "master", "bridge0", "up"], check=True)
        for words in (["addr", "add", f"10.9.0.{number}/24"], ["link", "set", "up"]):
            subprocess.run(["nsenter", f"--target={pid}", "--net", "ip", *words, "dev", "eth0"], check=True)

    def tearDown(self):
        for node in self.nodes:
            eventually(lambda n=node: not kill_others_of(n.pid), "the processes of a machine have ended")
            node.kill()
            node.wait()
        subprocess.run(["ip", "link", "del", "bridge0"], check=True)
        self.temporary.cleanup()

    def start(self, name, command):
        """A shell command on a machine."""
        return subprocess.Popen([self.agent, name, command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def ends(self, process):
        """The output of a command that must succeed."""
        out, _ = process.communicate(timeout=2 * PATIENCE)
        self.assertEqual(process.returncode, 0, out)
        return out

    def ranks(self, ranks):
        """The words of a launcher for so many ranks, an equal number on each machine."""
        return ",".join(f"{name}:{ranks // self.MACHINES}" for name in self.names), ranks

    def open_mpi(self, ranks):
        hosts, count = self.ranks(ranks)
        return open_mpi(f"--mca plm_rsh_agent {self.agent} --host {hosts} -n {count}")

    def mpich(self, ranks):
        hosts, count = self.ranks(ranks)
        exported = " ".join(f"-genv {name} {value}" for name, value in UCX.items())
        return f"mpiexec.hydra -launcher ssh -launcher-exec {self.agent} -hosts {hosts} -n {count} {exported}"

    def job(self, launcher, program):
        """Launches a program on all machines: each rank has the same words, and joins all machines."""
        joins = " ".join(f"--join {name}" for name in self.names)
        run = f"softhca run --fabric job --key-file {self.folder}/key --listen 24791 {joins} -- {PYTHON} {program}"
        out = self.ends(self.start("node1", f"{launcher} {run}"))
        self.assertRegex(out, r"joined with 10\.9\.0\.[1-4]:24791")
        return out


class MpiTest(Cluster):
    def test_open_mpi(self):
        out = self.job(self.open_mpi(2), TESTS / "guest/mpi_check.py")
        self.assertEqual(out.count("all is well"), 2, out)

    def test_open_mpi_with_two_ranks_on_each_machine(self):
        out = self.job(self.open_mpi(4), TESTS / "package/mpi_ring.py")
        self.assertIn("4 ranks: right", out)

    def test_mpich(self):
        for ranks in (2, 4):
            out = self.job(self.mpich(ranks), TESTS / "door/mpich_ring.py")
            self.assertEqual(out.count(f"of {ranks}: right"), ranks, out)


class FourMachinesTest(Cluster):
    """Four machines: 16 ranks on joined networks, and RoCEv2 with the addresses of the machines."""
    MACHINES = 4

    def test_16_ranks_of_open_mpi(self):
        self.assertIn("16 ranks: right", self.job(self.open_mpi(16), TESTS / "package/mpi_ring.py"))

    def test_16_ranks_of_mpich(self):
        out = self.job(self.mpich(16), TESTS / "door/mpich_ring.py")
        self.assertEqual(out.count("of 16: right"), 16, out)

    def by_udp(self, launcher, program, *options):
        """Launches a program on all machines by RoCEv2 with the address of each."""
        return self.ends(self.start("node1", f"{launcher} softhca run --address if:eth0 {' '.join(options)} -- {PYTHON} {program}"))

    def test_open_mpi_by_udp(self):
        out = self.by_udp(self.open_mpi(RANKS), TESTS / "package/mpi_ring.py")
        self.assertIn(f"{RANKS} ranks: right", out)

    def test_open_mpi_by_udp_that_loses_packets(self):
        out = self.by_udp(self.open_mpi(RANKS), TESTS / "package/mpi_ring.py", "--loss", "0.01")
        self.assertIn(f"{RANKS} ranks: right", out)

    def test_mpich_by_udp(self):
        out = self.by_udp(self.mpich(RANKS), TESTS / "door/mpich_ring.py")
        self.assertEqual(out.count(f"of {RANKS}: right"), RANKS, out)


class SlurmTest(Cluster):
    """A controller and two nodes, without accounting, control groups and munge."""
    CONFIGURATION = """
ClusterName=test
SlurmctldHost=node1
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={run}/state
SlurmdSpoolDir={run}/spool-%n
SlurmctldPidFile={run}/slurmctld.pid
SlurmdPidFile={run}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
SwitchType=switch/none
TaskPlugin=task/none
MpiDefault=none
NodeName=node1,node2 CPUs=2
PartitionName=all Nodes=ALL Default=YES
"""

    def setUp(self):
        super().setUp()
        user = pwd.getpwuid(os.geteuid()).pw_name
        (self.folder / "slurm.conf").write_text(self.CONFIGURATION.format(run=self.folder / 'run', user=user), encoding="utf-8")
        self.slurm = f"export SLURM_CONF={self.folder}/slurm.conf; "
        self.daemons = [self.start(name, f"{self.slurm} cd {self.folder}/run; mkdir -p state spool-{name}; exec {daemon} -D >{daemon}.log 2>&1")
                        for name, daemon in (("node1", "slurmctld"), ("node1", "slurmd"), ("node2", "slurmd"))]
        eventually(lambda: "2 idle" in self.start("node1", f"{self.slurm} sinfo -ho '%D %T'").communicate()[0], "two nodes are idle")

    def tearDown(self):
        super().tearDown()
        for daemon in self.daemons:
            daemon.communicate()

    def environment(self):
        return self.slurm + "".join(f"export {name}={value}; " for name, value in UCX.items())

    def test_srun_of_mpich(self):
        run = ('port=$((24800 + SLURM_JOB_ID % 1000)); srun --mpi=pmi2 softhca run --fabric job$SLURM_JOB_ID --key-file ~/key --listen $port'
               ' $(scontrol show hostnames | sed "s/.*/--join &:$port/") --')
        script = self.folder / "script"
        script.write_text(f"{self.environment()} {run} {PYTHON} {TESTS}/door/mpich_ring.py\n", encoding="utf-8")
        out = self.ends(self.start("node1", f"{self.slurm} salloc -Q -N 2 --ntasks-per-node=2 sh {script}"))
        self.assertEqual(out.count("of 4: right"), 4, out)
        self.assertRegex(out, r"joined with 10\.9\.0\.[12]:248")

    def test_open_mpi_in_an_allocation(self):
        mpirun = open_mpi("--mca plm slurm")
        out = self.job(f"{self.environment()} salloc -Q -N 2 --ntasks-per-node=1 {mpirun}", TESTS / "guest/mpi_check.py")
        self.assertEqual(out.count("all is well"), 2, out)


class ContainersTest(Cluster):
    """The commands of contrib's files, each on a machine, in place of an engine for containers."""
    CONTRIB = TESTS.parent / "contrib"

    def run_pair(self, server, client):
        serves = self.start("node1", shlex.join(server))
        out = self.ends(self.start("node2", shlex.join(client)))
        self.assertRegex(out, r"joined with 10\.9\.0\.1:24791")
        self.assertRegex(out, r"(?m)^ 65536 +500 ")
        self.ends(serves)

    def test_compose(self):
        services = yaml.safe_load((self.CONTRIB / "compose.yaml").read_text(encoding="utf-8"))["services"]
        self.assertEqual(list(services), ["server", "client"])
        for name, service in services.items():
            self.assertLessEqual(set(service), {"image", "pull_policy", "hostname", "depends_on", "environment", "entrypoint", "command"})
            self.assertEqual((service["image"], service["hostname"]), ("softhca", name))
            self.assertTrue(service["environment"]["SOFTHCA_FABRIC_KEY"].startswith("${SOFTHCA_FABRIC_KEY:?"))
        self.run_pair(*(service["entrypoint"] + service["command"] for service in services.values()))

    def test_kubernetes(self):
        service, *pods = yaml.safe_load_all((self.CONTRIB / "kubernetes.yaml").read_text(encoding="utf-8"))
        self.assertEqual((service["apiVersion"], service["kind"], service["spec"]["clusterIP"]), ("v1", "Service", "None"))
        self.assertEqual(len(pods), 2)
        commands = []
        for pod, name in zip(pods, ("server", "client")):
            self.assertEqual((pod["apiVersion"], pod["kind"], pod["metadata"]["labels"]), ("v1", "Pod", service["spec"]["selector"]))
            self.assertEqual((pod["spec"]["hostname"], pod["spec"]["subdomain"]), (name, service["metadata"]["name"]))
            (container,) = pod["spec"]["containers"]
            (variable,) = container["env"]
            self.assertEqual(variable["name"], "SOFTHCA_FABRIC_KEY")
            commands.append(container["command"] + container["args"])
        self.run_pair(*commands)


if __name__ == "__main__":
    own_network.enter()
    SOFTHCA = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
