"""Guests that stay: `guest/run --background SOCKET [-- SCRIPT]` boots them, `guest/in SOCKET` runs scripts in them.

A script runs in all guests concurrently, and ends when it has ended in all. Its status is the first that is not 0.

A request is one line of JSON on a connection of its own, together with the asker's stdout and stderr as
descriptors, to which the script's output is written. The answer is one line too:

    {"order": "the line for the guest", "fresh": null | "reboot" | "restart", "timeout": S, "growth_max": KiB | null}
    {"end": true, "growth_max": KiB | null}
    {"control": true}                             also while a script runs: the text is the server's control socket
                                                  -> {"status": N, "text": "a message for the user"}

The requester makes the order from its script (job.job_order), because only the requester can resolve the script's
file name. Guests in which a script failed are not used again: the next script gets a new QEMU for
each, on the same server."""

import json
import os
import selectors
import socket
import sys
import time
from pathlib import Path

from .job import ORDER_BYTES_MAX
from .output import Output
from .report import Problem, say
from .session import GRACE_SECONDS, LOST_STATUS, POLL_SECONDS, TIMEOUT_STATUS, Session

BUSY = "the guest is busy"
ASK_SECONDS = 5
BOOT_SECONDS = 600
END_SECONDS = 90
REQUEST_BYTES_MAX = 2 * ORDER_BYTES_MAX


def address(path):
    """The socket's address through its directory's descriptor, because an address has only 107 bytes."""
    path = Path(path).resolve()
    return f"/proc/self/fd/{os.open(path.parent, os.O_PATH | os.O_DIRECTORY)}/{path.name}"


