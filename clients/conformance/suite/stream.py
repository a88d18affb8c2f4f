"""HTTP/1.1 messages on asyncio streams, as much of them as the proxy and the runner need."""

import asyncio
import json
from urllib.parse import urlsplit

HEAD_END = b"\r\n\r\n"


class Closed(Exception):
    """The peer closed or reset the connection."""


class Message:
    """A request or a response: its first line, its headers in lower case, its bytes as received."""

    def __init__(self, head):
        self.head = head
        lines = head.decode("latin-1").split("\r\n")
        self.first = lines[0]
        self.headers = {}
        for line in lines[1:]:
            if line:
                name, _, value = line.partition(":")
                self.headers[name.strip().lower()] = value.strip()
        self.body = b""

    @property
    def method(self):
        return self.first.split(" ")[0]

    @property
    def path(self):
        return self.first.split(" ")[1]

    @property
    def status(self):
        return int(self.first.split(" ")[1])

    @property
    def length(self):
        return int(self.headers.get("content-length", 0))

    @property
    def is_chunked(self):
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    def json(self):
        return json.loads(self.body) if self.body else None

    def raw(self):
        return self.head + self.body


async def read_head(reader):
    try:
        return Message(await reader.readuntil(HEAD_END))
    except (asyncio.IncompleteReadError, ConnectionError, OSError):
        raise Closed from None


async def read_chunk(reader):
    """The bytes of one chunk with its framing; the last one carries the trailer."""
    try:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        if size:
            return size, line, await reader.readexactly(size + 2)
        trailer = await reader.readuntil(b"\r\n")
        while trailer[-4:] != HEAD_END and trailer != b"\r\n":
            trailer += await reader.readuntil(b"\r\n")
        return 0, line, trailer
    except (asyncio.IncompleteReadError, ConnectionError, OSError):
        raise Closed from None


async def read_request(reader):
    """A whole request. A chunked body is kept with its framing."""
    message = await read_head(reader)
    if message.is_chunked:
        size = 1
        while size:
            size, line, data = await read_chunk(reader)
            message.body += line + data
    elif message.length:
        try:
            message.body = await reader.readexactly(message.length)
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            raise Closed from None
    return message


def has_no_body(request, response):
    return request.method == "HEAD" or response.status in (204, 304) or response.status < 200


async def read_response(reader, request):
    """A whole response whose length is known; a chunked one is unpacked."""
    message = await read_head(reader)
    if has_no_body(request, message):
        return message
    if message.is_chunked:
        size = 1
        while size:
            size, _, data = await read_chunk(reader)
            message.body += data[:size]
        message.head = b""
    else:
        try:
            message.body = await reader.readexactly(message.length)
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            raise Closed from None
    return message


def answer(status, body, headers=None):
    """The bytes of a response with a JSON body, or with these bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = "application/problem+json" if status >= 400 else "application/json"
    headers = {"Content-Type": kind, "Content-Length": len(data), **(headers or {})}
    lines = [f"HTTP/1.1 {status} Replaced", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode("latin-1") + HEAD_END + data


async def call(url, method, path, body=None, token=None, timeout=15):
    """A request of the runner itself, past the proxy. Returns status, JSON and headers."""
    parts = urlsplit(url)

    async def once():
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            data = b"" if body is None else json.dumps(body).encode()
            lines = [f"{method} {path} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close"]
            if body is not None:
                lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
            if token:
                lines.append(f"Authorization: Bearer {token}")
            head = "\r\n".join(lines).encode("latin-1") + HEAD_END
            writer.write(head + data)
            await writer.drain()
            response = await read_response(reader, Message(head))
            return response.status, response.json(), response.headers
        finally:
            writer.close()

    return await asyncio.wait_for(once(), timeout)
