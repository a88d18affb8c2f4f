"""Calls whose caller stops waiting: a signal handler raises an exception, or a task is cancelled."""

import asyncio
import os
import signal
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src"))
from daemon import PATIENCE, Daemon, until
from tenure_client import HELD, LOST, Tenure, aio

# What obtains something: the call, the request that does it, and what the daemon has of it.
CALLS = {
    "acquire": (lambda m: m.acquire("l"), "POST", "/acquire$", lambda d: d.leases),
    "wait": (lambda m: m.acquire("l", wait=30), "POST", "/acquire$", lambda d: d.leases),
    "claim": (lambda m: m.claim("r", "k"), "PUT", "/claims/k$", lambda d: d.claims),
    "attach": (lambda m: m.attach("s", "c"), "PUT", "/sessions/s$", lambda d: d.connections),
}


class Interrupted(Exception):
    pass


class Base(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.client = Tenure(self.daemon.url)

    def interrupt_at(self, rule):
        """Sends a signal to this thread once the request has arrived."""

        def handler(*_):
            raise Interrupted

        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, handler))

        def send():
            rule.arrives()
            os.kill(os.getpid(), signal.SIGUSR1)

        threading.Thread(target=send, daemon=True).start()

    def is_given_back(self, found):
        until(lambda: not found(self.daemon), "what was obtained is given back")
        self.daemon.beats()
        self.assertEqual(found(self.daemon), {})


class Signals(Base):
    def test_what_an_interrupted_call_obtained_is_given_back(self):
        for name, (call, method, pattern, found) in CALLS.items():
            for lose in (False, True):
                with self.subTest(name, lose=lose), self.client.join("g", "a", ttl=2.0) as member:
                    rule = self.daemon.rule(method, pattern, hold=True, lose=lose, times=1)
                    self.interrupt_at(rule)
                    with self.assertRaises(Interrupted):
                        call(member)
                    rule.go.set()
                    self.assertTrue(rule.acted.wait(PATIENCE))
                    self.is_given_back(found)
                    self.daemon.requests.clear()
                    # It can be had again.
                    call(member)
                    self.assertEqual(len(found(self.daemon)), 1)
                found(self.daemon).clear()

    def test_interrupted_join_leaves(self):
        for options in ({}, {"patience": 30.0}):
            rule = self.daemon.rule("POST", "/members$", hold=True, times=1)
            self.interrupt_at(rule)
            with self.assertRaises(Interrupted):
                self.client.join("g", "a", ttl=1.0, **options)
            rule.go.set()
            until(lambda: self.daemon.count("DELETE", "/tenures/"), "it leaves")
            until(lambda: not self.daemon.tenures)
            self.assertEqual([t for t in threading.enumerate() if t.name == "tenure-beats-a" and t.join(PATIENCE)], [])
            self.daemon.requests.clear()

    def test_interrupted_reserve_ends_the_engagement(self):
        answer = (200, {"engagement": "x", "status": "reserved"})
        rule = self.daemon.rule("POST", "/reserve$", hold=True, answer=answer)
        self.daemon.rule("PATCH", "/engagements/", answer=answer)
        self.interrupt_at(rule)
        with self.assertRaises(Interrupted):
            self.client.roster("r").reserve()
        rule.go.set()
        until(lambda: self.daemon.count("PATCH", "/engagements/e-"), "the engagement is ended")

    def test_interrupted_release_is_finished(self):
        with self.client.join("g", "a", ttl=2.0) as member:
            lease = member.acquire("l")
            rule = self.daemon.rule("POST", "/release$", hold=True, answer=(503, {"code": "overloaded"}), times=1)
            self.interrupt_at(rule)
            with self.assertRaises(Interrupted):
                lease.release()
            self.assertEqual(lease.verdict(), LOST)
            rule.go.set()
            self.is_given_back(lambda daemon: daemon.leases)

    def test_what_was_held_before_stays(self):
        with self.client.join("g", "a", ttl=2.0) as member:
            for call, method, pattern, found in CALLS.values():
                before = call(member)
                rule = self.daemon.rule(method, pattern, hold=True, times=1)
                self.interrupt_at(rule)
                with self.assertRaises(Interrupted):
                    call(member)
                rule.go.set()
                self.daemon.beats(4)
                self.assertEqual(len(found(self.daemon)), 1)
                if pattern == "/acquire$":
                    self.assertEqual(before.verdict(), HELD)

    def test_signal_handler_may_call(self):
        for _ in range(20):
            member = self.client.join("g", "a", ttl=30.0)
            self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, lambda *_: member.leave()))  # noqa: B023
            threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            while member.verdict() == HELD:
                pass
            self.assertEqual(self.daemon.tenures, {})


