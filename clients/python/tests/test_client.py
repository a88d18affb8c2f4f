"""What the conformance suite cannot see: the clock, paths, threads that must not wait for each other."""

import asyncio
import os
import sys
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src"))
from tenure_client import LOST, Tenure, TenureEnded, aio
from tenure_client import _clock as clock
from tenure_client._http import path


class Daemon:
    """A daemon that answers joins and beats."""

    def __init__(self):
        self.beats, self.beat_status = threading.Semaphore(0), 200
        daemon = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, status, body):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.answer(200, b"{}")

            def do_POST(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.answer(201, b'{"tenure": "a@1"}')

            def do_PUT(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if daemon.beat_status == 200:
                    self.answer(200, b'{"expires_in_ms": 1000}')
                else:
                    self.answer(410, b'{"code": "tenure_ended", "reason": "expelled"}')
                daemon.beats.release()

            def do_DELETE(self):
                self.answer(204, b"")

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"


class Clock(unittest.TestCase):
    def test_counts_suspend_without_boottime(self):
        mono, wall = iter([0.0, 1.0, 2.0, 3.0]), iter([100.0, 101.0, 702.0, 103.0])
        before = clock.time.monotonic, clock.time.time
        clock.time.monotonic, clock.time.time = lambda: next(mono), lambda: next(wall)
        try:
            now = clock._emulated()
            self.assertEqual([now(), now(), now()], [1.0, 602.0, 603.0])
        finally:
            clock.time.monotonic, clock.time.time = before


class Paths(unittest.TestCase):
    def test_names_cannot_leave_their_place(self):
        self.assertEqual(path("groups", "a/b", "x"), "/v1/groups/a%2Fb/x")
        self.assertEqual(path("groups", "..", "x"), "/v1/groups/%2E%2E/x")
        self.assertEqual(path("g", "a@1", limit=3, after=None), "/v1/g/a@1?limit=3")

    def test_url_without_a_host_is_rejected(self):
        with self.assertRaisesRegex(ValueError, "localhost:7717"):
            Tenure("localhost:7717")


class Threads(unittest.TestCase):
    def test_blocked_callback_does_not_stop_the_beats(self):
        daemon, blocked, told = Daemon(), threading.Event(), threading.Event()
        client = Tenure(daemon.url)

        def on_ended(*_):
            told.set()
            blocked.wait()

        first = client.join("g", "a", ttl=1.0, on_ended=on_ended)
        daemon.beat_status = 410
        self.assertTrue(told.wait(60))
        with self.assertRaises(TenureEnded) as caught:
            first.claim("r", "k")
        self.assertEqual((first.verdict(), caught.exception.reason), (LOST, "expelled"))
        daemon.beat_status = 200
        with client.join("g", "a", ttl=1.0):
            for _ in range(3):
                daemon.beats.acquire()
        blocked.set()

    def test_blocked_event_loop_does_not_stop_the_beats(self):
        daemon = Daemon()

        async def block():
            async with await aio.Tenure(daemon.url).join("g", "a", ttl=1.0):
                for _ in range(4):
                    daemon.beats.acquire()

        asyncio.run(block())


if __name__ == "__main__":
    unittest.main()
