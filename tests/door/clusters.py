#!/usr/bin/env python3
"""The recipes of docs/clusters.md on two machines: clusters.py SOFTHCA

A machine is a set of namespaces: a network, a hostname, /etc/hosts, and directories for sockets and shared memory of
its own. A cable joins the two. In place of ssh, the launchers have a script that enters the namespaces of a machine, with a new environment.
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
NAMES = ("node1", "node2")
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
[ "$host" = node1 ] && target={node1} || target={node2}
exec nsenter --target=$target --net --mount --uts -- env -i {environment} sh -c "$*"
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
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="softhca-")
        self.folder = Path(self.temporary.name)
        (self.folder / "run").mkdir()
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n10.9.0.1 node1 server server.softhca\n10.9.0.2 node2 client client.softhca\n", encoding="utf-8")
        (self.folder / "key").write_text("a key that both machines share\n", encoding="utf-8")
        (self.folder / "key").chmod(0o600)
        self.nodes = [subprocess.Popen([*UNSHARE, "sh", "-c", BOOT, "sh", self.folder, name]) for name in NAMES]
        for name in NAMES:
            eventually((self.folder / name).exists, f"{name} is up")
        one, two = (node.pid for node in self.nodes)
        subprocess.run(["ip", "link", "add", "cable1", "netns", str(one), "type", "veth", "peer", "name", "cable2", "netns", str(two)],
                       check=True)
        for number, node in enumerate(self.nodes, 1):
            for words in (["addr", "add", f"10.9.0.{number}/24"], ["link", "set", "up"]):
                subprocess.run(["nsenter", f"--target={node.pid}", "--net", "ip", *words, "dev", f"cable{number}"], check=True)
        environment = {"PATH": f"{SOFTHCA.parent}:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": self.folder, "TMPDIR": self.folder / "run",
                       "XDG_RUNTIME_DIR": self.folder / "run", "SOFTHCA_FABRIC_KEY": "a key that both machines share"}
        words = " ".join(f"'{name}={value}'" for name, value in environment.items())
        self.agent = self.folder / "agent"
        self.agent.write_text(AGENT.format(node1=one, node2=two, environment=words), encoding="utf-8")
        self.agent.chmod(0o755)

    def tearDown(self):
        for node in self.nodes:
            eventually(lambda n=node: not kill_others_of(n.pid), "the processes of a machine have ended")
            node.kill()
            node.wait()
        self.temporary.cleanup()

    def start(self, name, command):
        """A shell command on a machine."""
        return subprocess.Popen([self.agent, name, command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def ends(self, process):
        """The output of a command that must succeed."""
        out, _ = process.communicate(timeout=2 * PATIENCE)
        self.assertEqual(process.returncode, 0, out)
        return out

    def job(self, launcher, program):
        """Launches a program on both machines: each rank has the same words, and joins both machines."""
        run = f"softhca run --fabric job --key-file {self.folder}/key --listen 24791 --join node1 --join node2 -- {PYTHON} {program}"
        out = self.ends(self.start("node1", f"{launcher} {run}"))
        self.assertRegex(out, r"joined with 10\.9\.0\.[12]:24791")
        return out


class MpiTest(Cluster):
    def open_mpi(self, ranks):
        return open_mpi(f"--mca plm_rsh_agent {self.agent} --host node1:{ranks // 2},node2:{ranks // 2} -n {ranks}")

    def test_open_mpi(self):
        out = self.job(self.open_mpi(2), TESTS / "guest/mpi_check.py")
        self.assertEqual(out.count("all is well"), 2, out)

    def test_open_mpi_with_two_ranks_on_each_machine(self):
        out = self.job(self.open_mpi(4), TESTS / "package/mpi_ring.py")
        self.assertIn("4 ranks: right", out)

    def test_mpich(self):
        exported = " ".join(f"-genv {name} {value}" for name, value in UCX.items())
        for ranks in (2, 4):
            out = self.job(f"mpiexec.hydra -launcher ssh -launcher-exec {self.agent} -hosts node1:{ranks // 2},node2:{ranks // 2}"
                           f" -n {ranks} {exported}", TESTS / "door/mpich_ring.py")
            self.assertEqual(out.count(f"of {ranks}: right"), ranks, out)


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
