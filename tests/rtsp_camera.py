"""A small RTSP camera for tests: Motion JPEG (RFC 2435) over TCP or UDP, with Basic or Digest authentication."""

from __future__ import annotations

import base64
import hashlib
import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import cv2

from tests.stream_servers import Painter

_REALM, _NONCE = "camera", "5b8f2a"
_LARGEST_PACKET = 1200


@dataclass
class RtspCamera:
    """What it shows, whom it lets in and how. What it was asked is in `requests`, the addresses named in `urls`."""

    paint: Painter
    credentials: tuple[str, str] | None = None
    is_digest: bool = True
    refuses_tcp: bool = False
    frame_s: float = 0.03
    port: int = 0
    requests: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    transports: list[str] = field(default_factory=list)
    mute: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"rtsp://127.0.0.1:{self.port}/stream1"


@contextmanager
def rtsp_camera(camera: RtspCamera) -> Iterator[RtspCamera]:
    """`camera`, listening on a free port."""
    listener = socket.create_server(("127.0.0.1", camera.port))
    camera.port = listener.getsockname()[1]
    camera.stopping.clear()
    held: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            held.append(connection)
            threading.Thread(target=_Session(camera, connection).run, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield camera
    finally:
        camera.stopping.set()
        listener.shutdown(socket.SHUT_RDWR)  # or `accept` goes on holding it
        listener.close()
        for connection in held:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


class _Session:
    """One connection: answers requests, and sends frames after PLAY."""

    def __init__(self, camera: RtspCamera, connection: socket.socket) -> None:
        self._camera, self._connection = camera, connection
        self._stream = connection.makefile("rb")
        self._sending = threading.Lock()
        self._udp: tuple[str, int] | None = None

    def run(self) -> None:
        try:
            while (request := self._next_request()) is not None:
                self._answer(*request)
        except (OSError, ValueError):
            return

    def _next_request(self) -> tuple[str, str, dict[str, str]] | None:
        while True:
            first = self._stream.read(1)
            if not first:
                return None
            if first == b"$":  # a receiver report within the connection
                _, length = struct.unpack(">BH", self._stream.read(3))
                self._stream.read(length)
                continue
            lines = [(first + self._stream.readline()).decode().strip()]
            while line := self._stream.readline().decode().strip():
                lines.append(line)
            method, url, _ = lines[0].split(" ", 2)
            headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
            return method, url, headers

    def _answer(self, method: str, url: str, headers: dict[str, str]) -> None:
        camera = self._camera
        camera.requests.append(method)
        camera.urls.append(url)
        sequence = headers.get("CSeq", "0")
        if method != "OPTIONS" and not self._is_let_in(method, headers.get("Authorization", "")):
            kind = (
                f'Digest realm="{_REALM}", nonce="{_NONCE}"'
                if camera.is_digest
                else f'Basic realm="{_REALM}"'
            )
            self._reply(sequence, "401 Unauthorized", f"WWW-Authenticate: {kind}")
            return
        match method:
            case "DESCRIBE":
                sdp = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=test\r\nt=0 0\r\nm=video 0 RTP/AVP 26\r\n"
                sdp += "c=IN IP4 0.0.0.0\r\na=control:track1\r\na=framerate:30\r\n"
                head = f"Content-Base: {url}/\r\nContent-Type: application/sdp\r\nContent-Length: {len(sdp)}"
                self._reply(sequence, "200 OK", head, sdp)
            case "SETUP":
                self._set_up(sequence, headers["Transport"])
            case "PLAY":
                self._reply(sequence, "200 OK", "Session: 1\r\nRTP-Info: url=track1;seq=0;rtptime=0")
                threading.Thread(target=self._play, daemon=True).start()
            case _:
                self._reply(sequence, "200 OK", "Session: 1\r\nPublic: DESCRIBE, SETUP, PLAY, TEARDOWN")

    def _set_up(self, sequence: str, transport: str) -> None:
        camera = self._camera
        camera.transports.append(transport)
        is_tcp = "TCP" in transport
        if is_tcp and camera.refuses_tcp:
            self._reply(sequence, "461 Unsupported Transport", "Session: 1")
            return
        if not is_tcp:
            ports = re.search(r"client_port=(\d+)", transport)
            assert ports is not None
            self._udp = ("127.0.0.1", int(ports[1]))
            transport += ";server_port=50000-50001"
        self._reply(sequence, "200 OK", f"Session: 1\r\nTransport: {transport}")

    def _is_let_in(self, method: str, header: str) -> bool:
        if self._camera.credentials is None:
            return True
        user, password = self._camera.credentials
        if not self._camera.is_digest:
            return header == "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        given = dict(re.findall(r'(\w+)="([^"]*)"', header))
        if given.get("username") != user:
            return False
        who, what = _md5(f"{user}:{_REALM}:{password}"), _md5(f"{method}:{given.get('uri', '')}")
        return given.get("response") == _md5(f"{who}:{_NONCE}:{what}")

    def _reply(self, sequence: str, status: str, head: str, body: str = "") -> None:
        text = f"RTSP/1.0 {status}\r\nCSeq: {sequence}\r\n{head}\r\n\r\n{body}"
        with self._sending:
            self._connection.sendall(text.encode())

    def _play(self) -> None:
        number = packets = 0
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            while not self._camera.stopping.wait(self._camera.frame_s):
                if self._camera.mute.is_set():
                    continue
                for packet in _packets(self._camera.paint(number), number, packets):
                    packets += 1
                    if self._udp is not None:
                        udp.sendto(packet, self._udp)
                        continue
                    with self._sending:
                        self._connection.sendall(b"$\0" + struct.pack(">H", len(packet)) + packet)
                number += 1
        except OSError:
            return
        finally:
            udp.close()


def _packets(pixels: object, number: int, first_packet: int) -> Iterator[bytes]:
    """One picture as RTP packets; sides have to be multiples of 16."""
    data = cv2.imencode(".jpg", pixels)[1].tobytes()
    tables, scan = b"", b""
    height, width = pixels.shape[:2]  # type: ignore[attr-defined]
    at = 2
    while not scan:
        marker, length = data[at + 1], struct.unpack_from(">H", data, at + 2)[0]
        if marker == 0xDB:
            segment = data[at + 4 : at + 2 + length]
            tables += b"".join(segment[start + 1 : start + 65] for start in range(0, len(segment), 65))
        if marker == 0xDA:
            scan = data[at + 2 + length : -2]
        at += 2 + length
    offset, packet = 0, first_packet
    while offset < len(scan):
        head = struct.pack(">I", offset)  # type-specific 0, then the offset in 24 bits
        head += bytes((1, 255, width // 8, height // 8))
        if offset == 0:
            head += struct.pack(">BBH", 0, 0, len(tables)) + tables
        part = scan[offset : offset + _LARGEST_PACKET]
        offset += len(part)
        is_last = 0x80 if offset >= len(scan) else 0
        stamp = number * 3000 & 0xFFFFFFFF
        yield struct.pack(">BBHII", 0x80, 26 | is_last, packet & 0xFFFF, stamp, 7) + head + part
        packet += 1


def _md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()
