"""A proxy between one driver and the daemon that injects faults.

It reads whole requests, so a fault can be for a chosen call. As in TCP, a connection that lost bytes never continues: it stays
silent until the fault is over and is reset then.
"""

import asyncio
import json
import re
import socket
import struct
import time

from .stream import Closed, answer, has_no_body, read_chunk, read_head, read_request

PASS, BLACK_HOLE, HALF_OPEN, CUT = "pass", "black hole", "half open", "cut"


class Rule:
    """A fault for the next requests that match. `hits` counts them."""

    def __init__(self, method, path, action, times, argument):
        self.methods, self.path = method.split("|"), re.compile(path + r"(\?.*)?$")
        self.action, self.left, self.argument = action, times, argument
        self.hits = 0
        self.requests = []
        self.statuses = []
        self.released = asyncio.Event()

    def takes(self, request):
        if not self.left or request.method not in self.methods or not self.path.search(request.path):
            return False
        self.left -= 1
        self.hits += 1
        self.requests.append(request)
        return True

    def stop(self):
        self.left = 0


class Proxy:
    """One address that stays the same in all modes."""

    def __init__(self):
        self.mode, self.delay, self.drip = PASS, 0.0, 0.0
        self.changed = asyncio.Event()
        self.rules = []
        self.log = []
        self.upstream = None
        self._server = None
        self._tasks, self._connections = set(), set()

    async def start(self, upstream):
        self.upstream = upstream
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, limit=1 << 23)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.url = f"http://{host}:{port}"

    async def close(self):
        if self._server:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def set(self, mode):
        """Changes how traffic is handled. Connections that lost bytes, and all when it is cut, are reset."""
        self.mode = mode
        self.changed.set()
        self.changed = asyncio.Event()

    def reset_connections(self):
        """Resets the connections of now; new ones pass."""
        for connection in list(self._connections):
            connection.reset()

    def _rule(self, method, path, action, times, argument=None):
        rule = Rule(method, path, action, times, argument)
        self.rules.append(rule)
        return rule

    def drop_answer(self, method, path, silent=False, times=1):
        """The daemon acts; its answer is lost. The connection is closed, or stays silent."""
        return self._rule(method, path, "drop", times, silent)

    def hold_request(self, method, path, times=1):
        """The request reaches the daemon only after `rule.released.set()`, also when its sender has gone."""
        return self._rule(method, path, "hold", times)

    def replace_answer(self, method, path, status, body, times=1, headers=None):
        """The daemon does not see the request."""
        return self._rule(method, path, "replace", times, (status, body, headers))

    def garble_answers(self, method, path, answers):
        """The daemon acts; one of these answers, in turn, takes the place of its own."""
        return self._rule(method, path, "garble", -1, answers)

    def delay_answer(self, method, path, seconds, times=1):
        return self._rule(method, path, "delay", times, seconds)

    def edit_answers(self, edit):
        """Changes the JSON of every answer."""
        return self._rule("*", "", "edit", -1, edit)

    def count(self, method, path):
        """How many such requests arrived."""
        wanted = re.compile(path + r"(\?.*)?$")
        return sum(1 for _, request in self.log if request.method in method.split("|") and wanted.search(request.path))

    def _edit(self):
        return next((rule.argument for rule in self.rules if rule.action == "edit" and rule.left), None)

    async def _accepted(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        connection = Connection(self, reader, writer)
        self._connections.add(connection)
        try:
            await connection.serve()
        except (Closed, ConnectionError, OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            self._connections.discard(connection)
            connection.reset()


async def either(*tasks):
    """Waits for the first of these tasks and cancels the others."""
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Connection:
    """One connection of the driver, and the daemon's end of it."""

    def __init__(self, proxy, reader, writer):
        self.proxy, self.reader, self.writer = proxy, reader, writer
        self.up_reader = self.up_writer = None

    def reset(self):
        for writer in (self.writer, self.up_writer):
            if writer is None or writer.is_closing():
                continue
            connection = writer.get_extra_info("socket")
            if connection is not None and writer is self.writer:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def serve(self):
        while True:
            await self._blocked()
            request = await self._until_cut(read_request(self.reader))
            self.proxy.log.append((time.monotonic(), request))
            await self._blocked()
            await self._serve(request)

    async def _blocked(self):
        """Silent while the network is; reset afterwards."""
        mode = self.proxy.mode
        if mode == CUT:
            raise Closed
        if mode == BLACK_HOLE:
            await self._silent()
            raise Closed

    async def _silent(self):
        """Says nothing until the mode changes or the driver hangs up."""
        over = asyncio.ensure_future(self.proxy.changed.wait())
        gone = asyncio.ensure_future(self._hung_up())
        await either(over, gone)

    async def _until_cut(self, work):
        """The result of a read, unless the network is cut or falls silent first."""
        work = asyncio.ensure_future(work)
        cut = asyncio.ensure_future(self._is_cut())
        await either(work, cut)
        if work.cancelled():
            raise Closed
        return work.result()

    async def _serve(self, request):
        rule = next((rule for rule in self.proxy.rules if rule.takes(request)), None)
        action = rule.action if rule else None
        if action == "replace":
            status, body, headers = rule.argument
            self.writer.write(answer(status, body, headers))
            await self.writer.drain()
            return
        if action == "hold":
            await self._hold(rule, request)
        response = await self._forward(request)
        if action == "garble":
            await self._body(request, response)
            self.writer.write(answer(*rule.argument[rule.hits % len(rule.argument)]))
            await self.writer.drain()
            return
        if action == "drop":
            await self._body(request, response)
            rule.statuses.append(response.status)
            if rule.argument:
                await self._silent()
            raise Closed
        if action == "delay":
            await asyncio.sleep(rule.argument)
        await self._reply(request, response)

    async def _hold(self, rule, request):
        """Delivers a request late, on a connection that outlives its sender."""
        raw, upstream = request.raw(), self.proxy.upstream

        async def deliver():
            await rule.released.wait()
            reader, writer = await asyncio.open_connection(*upstream, limit=1 << 23)
            writer.write(raw)
            response = await read_head(reader)
            rule.statuses.append(response.status)
            writer.close()

        task = asyncio.ensure_future(deliver())
        self.proxy._tasks.add(task)
        task.add_done_callback(self.proxy._tasks.discard)
        await self._silent()
        raise Closed

    async def _forward(self, request):
        if self.up_writer is None or self.up_writer.is_closing() or self.up_reader.at_eof():
            self.up_reader, self.up_writer = await asyncio.open_connection(*self.proxy.upstream, limit=1 << 23)
        self.up_writer.write(request.raw())
        await self.up_writer.drain()
        head = asyncio.ensure_future(read_head(self.up_reader))
        # A driver that hangs up while it waits is seen by the daemon.
        await either(head, asyncio.ensure_future(self._hung_up()), asyncio.ensure_future(self._is_cut()))
        if head.cancelled():
            raise Closed
        return head.result()

    async def _hung_up(self):
        while not self.reader.at_eof() and self.reader.exception() is None:
            await asyncio.sleep(0.02)

    async def _is_cut(self):
        while self.proxy.mode not in (CUT, BLACK_HOLE):
            await self.proxy.changed.wait()
        if self.proxy.mode == BLACK_HOLE:
            await self._silent()

    async def _body(self, request, response):
        body = b""
        if has_no_body(request, response):
            return body
        if response.is_chunked:
            size = 1
            while size:
                size, _, data = await read_chunk(self.up_reader)
                body += data[:size]
            return body
        try:
            return await self.up_reader.readexactly(response.length)
        except asyncio.IncompleteReadError:
            raise Closed from None

    async def _reply(self, request, response):
        if self.proxy.delay:
            await asyncio.sleep(self.proxy.delay)
        if "text/event-stream" in response.headers.get("content-type", ""):
            await self._stream(response)
            return
        body = await self._body(request, response)
        edit = self.proxy._edit()
        if edit and body:
            body = json.dumps(edit(json.loads(body))).encode()
        if self.proxy.mode != PASS:
            await self._silent()
            raise Closed
        await self._write(self._head(response, body) + body)
        if "close" in response.headers.get("connection", "").lower():
            self.writer.close()
            raise Closed

    async def _write(self, data):
        """Writes a whole response, or byte by byte while answers drip."""
        if self.proxy.drip:
            for at in range(len(data)):
                if not self.proxy.drip or self.reader.at_eof():
                    raise Closed
                self.writer.write(data[at:at + 1])
                await asyncio.sleep(self.proxy.drip)
            return
        self.writer.write(data)
        await self.writer.drain()

    def _head(self, response, body):
        if not (response.is_chunked or self.proxy._edit()):
            return response.head
        lines = [response.first]
        lines += [f"{name}: {value}" for name, value in response.headers.items()
                  if name not in ("transfer-encoding", "content-length")]
        lines.append(f"content-length: {len(body)}")
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"

    async def _stream(self, response):
        """Passes a stream on, chunk by chunk."""
        self.writer.write(response.head)
        size = 1
        while size:
            size, line, data = await self._until_cut(read_chunk(self.up_reader))
            if self.proxy.mode != PASS:
                await self._silent()
                raise Closed
            self.writer.write(line + data)
            await self.writer.drain()
        self.writer.close()
        raise Closed
