"""Forks: gunicorn's preload, Celery's prefork, multiprocessing."""

import asyncio
import json
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
import unittest
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src"))
from daemon import PATIENCE, Daemon, until
from tenure_client import HELD, LOST, Tenure, TenureEnded, aio

# The tests fork on purpose while other threads run.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)


def in_child(function):
    """What the function returns in a forked child. It fails if the child hangs."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        warnings.simplefilter("ignore", ResourceWarning)  # The copied sockets of the daemon.
        try:
            found = {"ok": function()}
        except BaseException as error:
            found = {"failed": repr(error)}
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.close(writer)
    try:
        if not select.select([reader], [], [], PATIENCE / 2)[0]:
            raise AssertionError("the child hangs")
        found = json.loads(os.read(reader, 1 << 16))
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if "failed" in found:
        raise AssertionError(f"in the child: {found['failed']}")
    return found["ok"]


class Fork(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.client = Tenure(self.daemon.url)

    def test_child_has_no_memberships(self):
        members = [self.client.join("g", name, ttl=3.0) for name in ("a", "b")]
        leases = [member.acquire(f"l-{member.member}") for member in members]

        def child():
            seen = [(m.verdict(), m.ended, m.valid_for(), lease.verdict()) for m, lease in zip(members, leases)]
            with members[0], leases[0]:
                pass
            members[1].leave()
            leases[1].release()
            refused = []
            for act in (
                lambda: members[0].acquire("l"),
                lambda: members[0].claim("r", "k"),
                lambda: members[0].detach("s", "c"),
                lambda: members[0].lost_claims(),
            ):
                try:
                    act()
                except TenureEnded as error:
                    refused.append(error.reason)
            beats = [thread.name for thread in threading.enumerate() if thread.name.startswith("tenure-beats")]
            return [seen, refused, beats]

        seen, refused, beats = in_child(child)
        self.assertEqual(seen, [[LOST, "forked", 0.0, LOST]] * 2)
        self.assertEqual((refused, beats), (["forked"] * 4, []))
        self.daemon.beats(4)
        self.assertEqual([m.verdict() for m in members] + [lease.verdict() for lease in leases], [HELD] * 4)
        self.assertEqual(self.daemon.count("DELETE", ""), 0)
        self.assertEqual(self.daemon.count("POST", "/release"), 0)
        for member in members:
            member.leave()

    def test_child_uses_connections_of_its_own(self):
        before = self.client.join("g", "before", ttl=3.0)

        def child():
            with self.client.join("g", "child", ttl=3.0) as member:
                return [member.tenure, member.acquire("l").token, member.verdict()]

        mine = self.daemon.requests[-1][2]
        first = len(self.daemon.requests)
        tenure, token, verdict = in_child(child)
        theirs = {number for _, path, number in self.daemon.requests[first:] if "before" not in path}
        self.assertEqual((tenure.rpartition("@")[0], verdict), ("child", HELD))
        self.assertNotIn(mine, theirs)
        before.claim("r", "k")
        self.assertIn(("PUT", "/v1/groups/g/registries/r/claims/k", mine), self.daemon.requests)
        self.assertGreater(before.acquire("l").token, token)
        before.leave()

    def test_fork_of_a_busy_process(self):
        members = [self.client.join("g", f"m{n}", ttl=3.0) for n in range(3)]
        stop, failed = threading.Event(), []

        def work(member):
            # Each answer must be the one to this call.
            while not stop.is_set():
                with member.acquire(f"l-{member.member}") as lease:
                    if self.daemon.leases.get(lease.name) != (member.tenure, lease.token):
                        failed.append((lease.name, lease.token))
                    lease.verdict()
                member.verdict()

        threads = [threading.Thread(target=work, args=(member,)) for member in members]
        for thread in threads:
            thread.start()

        def child():
            verdicts = [member.verdict() for member in members]
            with self.client.join("g", "child", ttl=3.0) as member, member.acquire("l", wait=30) as lease:
                return [verdicts, lease.verdict(), member.tenure.startswith("child@")]

        try:
            for _ in range(20):
                self.assertEqual(in_child(child), [[LOST] * 3, HELD, True])
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(failed, [])
        self.assertEqual([member.verdict() for member in members], [HELD] * 3)

    def test_daemon_sees_the_parent_close_a_connection_that_a_child_copied(self):
        stream = self.client.follow("g")
        reading = threading.Thread(target=list, args=(stream,))
        reading.start()
        until(lambda: self.daemon.streams == 1)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(reader, 1)
            os._exit(0)
        stream.close()
        until(lambda: self.daemon.streams == 0, "the end of the stream")
        reading.join()
        os.write(writer, b"x")
        os.waitpid(child, 0)

    def test_stream_goes_on_in_a_child(self):
        event = b'id: %d\ndata: {"id": %d, "type": "t", "at": "now"}\n\n'
        self.daemon.scripts = [event % (1, 1)]
        items = iter(self.client.follow("g"))
        self.assertEqual(next(items).id, 1)

        def send():
            until(lambda: self.daemon.streams == 2, "the stream of the child")
            self.daemon.send(event % (2, 2))

        sending = threading.Thread(target=send)
        sending.start()
        self.assertEqual(in_child(lambda: next(items).id), 2)
        self.assertEqual(next(items).id, 2)
        sending.join()

    def test_multiprocessing(self):
        self.client.join("g", "parent", ttl=3.0)
        SHARED[:] = [self.client]
        with multiprocessing.get_context("fork").Pool(2) as pool:
            tenures = pool.map_async(_join, ["w1", "w2"]).get(PATIENCE)
        self.assertEqual([tenure.rpartition("@")[0] for tenure in tenures], ["w1", "w2"])

    def test_asyncio_client_made_before_the_fork(self):
        client = aio.Tenure(self.daemon.url)

        async def use(name):
            async with await client.join("g", name, ttl=3.0) as member, await member.acquire(f"l-{name}") as lease:
                return [member.tenure.rpartition("@")[0], lease.verdict()]

        self.assertEqual(asyncio.run(use("parent")), ["parent", HELD])
        self.assertEqual(in_child(lambda: asyncio.run(use("child"))), ["child", HELD])
        self.assertEqual(asyncio.run(use("parent")), ["parent", HELD])

    def test_children_end_like_any_process(self):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ends.py")
        done = subprocess.run([sys.executable, script, self.daemon.url, "fork"], capture_output=True, timeout=PATIENCE)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"child ends\nparent ends\n", b""))


SHARED = []


def _join(name):
    with SHARED[0].join("g", name, ttl=3.0) as member:
        return member.tenure


if __name__ == "__main__":
    unittest.main()
