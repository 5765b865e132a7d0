"""Counts the requests that reach an embedded server, from the StatsD packets it sends (METHOD 11)."""

import contextlib
import re
import select
import socket
import threading
import time
from pathlib import Path

from scripts.stores.servers import Requests

# Influx flavour: name,tag=value,…:number|c
_METRIC = re.compile(r"^([^,:]+)((?:,[^=,:]+=[^,:]*)*):(-?[0-9.]+)\|c")
_QUIET_S = 0.1


class RequestCounter(Requests):
    """Receives packets on a loopback port from its construction until `close`."""

    def __init__(self) -> None:
        """Bind a free port of 127.0.0.1 and listen."""
        super().__init__()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 23)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def settle(self) -> None:
        """Wait until no packet has come for a while from now on: UDP packets trail their requests."""
        called = time.monotonic()
        while time.monotonic() - max(called, self._last) < _QUIET_S or self._waits():
            time.sleep(0.005)

    def _waits(self) -> bool:
        """Say whether a packet has come that the thread has not taken yet: it may get no core for a while."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def dropped(self) -> int:
        """Return how many packets the kernel has dropped since this counter was made (proc(5), net/udp, drops)."""
        port = f":{int(self.address.rpartition(':')[2]):04X}"
        rows = (line.split() for line in Path("/proc/self/net/udp").read_text(encoding="utf-8").splitlines()[1:])
        return sum(int(row[-1]) for row in rows if row[1].endswith(port))

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(timeout=2)

    def _listen(self) -> None:
        while True:
            try:
                packet = self._socket.recv(65536)
            except OSError:
                return
            if not packet:
                return
            self._last = time.monotonic()
            for line in packet.decode("utf-8", "replace").splitlines():
                self._count(line)

    def _count(self, line: str) -> None:
        match = _METRIC.match(line.strip())
        if not match:
            return
        name = match[1].removeprefix("versitygw.")
        tags = dict(tag.split("=", 1) for tag in match[2].split(",")[1:])
        method, value = tags.get("method", "?"), int(float(match[3]))
        if name in ("success_count", "failed_count"):
            self.count(method, value, failed=name == "failed_count")
        elif name == "bytes_read":
            self.offer(method, value)
