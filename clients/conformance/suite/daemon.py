"""A real daemon with an embedded store in a directory of its own."""

import asyncio
import os
import shutil
import signal
import time

from . import stream


class Daemon:
    def __init__(self, binary, directory, settings):
        self.binary, self.directory, self.settings = binary, directory, settings
        self.process = self.url = self.token = None
        self.store = os.path.join(directory, "data")

    async def start(self):
        os.makedirs(self.store, exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
        arguments = ["serve", "--store", f"sqlite:{self.store}/tenure.db", "--data-dir", self.store]
        with open(os.path.join(self.directory, "daemon.log"), "ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                self.binary, *arguments, "--listen", "127.0.0.1:0", *self.settings,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log, env=environment)
        line = await asyncio.wait_for(self.process.stdout.readline(), 60)
        self.url = line.decode().strip()
        if not self.url:
            raise AssertionError(f"the daemon did not start; see {self.directory}/daemon.log")

    @property
    def address(self):
        host, _, port = self.url.rpartition("/")[2].partition(":")
        return host, int(port)

    async def kill(self):
        if self.process and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def lose_data(self):
        """Removes the file of the store while no daemon runs."""
        shutil.rmtree(self.store)

    async def api(self, method, path, body=None, token=None):
        """A request past all proxies. Returns status and JSON. A disk that is busy for a moment is waited for."""
        end = time.monotonic() + 60
        while True:
            status, answer, _ = await stream.call(self.url, method, path, body, token or self.token)
            if status != 503 or time.monotonic() > end:
                return status, answer
            await asyncio.sleep(0.1)

    async def get(self, path):
        """The answer to a read, or None for 404."""
        status, answer = await self.api("GET", path)
        assert status in (200, 404), f"GET {path}: {status} {answer}"
        return answer if status == 200 else None

    async def capabilities(self):
        """What this daemon can do that older ones cannot, from its own description."""
        document = await self.get("/openapi.json")
        acquire = document["components"]["schemas"]["AcquireRequest"]["properties"]
        paths = document["paths"]
        has = {
            "wait": "wait_ms" in acquire,
            "holders": "holders" in acquire,
            "operator release": "delete" in paths.get("/v1/groups/{g}/leases/{l}", {}),
            "labels": "/v1/groups/{g}/tenures/{t}/labels" in paths,
        }
        return {name for name, is_there in has.items() if is_there}
