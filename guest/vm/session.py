"""One run: server, hub and guests from start to end."""

import os
import selectors
import shutil
import signal
import sys
import tempfile
import termios
import time
import tty
from pathlib import Path

from . import process
from .hub import Hub
from .machine import Guest
from .report import say, warn
from .server import Server

TIMEOUT_STATUS = 124
LOST_STATUS = 125
POLL_SECONDS = 0.1
GRACE_SECONDS = 30  # for the other guests, once the script has failed in one


class Plan:
    """Everything that decides a run; guest/run fills it from its options."""

    def __init__(self, **fields):
        self.__dict__.update(fields)


class Session:
    def __init__(self, plan):
        self.plan = plan
        self.directory = Path(tempfile.mkdtemp(prefix="softhca-guest-"))
        self.selector = selectors.DefaultSelector()
        self.server = None
        self.guests = []
        self.keep = plan.keep
        self._terminal = None
        self._boots_left = plan.boots
        self._restarts_left = plan.restarts
        self._grace_ends = None

    def run(self):
        """Runs everything and returns the exit status."""
        try:
            self._start()
            status = self._loop()
        except KeyboardInterrupt:
            status = 130
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing interrupts the cleaning up
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self._restore_terminal()
            for guest in self.guests:
                guest.close()
            server_status = self.server.end() if self.server else 0
        if server_status and status == 0:
            self._lost(f"softhca serve ended with status {server_status} when told to end:\n"
                       f"{process.tail(self.server.log)}")
            status = LOST_STATUS
        return status

    def _start(self):
        plan = self.plan
        if plan.devices:
            log = plan.server_log or self.directory / "server.log"
            self.server = Server(plan.devices, plan.guests, self.directory, log, plan.pcap,
                                 plan.server_arguments, plan.ports)
            plan.sockets = self.server.sockets
        hub = Hub(self.directory, self.selector)
        for number in range(1, plan.guests + 1):
            guest = Guest(number, plan, self.directory, self.selector, hub)
            self.guests.append(guest)
        say(f"booting {plan.guests} guest{'s' if plan.guests > 1 else ''}: Linux "
            f"{plan.kernel.release}, QEMU {plan.qemu.version}, {'KVM' if plan.kvm else 'TCG'}")
        if not plan.kvm:
            say(f"KVM is not used: {plan.no_kvm}. QEMU emulates the processor (TCG), so times and rates in the guest say "
                "nothing about hardware")
        for guest in self.guests:
            guest.start()
        if plan.shell:
            self._take_terminal()

    def _loop(self):
        deadline = time.monotonic() + self.plan.timeout if self.plan.timeout else None
        while not all(guest.finished for guest in self.guests):
            for key, _ in self.selector.select(POLL_SECONDS):
                key.data()
            now = time.monotonic()
            for guest in self.guests:
                guest.poll(now)
                if guest.failure:
                    return self._lost(guest.failure)
            if self.server and self.server.dead():
                return self._lost(f"{self.server.dead()}\n{process.tail(self.server.log)}")
            late = [guest.name for guest in self.guests if not (guest.ended or guest.finished)]
            if deadline and now > deadline:
                return self._lost(f"{', '.join(late) or 'the run'} did not finish within "
                                  f"{self.plan.timeout:g} s", TIMEOUT_STATUS)
            if self._grace_over(now):
                warn(f"ending {', '.join(late)}: the script failed in another guest "
                     f"{GRACE_SECONDS} s ago")
                break
            self._advance()
        return next((guest.status for guest in self.guests if guest.status), 0)

    def _advance(self):
        """Keeps the boots of all guests in the same phase."""
        if all(guest.up for guest in self.guests):
            for guest in self.guests:
                guest.go()
        if not all(guest.ended for guest in self.guests):
            return
        if self.server:
            self._look_at_server(self.server.own_kib())
        self._boots_left -= 1
        more = not any(guest.status or guest.powered_off for guest in self.guests)
        if more and self._boots_left == 0 and self._restarts_left:
            self._restarts_left -= 1
            self._boots_left = self.plan.boots
            say("killing QEMU, starting another on the same sockets")
            for guest in self.guests:
                guest.restart()
            return
        for guest in self.guests:
            guest.leave("reboot" if more and self._boots_left else "poweroff")

    def _look_at_server(self, kib):
        say(f"server: {kib} KiB of its own after boot {self.guests[0].boot}")
        if self.plan.server_max and kib > self.plan.server_max:
            warn(f"the server's own memory is {kib} KiB, more than {self.plan.server_max}")
            self.guests[0].status = self.guests[0].status or 1

    def _grace_over(self, now):
        if not any(guest.ended and guest.status for guest in self.guests):
            return False
        self._grace_ends = self._grace_ends or now + GRACE_SECONDS
        return now > self._grace_ends

    def _lost(self, text, status=LOST_STATUS):
        """Reports a failure and the paths of the logs, which are kept."""
        self.keep = True
        self._restore_terminal()
        print(f"guest/run: {text}", file=sys.stderr)
        for guest in self.guests:
            print(f"guest/run: {guest.name}: console {guest.console}, kernel log {guest.dmesg}",
                  file=sys.stderr)
        if self.server:
            print(f"guest/run: server log {self.server.log}", file=sys.stderr)
        return status

    def clean(self):
        """Copies the kernel log to its destination, and removes files that are no longer needed."""
        if self.plan.dmesg:
            with open(self.plan.dmesg, "wb") as out:
                for guest in self.guests:
                    if len(self.guests) > 1:
                        out.write(f"=== {guest.name} ===\n".encode())
                    out.write(guest.dmesg.read_bytes())
        if not self.keep:
            shutil.rmtree(self.directory, ignore_errors=True)
            return
        for path in self.directory.iterdir():
            if path.suffix != ".log":
                path.unlink()
        if self.plan.keep:
            print(f"guest/run: logs kept in {self.directory}", file=sys.stderr)

    # --shell: this terminal becomes the guest's

    def _take_terminal(self):
        guest = self.guests[0]

        def show(data):
            os.write(1, data)

        def typed():
            data = os.read(0, 4096)
            if not data:
                self.selector.unregister(0)
                data = b"\x04"
            guest.send("tty", data)

        guest.tty = show
        self.selector.register(0, selectors.EVENT_READ, typed)
        if os.isatty(0):
            self._terminal = termios.tcgetattr(0)
            tty.setraw(0)

    def _restore_terminal(self):
        if self._terminal:
            termios.tcsetattr(0, termios.TCSADRAIN, self._terminal)
            self._terminal = None


def run(plan):
    session = Session(plan)
    try:
        return session.run()
    finally:
        session.clean()
