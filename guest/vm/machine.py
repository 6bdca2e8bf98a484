"""One guest: its QEMU, and this end of the ports that init/start speaks through.

    guest                    host
    hello                 ->
                          <- the number of this boot
    up                    ->
                          <- go, when all guests are up (or job ..., with a script that came later)
    (out, err, dmesg flow on ports of their own)
    exit STATUS [why]     ->
                          <- reboot | poweroff, when all scripts have ended (or another job)
"""

import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time

from . import process, tsc
from .job import job_archive
from .output import Output
from .report import say

PORTS = ("ctl", "out", "err", "dmesg")
LEAVE_SECONDS = 180  # for poweroff or reboot on a busy machine
EMULATOR_FAULT = "Oops: int3"
# Without features that speed up real processors: erms and fsrm make Linux and libc prefer `rep movsb`, smap adds checks to
# the kernel's accesses to process memory. The gain was not measured.
EMULATED_PROCESSOR = "max,la57=off,svm=off,erms=off,fsrm=off,smap=off"
KERNEL_HZ = 250  # of Debian's kernels. With a larger one, the kernel's short delays would be longer than asked for
LAST_WORDS = ("Kernel panic", "softhca: initramfs:", "softhca: start:", EMULATOR_FAULT)  # of a guest that cannot continue