class Tasks(Base):
    def test_what_a_cancelled_call_obtained_is_given_back(self):
        async def cancel(call, method, pattern, found):
            async with await aio.Tenure(self.daemon.url).join("g", "a", ttl=2.0) as member:
                rule = self.daemon.rule(method, pattern, hold=True, times=1)
                task = asyncio.ensure_future(call(member))
                await asyncio.to_thread(rule.arrives)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                rule.go.set()
                self.assertTrue(await asyncio.to_thread(rule.acted.wait, PATIENCE))
                await asyncio.to_thread(self.is_given_back, found)
                self.daemon.requests.clear()
                await call(member)
                self.assertEqual(len(found(self.daemon)), 1)
            found(self.daemon).clear()

        for name, (call, method, pattern, found) in CALLS.items():
            with self.subTest(name):
                asyncio.run(cancel(call, method, pattern, found))

    def test_cancelled_release_is_finished(self):
        async def cancel(call):
            task = asyncio.ensure_future(call)
            await asyncio.sleep(0)  # It runs up to its first await.
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        async def release():
            member = await aio.Tenure(self.daemon.url).join("g", "a", ttl=2.0)
            lease = await member.acquire("l")
            await member.claim("r", "k")
            await member.attach("s", "c")
            for call in (lease.release(), member.release_claim("r", "k"), member.detach("s", "c")):
                await cancel(call)
            for found in (lambda d: d.leases, lambda d: d.claims, lambda d: d.connections):
                await asyncio.to_thread(self.is_given_back, found)
            await cancel(member.leave())
            await asyncio.to_thread(until, lambda: not self.daemon.tenures, "it leaves")

        asyncio.run(release())

    def test_join_that_took_too_long_leaves(self):
        rule = self.daemon.rule("POST", "/members$", hold=True, times=1)

        async def join():
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(aio.Tenure(self.daemon.url).join("g", "a", ttl=1.0), 0.2)
            rule.go.set()
            await asyncio.to_thread(until, lambda: self.daemon.count("DELETE", "/tenures/"), "it leaves")

        asyncio.run(join())
        until(lambda: not self.daemon.tenures)
        self.assertEqual([t for t in threading.enumerate() if t.name == "tenure-beats-a" and t.join(PATIENCE)], [])

    def test_cancelled_call_takes_nothing_from_another_task(self):
        async def two():
            async with await aio.Tenure(self.daemon.url).join("g", "a", ttl=2.0) as member:
                rule = self.daemon.rule("POST", "/acquire$", hold=True, times=2)
                tasks = [asyncio.ensure_future(member.acquire("l")) for _ in range(2)]
                await asyncio.to_thread(rule.arrives)
                await asyncio.to_thread(rule.arrives)
                tasks[0].cancel()
                rule.go.set()
                lease = await tasks[1]
                await asyncio.to_thread(self.daemon.beats, 4)
                self.assertEqual((lease.verdict(), self.daemon.leases["l"][1]), (HELD, lease.token))

        asyncio.run(two())

    def test_cancelled_wait_leaves_the_queue(self):
        async def wait():
            client = aio.Tenure(self.daemon.url)
            async with await client.join("g", "a", ttl=2.0) as a, await client.join("g", "b", ttl=2.0) as b:
                lease = await a.acquire("l")
                task = asyncio.ensure_future(b.acquire("l", wait=50))
                await asyncio.to_thread(until, lambda: self.daemon.waiting == 1)
                task.cancel()
                await asyncio.to_thread(until, lambda: self.daemon.waiting == 0)
                self.assertEqual(lease.verdict(), HELD)

        asyncio.run(wait())

    def test_cancelled_follow_ends_its_thread_and_connection(self):
        async def follow(client):
            async for _ in client.follow("g"):
                pass

        async def cancel():
            client = aio.Tenure(self.daemon.url)
            for _ in range(3):
                task = asyncio.ensure_future(follow(client))
                await asyncio.to_thread(until, lambda: self.daemon.streams == 1)
                task.cancel()
                await asyncio.to_thread(until, lambda: self.daemon.streams == 0, "the end of the stream")

        asyncio.run(cancel())

    def test_waits_and_streams_delay_no_other_call(self):
        async def many():
            client = aio.Tenure(self.daemon.url)
            async with await client.join("g", "a", ttl=30.0) as a, await client.join("g", "b", ttl=30.0) as b:
                held = [await a.acquire(f"l{n}") for n in range(280)]
                waiting = [asyncio.ensure_future(b.acquire(lease.name, wait=50)) for lease in held]
                await asyncio.to_thread(until, lambda: self.daemon.waiting == len(held), "all wait")
                await asyncio.wait_for(held[0].release(), PATIENCE / 3)
                self.assertEqual((await waiting[0]).verdict(), HELD)
                for task in waiting:
                    task.cancel()

        asyncio.run(many())


if __name__ == "__main__":
    unittest.main()
