"""The guests' management network: a hub of datagrams between the QEMUs, with no way out."""

import os
import selectors
import socket

FRAME_BYTES_MAX = 65536 + 64


class Hub:
    def __init__(self, directory, selector):
        self.path = str(directory / "hub")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.setblocking(False)
        self._peers = {}
        selector.register(self._socket, selectors.EVENT_READ, self._forward)

    def netdev(self, guest, directory):
        """The -netdev argument of one guest."""
        path = str(directory / f"net{guest}")
        if os.path.exists(path):  # left by a killed QEMU
            os.unlink(path)
        self._peers[path] = guest
        return (f"dgram,id=net,local.type=unix,local.path={path},"
                f"remote.type=unix,remote.path={self.path}")

    def _forward(self):
        for _ in range(64):
            try:
                frame, sender = self._socket.recvfrom(FRAME_BYTES_MAX)
            except BlockingIOError:
                return
            for path in self._peers:
                if path != sender:
                    try:
                        self._socket.sendto(frame, path)
                    except OSError:
                        pass  # full or gone: a hub drops