class Guest:
    """One guest through all its boots. The session decides by these members:

    up        it waits for go()
    ended     its script has ended in this boot; it waits for leave() or restart()
    finished  it has powered off
    failure   why it is lost, in words
    status    the first exit status of its script that was not 0
    """

    def __init__(self, number, plan, directory, selector, hub):
        self.number = number
        self.plan = plan
        self.name = f"guest {number}" if plan.guests > 1 else "guest"
        self.directory = directory
        self.console = directory / f"console{number}.log"
        self.dmesg = directory / f"dmesg{number}.log"
        self.qemu_log = directory / f"qemu{number}.log"
        self.up = self.ended = self.finished = False
        self.status = 0
        self.boot = 0
        self.failure = None
        self.powered_off = False  # by the script itself
        self._selector = selector
        self._hub = hub
        self._connections = {}
        self._listeners = {}
        self._order = None
        self._deadline = None
        self._console_seen = 0
        self._exit_seen = None
        self._marker = None
        self._ctl_partial = b""
        self.tty = None
        self.prefix = f"guest {number}| ".encode() if plan.guests > 1 else b""  # of each line that it prints
        self.set_outputs(Output(sys.stdout, self.prefix), Output(sys.stderr, self.prefix))
        self._dmesg_file = open(self.dmesg, "wb", buffering=0)
        self._dmesg_tail = b""
        self._initrd = directory / f"initrd{number}"
        self._initrd.write_bytes(plan.kernel.initrd.read_bytes()
                                 + job_archive(self._settings(), plan.script))
        self.process = None

    def _settings(self):
        size = shutil.get_terminal_size()
        return {"GUEST": self.number, "GUESTS": self.plan.guests,
                "ADDRESSES": "1" if self.plan.addresses else "",
                "SHARE": "1" if self.plan.share else "",
                "SHELL_WANTED": "1" if self.plan.shell else "",
                "TERM": os.environ.get("TERM", "linux"), "ROWS": size[1],
                "COLUMNS_WANTED": size[0], "TIME": int(time.time())}

    # QEMU

    def start(self):
        self.up = self.ended = False
        self._order = self._deadline = None
        self._close_ports()
        ports = [*PORTS, *(["tty"] if self.plan.shell else [])]
        for name in ports:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            path = self.directory / f"port{self.number}-{name}"
            path.unlink(missing_ok=True)
            listener.bind(str(path))
            listener.listen(1)
            listener.setblocking(False)
            self._listeners[name] = listener
            self._selector.register(listener, selectors.EVENT_READ,
                                    lambda name=name: self._accept(name))
        self.console.touch()
        self._console_seen = self.console.stat().st_size
        self._started = time.monotonic()
        log = open(self.qemu_log, "ab")
        self.process = process.start(self.command(ports), stdin=subprocess.DEVNULL,
                                     stdout=log, stderr=log)
        log.close()

    def command(self, ports):
        plan = self.plan
        kvm = plan.kvm
        append = ["console=ttyS0", "rdinit=/init", "loglevel=4", "panic=0",
                  "modprobe.blacklist=lpc_ich,pcspkr,psmouse"]
        if not kvm:
            # Under emulation these are expensive and protect nothing.
            append += ["mitigations=off", "tsc=reliable", "no_timer_check", f"tsc_early_khz={tsc.khz()}", "cryptomgr.notests",
                       "rcupdate.rcu_expedited=1"]
            # These save a quarter of the instructions up to the first process: a walk through all page tables, a rewrite of each locked
            # instruction for one CPU and another when the second comes, and a source of entropy that tests itself.
            append += ["rodata=off", "noreplace-smp", "initcall_blacklist=jent_mod_init"]
            # Each CPU but the first would count the loops of a timer tick, while the others wait for it.
            append += [f"lpj={tsc.khz() * 1000 // KERNEL_HZ}"]
            # While one CPU patches a static key, another may execute a stale translation of the breakpoint that
            # stands there meanwhile: a race of TCG with several threads that ends in "Oops: int3". Nearly all keys
            # are patched before PID 1 runs; init/start brings the other CPUs online.
            append += ["maxcpus=1"]
        if plan.iommu:
            append += ["intel_iommu=on"]
        append += plan.append
        command = [
            *plan.qemu.command, "-nodefaults", "-no-user-config", "-display", "none",
            "-name", f"softhca-guest{self.number}",
            "-machine", "q35,memory-backend=ram,sata=off,smbus=off,usb=off,vmport=off"
            + (",kernel-irqchip=split" if kvm and plan.iommu else ""),
            "-accel", "kvm" if kvm else "tcg,thread=multi",
            "-cpu", "host" if kvm else EMULATED_PROCESSOR,
            "-smp", str(plan.cpus), "-m", f"{plan.memory}M",
            # vfio-user servers map the guest's memory: it must be shareable.
            "-object", f"memory-backend-memfd,id=ram,size={plan.memory}M,share=on",
            "-kernel", str(plan.kernel.vmlinuz if kvm else plan.kernel.unpacked), "-initrd", str(self._initrd),
            "-append", " ".join(append),
            "-chardev", f"file,id=console,path={self.console},append=on",
            "-serial", "chardev:console",
        ]
        if plan.iommu:
            # Must come before the devices behind it. With caching-mode the guest reports every new
            # mapping, so that QEMU can pass it on to the vfio-user servers.
            command += ["-device", "intel-iommu,caching-mode=on,intremap=on"]
        for name, image in (("root", plan.root), ("modules", plan.kernel.modules)):
            command += ["-drive", f"if=none,id={name},file={image},format=raw,readonly=on",
                        "-device", f"virtio-blk-pci,disable-legacy=on,drive={name},serial={name}"]
        command += ["-device", "virtio-serial-pci,disable-legacy=on,id=ports,max_ports=8"]
        for name in ports:
            kind = "virtconsole" if name == "tty" else "virtserialport"
            command += ["-chardev", f"socket,id={name},path={self.directory}/port{self.number}-"
                        f"{name}", "-device", f"{kind},bus=ports.0,chardev={name},"
                        f"name=softhca.{name}"]
        command += ["-netdev", self._hub.netdev(self.number, self.directory),
                    "-device", "virtio-net-pci,disable-legacy=on,netdev=net,romfile=,"
                    f"mac=52:54:00:68:63:{self.number:02x}"]
        if plan.share:
            command += ["-fsdev", f"local,id=share,path={str(plan.share).replace(',', ',,')},"
                        "security_model=none",
                        "-device", "virtio-9p-pci,disable-legacy=on,fsdev=share,mount_tag=share"]
        for index, path in enumerate(plan.sockets[self.number - 1]):
            # As in a real machine: each device is behind its own root port, whose window holds 64-bit BARs of 32 MiB and
            # more.
            command += ["-device", f"pcie-root-port,id=slot{index},bus=pcie.0,chassis={index + 1},"
                        f"slot={index + 1},addr={0x10 + index // 8:x}.{index % 8:x},"
                        f"multifunction=on,pref64-reserve=128M,hotplug=off",
                        "-device", json.dumps({"driver": "vfio-user-pci", "id": f"device{index}",
                                               "bus": f"slot{index}",
                                               "socket": {"path": path, "type": "unix"}})]
        return command + plan.qemu_arguments

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        if self.process:
            self.process.wait()
        self._read_all()

    def close(self):
        self.kill()
        self._close_ports()
        self._dmesg_file.close()

    # ports

    def _close_ports(self):
        for held in (*self._listeners.values(), *self._connections.values()):
            self._forget(held)
        self._listeners, self._connections, self._ctl_partial = {}, {}, b""

    def _forget(self, held):
        try:
            self._selector.unregister(held)
        except (KeyError, ValueError):
            pass
        held.close()

    def _accept(self, name):
        connection, _ = self._listeners[name].accept()
        connection.setblocking(False)
        self._connections[name] = connection
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(name))

    def _read(self, name):
        """Handles what has arrived on a port; False when there was nothing."""
        connection = self._connections.get(name)
        if connection is None:
            return False
        try:
            data = connection.recv(65536)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._forget(connection)
            del self._connections[name]
            return False
        if name in self._outputs:
            self._outputs[name].write(data)
        elif name == "dmesg":
            self._dmesg_file.write(data)
            self._dmesg_tail = (self._dmesg_tail + data)[-4096:]
        elif name == "tty" and self.tty:
            self.tty(data)
        elif name == "ctl":
            *lines, self._ctl_partial = (self._ctl_partial + data).split(b"\n")
            for line in lines:
                self._handle(line.decode(errors="replace").strip())
        return True

    def _read_all(self):
        for name in PORTS:
            while self._read(name):
                pass

    def send(self, name, data):
        connection = self._connections.get(name)
        if connection:
            connection.setblocking(True)
            try:
                connection.sendall(data)
            except OSError:
                pass
            connection.setblocking(False)

    # guest messages and timeouts

    def _handle(self, line):
        verb, _, rest = line.partition(" ")
        if verb == "hello":
            self.boot += 1
            self._order = self._deadline = None
            self.up = self.ended = False
            self._dmesg_tail = b""
            if self.boot > 1:
                self._dmesg_file.write(f"\n=== boot {self.boot} ===\n".encode())
            self.send("ctl", f"{self.boot}\n".encode())
        elif verb == "up":
            self.up = True
            seconds = time.monotonic() - self._started
            say(f"{self.name}: up after {seconds:.1f} s, boot {self.boot}")
        elif verb == "exit":
            # Wait a moment until the kernel log has arrived up to this point.
            words = rest.split()
            self._exit_seen = int(words[0]), (words[1] if len(words) > 1 else "")
            self._marker = f"softhca: boot {self.boot}: ended".encode(), time.monotonic() + 2

    def poll(self, now):
        """Called several times a second. Sets self.failure when the guest is lost."""
        if self.finished or self.failure:
            return
        if self._exit_seen and (self._marker[0] in self._dmesg_tail or now > self._marker[1]):
            self._boot_ended(*self._exit_seen)
            self._exit_seen = None
        ended = self.process.poll() is not None  # before the last look at the console
        self._watch_console()
        if self.failure:
            return
        if ended:
            self._read_all()
            if self._order == "poweroff":
                self._finish()
            else:
                self.failure = (f"{self.name}: QEMU ended with status {self.process.returncode}"
                                f" before the script did\n{process.tail(self.qemu_log, 8)}")
        elif self._deadline and now > self._deadline:
            self.failure = (f"{self.name}: no {self._order} within {LEAVE_SECONDS} s after "
                            "the script had ended")

    def _boot_ended(self, status, why):
        self._read_all()
        for output in self._outputs.values():
            output.flush()
        self.status = self.status or status
        self.powered_off = why == "poweroff"
        self.ended = True

    # orders of the session

    def set_outputs(self, out, err):
        self._outputs = {"out": out, "err": err}

    def go(self):
        self.up = False
        self.send("ctl", b"go\n")

    def work(self, order):
        """Starts another script, an order of job_order(), in a guest that is up or has ended one."""
        self.up = self.ended = False
        self.status = 0
        self._dmesg_tail = b""  # printed with the end of the previous script
        self.send("ctl", order.encode())

    def leave(self, order):
        """order: reboot or poweroff."""
        self.up = self.ended = False
        self._order = order
        self._started = time.monotonic()
        self._deadline = time.monotonic() + LEAVE_SECONDS
        self.send("ctl", f"{order}\n".encode())

    def restart(self):
        """Restarts QEMU, as after a crash of the host."""
        self.kill()
        self.failure = self._exit_seen = None
        self.start()

    def _watch_console(self):
        try:
            with open(self.console, "rb") as file:
                file.seek(max(0, self._console_seen - 64))
                new = file.read()
                self._console_seen = file.tell()
        except OSError:
            return
        if any(word.encode() in new for word in LAST_WORDS):
            time.sleep(0.5)  # so that it can finish its last output
            last_words = process.tail(self.console, 100)
            start = min((last_words.find(word) for word in LAST_WORDS if word in last_words), default=0)
            self.failure = f"{self.name} stopped: " + \
                "\n".join(last_words[start:].splitlines()[:12])
            if not self.up and EMULATOR_FAULT in last_words:
                self.failure += (f"\n{self.name}: a fault of QEMU's TCG, not of the devices: one CPU executed code that "
                                 "another one was patching")

    def _finish(self):
        for output in self._outputs.values():
            output.flush()
        self.finished = True
