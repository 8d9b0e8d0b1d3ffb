"""A network between client and board that can be cut, and restored: it then goes on as if nothing
had happened, or nobody is there any more."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Proxy:
    """Relays connections to a port of this machine while it is not cut."""

    def __init__(self, port: int) -> None:
        self.target = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._flows = threading.Event()
        self._flows.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Let nothing through; connections stay open, as with a cable that was pulled."""
        self._flows.clear()

    def restore(self) -> None:
        """Let everything through again."""
        self._flows.set()

    def close(self) -> None:
        """Take no more connections."""
        self._server.close()
        self.restore()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                self._flows.wait()
                far = socket.create_connection(("127.0.0.1", self.target))
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._relay, args=(one, other), daemon=True).start()

    def _relay(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                self._flows.wait()
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    """Give a proxy to a port."""
    made = Proxy(port)
    try:
        yield made
    finally:
        made.close()
