"""Small servers on threads that say exactly the bytes a test wants, for the HTTP room."""

import contextlib
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator

PATIENCE_SECONDS = 30.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"

Script = Callable[["Peer"], object]


class Peer:
    """The server's end of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.received = b""

    def read_request(self) -> bytes:
        """The next whole request; what was there when the client left, if it did."""
        content = b""
        while not self._is_whole(content):
            part = self.socket.recv(65_536)
            if not part:
                break
            content += part
            self.received += part
        return content

    def read_head(self) -> bytes:
        content = b""
        while not content.endswith(b"\r\n\r\n"):
            part = self.socket.recv(1)
            if not part:
                break
            content += part
            self.received += part
        return content

    def read_to_the_end(self) -> None:
        with contextlib.suppress(OSError):
            while part := self.socket.recv(65_536):
                self.received += part

    def send(self, content: bytes) -> None:
        self.socket.sendall(content)

    def answer(self, content: bytes = OK) -> bytes:
        request = self.read_request()
        if request:
            self.send(content)
        return request

    def drip(self, content: bytes, every: float = 0.1, then: Callable[[], None] = int) -> None:
        """One byte after another, until the client has had enough; `then` after the third."""
        with contextlib.suppress(OSError):
            for place in range(len(content)):
                self.send(content[place : place + 1])
                if place == 2:
                    then()
                time.sleep(every)

    def reset(self) -> None:
        """End with an RST: a linger of nothing throws away what is unsent."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    @staticmethod
    def _is_whole(content: bytes) -> bool:
        head, end, body = content.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        return bool(end) and len(body) >= int(length[1] if length else 0)


class Server:
    """Plays its script to every connection, each on a thread, as often as one comes."""

    def __init__(
        self, script: Script, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._script = script
        self._tls = tls
        self._listener = socket.create_server((host, 0), family=family)
        self.port = int(self._listener.getsockname()[1])
        self.host = f"[{host}]" if ":" in host else host
        self.peers: list[Peer] = []
        self._came = threading.Condition()
        self._threads = [threading.Thread(target=self._listen, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.host}:{self.port}/v1/messages"

    def received(self, connections: int = 1) -> list[bytes]:
        """What each of so many connections brought, once their scripts have ended."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.peers) >= connections, PATIENCE_SECONDS)
        for thread in self._threads[1:]:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive(), "a script did not end"
        assert len(self.peers) == connections
        return [peer.received for peer in self.peers]

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.settimeout(PATIENCE_SECONDS)
                thread = threading.Thread(target=self._play, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _play(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._tls:
                connection = self._tls.wrap_socket(connection, server_side=True)
            peer = Peer(connection)
            with self._came:
                self.peers.append(peer)
                self._came.notify_all()
            self._script(peer)
        connection.close()

    def close(self) -> None:
        # A thread that waits in accept() is not woken by close() alone.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextlib.contextmanager
def serving(
    script: Script, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> Iterator[Server]:
    server = Server(script, host=host, tls=tls)
    try:
        yield server
    finally:
        server.close()
