#!/usr/bin/env python3
"""Two machines, played by two network namespaces with a cable between them: trunk.py SOFTHCA

Their fabrics are joined by --join. Unmodified programs of one talk RDMA with those of the other, by RoCE v1 and v2 and by
rdma_cm; a wrong key is refused in words; a hub that is killed and started again is joined again. Needs root, or user namespaces.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import own_network  # noqa: E402
from eventually import PATIENCE, eventually  # noqa: E402

KEY = "a key that both machines share"
PORT = 24791
RPING = Path(__file__).resolve().parent / "rping"


class Machine:
    """A network namespace with one end of the cable, and a directory for its sockets."""

    def __init__(self, number, folder, namespace=None):
        self.address = f"10.9.0.{number}"
        self.folder = folder / f"machine{number}"
        (self.folder / "run").mkdir(parents=True)
        (self.folder / "run").chmod(0o700)
        self.enter = ["nsenter", f"--net=/proc/{namespace}/ns/net"] if namespace else []
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.folder / "run"), "SOFTHCA_FABRIC_KEY": KEY}

    def command(self, words):
        return [*self.enter, *map(str, words)]

    def start(self, *words, **environment):
        """softhca run with these words."""
        return subprocess.Popen(self.command([SOFTHCA, "run", *words]), env={**self.environment, **environment},
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, *words, **environment):
        process = self.start(*words, **environment)
        out, _ = process.communicate(timeout=PATIENCE)
        return process.returncode, out

    def listens(self, port):
        """A program of this machine listens at the TCP port."""
        seen = subprocess.run(self.command(["ss", "-Htln", f"sport = :{port}"]), capture_output=True, text=True, check=True)
        return bool(seen.stdout)

    def inspect(self, control, *names):
        asked = subprocess.run(self.command([SOFTHCA, "inspect", "--json", control, *names]), capture_output=True, text=True, check=False)
        return json.loads(asked.stdout) if asked.returncode == 0 and asked.stdout else {}

    def hubs(self, control):
        """The hubs that are joined, from the answer of softhca inspect."""
        trunk = self.inspect(control).get("trunk", {})
        return {name: hub for name, hub in trunk.items() if name.startswith("hub ") and hub["state"].startswith("joined")}

    def hold(self, *words):
        """A run that only keeps its fabric, with --control."""
        control = self.folder / "control"
        process = self.start("--control", control, *words, "--", "sleep", "1000")
        eventually(control.exists, f"{process.args}: it listens")
        return process, control


class TrunkTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="softhca-")
        self.other = subprocess.Popen(["unshare", "--net", "sleep", "1000"])
        pid = self.other.pid
        own = os.readlink("/proc/self/ns/net")
        eventually(lambda: os.readlink(f"/proc/{pid}/ns/net") != own, "a second namespace")
        folder = Path(self.folder.name)
        self.here, self.there = Machine(1, folder), Machine(2, folder, pid)
        subprocess.run(["ip", "link", "add", "cable1", "type", "veth", "peer", "name", "cable2", "netns", str(pid)], check=True)
        for machine, end in ((self.here, "cable1"), (self.there, "cable2")):
            # Without duplicate address detection, since programs look up IPv6 addresses only if the machine has one.
            for words in (["addr", "add", f"{machine.address}/24", "dev", end], ["addr", "add", f"fd00:9::{end[-1]}/64", "dev", end, "nodad"],
                          ["link", "set", end, "up"], ["link", "set", "lo", "up"]):
                subprocess.run(machine.command(["ip", *words]), check=True)
        self.started = []

    def tearDown(self):
        for process in [*self.started, self.other]:
            process.terminate()  # softhca run passes it to its program
            process.wait()
            if process.stdout:
                process.stdout.close()
        subprocess.run(["ip", "link", "del", "cable1"], stderr=subprocess.DEVNULL, check=False)  # it may have gone with its other end
        self.folder.cleanup()

    def hold(self, machine, *words):
        process, control = machine.hold(*words)
        self.started.append(process)
        return process, control

    def join(self):
        """Both machines have a fabric, and these are joined."""
        _, at_there = self.hold(self.there, "--listen", PORT)
        _, at_here = self.hold(self.here, "--join", self.there.address)
        for machine, control in ((self.here, at_here), (self.there, at_there)):
            eventually(lambda m=machine, c=control: m.hubs(c), "the hubs are joined")
        return at_here, at_there

    def pair(self, server, client, port):
        """Runs both, the client's last word being the server's machine. Returns the client's output."""
        serves = self.there.start("--", *server)
        eventually(lambda: self.there.listens(port) or serves.poll() is not None, f"{server}: it listens")
        status, out = self.here.run("--", *client, self.there.address)
        served, _ = serves.communicate(timeout=PATIENCE)
        self.assertEqual((status, serves.returncode), (0, 0), out + served)
        return out

    def test_programs_of_two_machines(self):
        control, _ = self.join()
        for gid in (0, 1, 2, 3):  # link-local and IPv4, RoCE v1 and v2
            program = ["ibv_rc_pingpong", "-d", "mlx5_0", "-g", gid, "-n", 300, "-c", "-s", 20000]
            self.assertIn("300 iters", self.pair(program, program, 18515))
        program = ["ib_write_bw", "-d", "mlx5_0", "-x", 3, "-F", "-n", 1000, "-s", 65536]
        self.assertIn("65536", self.pair(program, program, 18515))
        program = ["ibv_ud_pingpong", "-g", 2, "-n", 100, "-c", "-s", 2000]  # datagrams by RoCE v1
        self.assertIn("100 iters", self.pair(program, program, 18515))
        (hub,) = self.here.hubs(control).values()
        self.assertEqual(hub["datagram_bytes"], 1472)
        self.assertGreater(hub["frames_received"], 1000)
        self.assertEqual((hub["forged"], hub["replayed"], hub["malformed"]), (0, 0, 0))

    def connect(self, server, client, *options):
        """Runs both, with the options of softhca run for the server, by the connection manager. Returns the client's output."""
        control = self.there.folder / "server"
        control.unlink(missing_ok=True)
        serves = self.there.start("--control", control, *options, "--", *server)
        eventually(lambda: "listening" in str(self.there.inspect(control)) or serves.poll() is not None, f"{server}: it listens")
        status, out = self.here.run("--", *client)
        served, _ = serves.communicate(timeout=PATIENCE)
        self.assertEqual((status, serves.returncode), (0, 0), out + served)
        return out

    def test_rdma_cm_of_two_machines(self):
        self.join()
        out = self.connect([RPING, "-s", "-a", "198.19.7.2", "-C", 10], [RPING, "-c", "-a", "198.19.7.2", "-C", 10, "-v"], "--address", "198.19.7.2")
        self.assertEqual(out.count("ping data"), 10, out)

    def test_rdma_cm_by_the_address_of_the_other_machine(self):
        self.join()
        address = self.there.address
        client = [RPING, "-c", "-a", address, "-C", 10, "-v", "-V"]
        # A server of any address, one of the machine's, and one that has an address of its own.
        for words, options in (([], []), (["-a", address], []), ([], ["--address", "198.19.7.2"])):
            out = self.connect([RPING, "-s", *words, "-C", 10, "-V"], client, *options)
            self.assertEqual(out.count("ping data"), 10, out)
        program = ["ib_send_bw", "-R", "-F", "-n", 200]
        self.assertRegex(self.connect(program, [*program, address]), r"(?m)^ 65536 +200 ")
        bound = self.connect(["ucmatose", "-C", 10, "-b", address], ["ucmatose", "-C", 10, "-s", address, "-b", self.here.address])
        self.assertIn("return status 0", bound)
        program = ["udaddy", "-C", 10]
        self.assertIn("return status 0", self.connect(program, [*program, "-s", address]))

    def test_rdma_cm_by_the_ipv6_address_of_the_other_machine(self):
        self.join()
        address = "fd00:9::2"
        for listens_at in ("::", address):
            out = self.connect([RPING, "-s", "-a", listens_at, "-C", 10], [RPING, "-c", "-a", address, "-C", 10, "-v"])
            self.assertEqual(out.count("ping data"), 10, out)

    def test_an_ipv6_address_that_no_machine_has(self):
        self.join()
        status, out = self.here.run("--", RPING, "-c", "-a", "fd00:9::77", "-C", 10)
        self.assertNotEqual(status, 0)
        self.assertIn("RDMA_CM_EVENT_ADDR_ERROR", out)

    def test_a_port_that_no_program_of_the_other_machine_has(self):
        self.join()
        status, out = self.here.run("--", RPING, "-c", "-a", self.there.address, "-C", 10)
        self.assertNotEqual(status, 0)
        self.assertIn("RDMA_CM_EVENT_ADDR_ERROR", out)

    def test_rdma_cm_by_a_link_local_address(self):
        self.join()
        control = self.there.folder / "server"
        serves = self.there.start("--control", control, "--", RPING, "-s", "-a", "::", "-C", 10)
        self.started.append(serves)
        eventually(lambda: "listening" in str(self.there.inspect(control)) or serves.poll() is not None, "rping listens")
        self.assertIsNone(serves.poll(), serves.stdout.read() if serves.poll() is not None else "")
        mac = next(device["card"]["mac"] for device in self.there.inspect(control, "mlx5_0").values())
        first, second = divmod((mac if isinstance(mac, int) else int(mac, 16)) ^ 1 << 41, 1 << 24)  # the EUI-64 of RFC 4291
        address = f"fe80::{first >> 8:04x}:{first & 0xff:02x}ff:fe{second >> 16:02x}:{second & 0xffff:04x}"
        status, out = self.here.run("--", RPING, "-c", "-a", f"{address}%lo", "-C", 10, "-v")
        self.assertEqual(status, 0, out)
        self.assertEqual(out.count("ping data"), 10, out)

    def test_a_wrong_key_is_refused_in_words(self):
        self.hold(self.there, "--listen", PORT)
        status, out = self.here.run("--join", self.there.address, "--", "true", SOFTHCA_FABRIC_KEY="another key, as long as it")
        self.assertEqual(status, 1)
        self.assertIn(f"{self.there.address} refuses: its fabric has another key", out)

    def test_a_run_without_a_key_is_refused_in_words(self):
        del self.here.environment["SOFTHCA_FABRIC_KEY"]
        status, out = self.here.run("--join", self.there.address, "--", "true")
        self.assertEqual(status, 1)
        self.assertIn("SOFTHCA_FABRIC_KEY", out)
        key = self.here.folder / "key"
        key.write_text(KEY + "\n", encoding="utf-8")
        key.chmod(0o644)
        status, out = self.here.run("--key-file", key, "--listen", PORT, "--", "true")
        self.assertEqual(status, 1)
        self.assertIn("others may read it", out)
        key.chmod(0o600)
        status, out = self.here.run("--key-file", key, "--listen", PORT, "--", "true")
        self.assertEqual(status, 0, out)
        self.assertIn(f"listens at UDP [::]:{PORT}", out)

    def test_later_runs_want_the_same_hubs_or_none(self):
        self.join()
        for words in ([], ["--join", self.there.address]):
            status, out = self.here.run(*words, "--", "true")
            self.assertEqual((status, out), (0, ""))
        status, out = self.here.run("--listen", PORT, "--", "true")
        self.assertEqual(status, 1)
        self.assertIn(f"there already, with --join {self.there.address}: the run that comes first joins", out)
        status, out = self.here.run("--private", "--join", self.there.address, "--", "true")
        self.assertEqual(status, 0, out)
        self.assertIn(f"joined with {self.there.address}:{PORT}", out)

    def test_a_hub_that_does_not_answer_is_named(self):
        status, out = self.here.run("--join", self.there.address, "--", "true")
        self.assertEqual(status, 0, out)
        self.assertIn(f"no answer yet from {self.there.address}", out)

    def test_a_hub_that_is_killed_is_joined_again(self):
        at_here, _ = self.join()
        hub = subprocess.run(["pgrep", "-f", "softhca.*--listen"], capture_output=True, text=True, check=True).stdout.split()
        for pid in hub:
            if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == "softhca-hub" and self.is_there(pid):
                os.kill(int(pid), 9)
        eventually(lambda: not self.here.hubs(at_here), "the hub has gone")
        self.started[0].terminate()
        self.hold(self.there, "--listen", PORT)
        eventually(lambda: self.here.hubs(at_here), "the hubs are joined again")
        program = ["ibv_rc_pingpong", "-d", "mlx5_0", "-g", 3, "-n", 100]
        self.assertIn("100 iters", self.pair(program, program, 18515))

    def is_there(self, pid):
        """The process is of the other machine."""
        return os.readlink(f"/proc/{pid}/ns/net") == os.readlink(f"/proc/{self.other.pid}/ns/net")


if __name__ == "__main__":
    own_network.enter()
    SOFTHCA = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
