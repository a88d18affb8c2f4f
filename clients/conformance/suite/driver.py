"""A driver program and the lines that it exchanges with the runner."""

import asyncio
import json
import os
import signal

# A busy machine starts interpreters slowly and answers late; the order of events is what the cases check.
PATIENCE = 60


class Refused(Exception):
    """The error of an operation."""

    def __init__(self, op, error):
        super().__init__(f"{op}: {error}")
        self.code = error.get("code")
        self.status = error.get("status")
        self.reason = error.get("reason")
        self.outcome = error.get("outcome")
        self.retry_after_ms = error.get("retry_after_ms")
        self.message = error.get("message", "")


class Driver:
    def __init__(self, argv, name, url, token, directory):
        self.argv, self.name, self.url, self.token = argv, name, url, token
        self.log = os.path.join(directory, f"{name}.log")
        self.events, self.transcript = [], []
        self.process = None
        self._waiting, self._last, self._news = {}, 0, asyncio.Event()

    async def start(self):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
        environment["TENURE_STORE"] = self.url
        if self.token:
            environment["TENURE_TOKEN"] = self.token
        with open(self.log, "ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                env=environment, limit=1 << 23)
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self):
        while True:
            line = await self.process.stdout.readline()
            if not line:
                break
            self.transcript.append("< " + line.decode().rstrip())
            message = json.loads(line)
            if "id" in message:
                future = self._waiting.pop(message["id"], None)
                if future and not future.done():
                    future.set_result(message)
            else:
                self.events.append(message)
                self._news.set()
                self._news = asyncio.Event()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(AssertionError(f"the driver {self.name} ended; see its log"))

    def begin(self, op, **arguments):
        """Sends an operation; the future is its answer."""
        self._last += 1
        line = json.dumps({"id": self._last, "op": op, **{k: v for k, v in arguments.items() if v is not None}})
        future = self._waiting[self._last] = asyncio.get_running_loop().create_future()
        self.transcript.append("> " + line)
        self.process.stdin.write(line.encode() + b"\n")

        async def answer():
            try:
                message = await asyncio.wait_for(future, PATIENCE + arguments.get("wait_ms", 0) / 1000)
            except asyncio.TimeoutError:
                raise AssertionError(f"{self.name} did not answer: {line}") from None
            if "error" in message:
                raise Refused(op, message["error"])
            return message.get("ok")

        return asyncio.ensure_future(answer())

    async def call(self, op, **arguments):
        return await self.begin(op, **arguments)

    async def refused(self, op, **arguments):
        """The error of an operation that has to fail."""
        try:
            answer = await self.begin(op, **arguments)
        except Refused as refused:
            return refused
        raise AssertionError(f"{op} {arguments} must fail, and answered {answer}")

    async def event(self, kind, **fields):
        """Waits for an event with these fields, which may have come already."""
        async def wait():
            while True:
                news = self._news
                for event in self.events:
                    if event["event"] == kind and all(event.get(k) == v for k, v in fields.items()):
                        return event
                await news.wait()

        try:
            return await asyncio.wait_for(wait(), PATIENCE)
        except asyncio.TimeoutError:
            raise AssertionError(f"{self.name}: no event {kind} {fields}; there were {self.events}") from None

    def had(self, kind, **fields):
        return [e for e in self.events if e["event"] == kind and all(e.get(k) == v for k, v in fields.items())]

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    async def kill(self):
        if self.process and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def close(self):
        """Ends stdin; a driver that does not exit by itself is a failure of the case."""
        if self.process is None or self.process.returncode is not None:
            return
        self.process.stdin.close()
        try:
            code = await asyncio.wait_for(self.process.wait(), PATIENCE)
        except asyncio.TimeoutError:
            await self.kill()
            raise AssertionError(f"{self.name} did not exit at the end of its stdin") from None
        assert code == 0, f"{self.name} exited with {code} at the end of its stdin"