def ask(path, request, outputs=(1, 2), seconds=None):
    """The answer of the guest behind the socket, or None if there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(address(path))
        except OSError:
            return None
        connection.settimeout(seconds)
        try:
            line = json.dumps(request).encode() + b"\n"
            rest = line[socket.send_fds(connection, [line], outputs):]
            if rest:  # with nothing left, sendall() would fail if the answer has come and the connection is closed
                connection.sendall(rest)
            answer = b""
            while not answer.endswith(b"\n"):
                data = connection.recv(65536)
                if not data:
                    raise Problem(f"{path}: the guest in the background ended without an answer")
                answer += data
            return json.loads(answer)
        except TimeoutError:
            raise Problem(f"{path}: the guest in the background did not answer within {seconds} s") from None
        except (OSError, ValueError) as error:
            raise Problem(f"{path}: the guest in the background cannot be asked: {error}") from None


def failed(path):
    """The file that exists if the guest of this socket did not come up: its end then has nothing to report."""
    return Path(f"{path}.failed")


def start(plan, path):
    """Boots the guest and hands it to a background process. Returns 0 once it is up."""
    answer = ask(path, {"end": True}, seconds=END_SECONDS)  # an earlier guest may still listen there
    if answer and answer["text"] == BUSY:
        raise Problem(f"{path}: a guest is there already, and a script runs in it")
    failed(path).unlink(missing_ok=True)
    asker, caller = os.getppid(), os.getpid()
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        if os.read(reader, 2) == b"up":
            return 0
        failed(path).touch()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or LOST_STATUS
    os.setsid()
    os.close(reader)
    resident = Resident(plan, path, asker, caller, lambda: leave_to_itself(path, writer))
    try:
        status = resident.run()
    except Problem as problem:
        print(f"guest/run: {problem}", file=sys.stderr)
        status = problem.status
    finally:
        resident.clean()
    os._exit(status)


def leave_to_itself(path, writer):
    """Detaches the background process, which then keeps no descriptor of the requester."""
    sys.stdout.flush()
    sys.stderr.flush()
    null, log = os.open(os.devnull, os.O_RDONLY), os.open(f"{path}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.write(writer, b"up")
    os.close(writer)


class Job:
    def __init__(self, connection, request, outputs):
        self.connection = connection
        self.request = request
        self.streams = [os.fdopen(descriptor, "w") for descriptor in outputs]
        self.deadline = time.monotonic() + (request.get("timeout") or 600)
        self.runs = False


def read_job(connection):
    """Reads the request that has begun to arrive. Raises ValueError if it is malformed."""
    line, descriptors, _, _ = socket.recv_fds(connection, 65536, 2)
    try:
        while not line.endswith(b"\n"):
            data = connection.recv(65536)
            if not data or len(line) > REQUEST_BYTES_MAX:
                raise ValueError(f"{len(line)} bytes without an end")
            line += data
        request = json.loads(line)
        if len(descriptors) != 2 or not isinstance(request, dict) or not any(map(request.get, ("end", "order", "control"))):
            raise ValueError("no script, end or question, or without two descriptors")
    except (OSError, ValueError):
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return Job(connection, request, descriptors)


class Resident(Session):
    """A resident guest. It ends on request, or with the process that started it."""

    def __init__(self, plan, path, asker, caller, up):
        super().__init__(plan)
        self._path = path
        self._asker = asker
        self._caller = caller  # the process that waits until the guest is up
        self._tell_up = up
        self._job = None
        self._end = None  # the requester of the end
        self._stale = False  # the next script wants a new QEMU
        self._mishaps = []  # failures while no script ran
        self._first_kib = None  # of the server's heap, when the guests were up and the first script had ended

    def run(self):
        status = super().run()
        if self._mishaps:
            status = LOST_STATUS
        if self._end:
            self._reply(self._end, status, "\n".join(self._mishaps))
        return status

    def _loop(self):
        status = self._until("up", "is not up")
        if status == 0 and self.plan.script:
            status = self._run_first_script()
        if status:
            return status
        self._first_kib = self.server.heap_kib() if self.server else None
        listener = self._listen()
        self._tell_up()
        try:
            while not (self._end and (self._all("finished") or self._stale)):
                self._turn()
                self._look_after()
                if not self._alive(self._asker):
                    say("who asked for this guest has gone")
                    break
        finally:
            Path(self._path).unlink(missing_ok=True)
            listener.close()
        if self._end and self.server and not self.server.dead():
            text = self._judge_memory(self._end.request)
            self._mishaps += [text] if text else []
        return 0

    def _until(self, state, late):
        """0 when all guests are in that state, else the status of the whole."""
        deadline = time.monotonic() + (self.plan.timeout or BOOT_SECONDS)
        while not self._all(state):
            self._turn()
            for guest in self.guests:
                if guest.failure:
                    return self._lost(guest.failure)
                if time.monotonic() > deadline and not getattr(guest, state):
                    return self._lost(f"{guest.name} {late} in time", TIMEOUT_STATUS)
            if os.getppid() != self._caller or not self._alive(self._asker):
                return 130
        return 0

    def _run_first_script(self):
        for guest in self.guests:
            guest.go()
        status = self._until("ended", "did not finish the first script")
        if status == 0 and (status := next((guest.status for guest in self.guests if guest.status), 0)):
            self._lost("the first script failed", status)
        return status

    def _turn(self):
        for key, _ in self.selector.select(POLL_SECONDS):
            key.data()
        for guest in self.guests:
            guest.poll(time.monotonic())

    def _all(self, *states):
        """True if each guest is in one of the states (up, ended, finished)."""
        return all(any(getattr(guest, state) for state in states) for guest in self.guests)

    @staticmethod
    def _alive(process):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True

    def _lost(self, text, status=LOST_STATUS):
        self._mishaps.append(text)
        return super()._lost(text, status)

    # requests

    def _listen(self):
        Path(self._path).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(address(self._path))
        listener.listen(4)
        self.selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
        return listener

    def _accept(self, listener):
        connection, _ = listener.accept()
        connection.settimeout(ASK_SECONDS)
        try:
            job = read_job(connection)
        except (OSError, ValueError) as error:
            say(f"a request that cannot be read: {error}")
            connection.close()
            return
        if job.request.get("control"):
            self._reply(job, 0, self.server.control if self.server else "")
        elif self._job or self._end:
            self._reply(job, LOST_STATUS, BUSY)
        elif job.request.get("end"):
            self._begin_end(job)
        else:
            self._begin(job)

    def _begin(self, job):
        self._job = job
        self.selector.register(job.connection, selectors.EVENT_READ, self._asker_left)
        fresh = "restart" if self._stale else job.request.get("fresh")
        self._stale = False
        for guest in self.guests:
            if fresh == "reboot":
                guest.leave("reboot")
            elif fresh == "restart":
                guest.restart()
        if not fresh and self._all("up", "ended"):
            self._hand_over(job)

    def _hand_over(self, job):
        job.runs = True
        self._grace_ends = None
        for guest in self.guests:
            guest.set_outputs(*(Output(stream, guest.prefix) for stream in job.streams))
            guest.work(job.request["order"])

    def _asker_left(self):
        """The requester of the script has disconnected, so the script is abandoned."""
        self._stale = True
        self._finish_job(LOST_STATUS, "")

    def _begin_end(self, job):
        self._end = job
        if not self._stale and self._all("up", "ended"):
            for guest in self.guests:
                guest.leave("poweroff")
        else:
            self._stale = True

    def _look_after(self):
        job = self._job
        if self._stale:
            return
        failure = next((guest.failure for guest in self.guests if guest.failure), None)
        if self.server and not failure:
            failure = self.server.dead()
        if failure:
            self._give_up(failure, LOST_STATUS, failure)
        elif job and not job.runs and self._all("up"):
            self._hand_over(job)
        elif job and job.runs and (self._all("ended") or self._grace_over(time.monotonic())):
            self._script_ended(job)
        elif job and time.monotonic() > job.deadline:
            late = ", ".join(guest.name for guest in self.guests if not guest.ended)
            self._give_up(f"{late} did not finish the script in time", TIMEOUT_STATUS, "not finished in time")

    def _give_up(self, text, status, answer):
        """The guests are lost. A running script gets the failure as its result; otherwise the end reports it (_mishaps)."""
        self._stale = True
        self._lost(text)
        if self._job:
            self._mishaps.pop()  # it is this script's
            self._finish_job(status, f"{answer}\n{self._logs()}")

    def _logs(self):
        return "\n".join(f"console {guest.console}, kernel log {guest.dmesg}" for guest in self.guests)

    def _script_ended(self, job):
        status = next((guest.status for guest in self.guests if guest.status), 0)
        text = ""
        late = [guest.name for guest in self.guests if not guest.ended]
        if late:
            text = f"ended {', '.join(late)}: the script failed in another guest {GRACE_SECONDS} s ago"
        elif self.server and status == 0:
            text = self._judge_memory(job.request)
            status = 1 if text else 0
        self._stale = status != 0 or any(guest.powered_off for guest in self.guests)
        self._finish_job(status, text)

    def _finish_job(self, status, text):
        job, self._job = self._job, None
        self.selector.unregister(job.connection)
        for guest in self.guests:
            guest.set_outputs(Output(sys.stdout, guest.prefix), Output(sys.stderr, guest.prefix))
        self._reply(job, status, text)

    def _judge_memory(self, request):
        """The fault of the server's memory use as text, or ''."""
        now = self.server.heap_kib()
        most = request.get("growth_max")
        if now is None or self._first_kib is None:
            return "" if most is None else "the server did not tell how large its heap is"
        grown = now - self._first_kib
        say(f"server: {self.server.own_kib()} KiB of its own; its heap has grown by {grown} KiB since the guest was up")
        return "" if most is None or grown <= most else f"the server's heap has grown by {grown} KiB, by more than {most} KiB"

    def _reply(self, job, status, text):
        try:
            job.connection.sendall(json.dumps({"status": status, "text": text}).encode() + b"\n")
        except OSError:
            pass
        job.connection.close()
        for stream in job.streams:
            try:
                stream.close()
            except OSError:
                pass
