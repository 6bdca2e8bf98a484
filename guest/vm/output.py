"""The stream of the host that gets the output of a guest."""

import os


class Output:
    """A host stream for a guest's bytes. With several guests, each line has a prefix."""

    def __init__(self, stream, prefix):
        self._stream = stream.buffer
        self._prefix = prefix
        self._partial = b""

    def write(self, data):
        if not self._prefix:
            self._put(data)
            return
        *lines, self._partial = (self._partial + data).split(b"\n")
        if lines:
            self._put(b"".join(self._prefix + line + b"\n" for line in lines))

    def flush(self):
        if self._partial:
            self._put(self._prefix + self._partial + b"\n")
            self._partial = b""

    def _put(self, data):
        try:
            self._stream.write(data)
            self._stream.flush()
        except BrokenPipeError:  # the reader has left (`| head`); the script goes on
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
