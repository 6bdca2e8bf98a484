"""cpio archives in the `newc` format, which the kernel unpacks as its initramfs."""

import io
import stat
from pathlib import Path


class Writer:
    """Collects entries; several finished archives may be concatenated by the boot loader."""

    def __init__(self):
        self._out = io.BytesIO()
        self._inode = 0
        self._directories = set()

    def _entry(self, name, mode, data=b"", device=(0, 0)):
        self._inode += 1
        encoded = name.encode() + b"\0"
        fields = (self._inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
        self._out.write(b"070701" + b"".join(b"%08X" % field for field in fields) + encoded)
        self._pad()
        self._out.write(data)
        self._pad()

    def _pad(self):
        self._out.write(b"\0" * (-self._out.tell() % 4))

    def directory(self, name):
        name = name.strip("/")
        if not name or name == "." or name in self._directories:
            return
        self.directory(str(Path(name).parent))
        self._directories.add(name)
        self._entry(name, stat.S_IFDIR | 0o755)

    def file(self, name, data, mode=0o644):
        if isinstance(data, str):
            data = data.encode()
        self.directory(str(Path(name).parent))
        self._entry(name.strip("/"), stat.S_IFREG | mode, data)

    def symlink(self, name, target):
        self.directory(str(Path(name).parent))
        self._entry(name.strip("/"), stat.S_IFLNK | 0o777, target.encode())

    def device(self, name, major, minor, mode=0o600):
        self.directory(str(Path(name).parent))
        self._entry(name.strip("/"), stat.S_IFCHR | mode, device=(major, minor))

    def finish(self):
        self._inode = -1
        self._entry("TRAILER!!!", 0)
        self._out.write(b"\0" * (-self._out.tell() % 512))
        return self._out.getvalue()
