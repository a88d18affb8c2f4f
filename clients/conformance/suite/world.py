"""What a case works with, and the list of cases."""

import asyncio
import os
import time

from .daemon import Daemon
from .driver import PATIENCE, Driver, Refused
from .proxy import Proxy

CASES = []

GROUP = "g"


class Case:
    def __init__(self, run, proves, needs, settings, settle, long):
        self.run, self.proves, self.needs = run, proves, needs
        self.settings, self.settle, self.long = settings, settle, long
        self.name = run.__name__
        self.section = run.__module__.rpartition(".")[2]


def case(proves, needs=(), settings=(), settle=True, long=False):
    """Adds a case. `needs` are capabilities of the daemon, `settings` its flags. `long` ones begin first."""

    def add(run):
        CASES.append(Case(run, proves, needs, settings, settle, long))
        return run

    return add


class World:
    """One daemon, and drivers that reach it through a proxy each."""

    def __init__(self, binary, argv, directory, case):
        self.argv, self.directory, self.case = argv, directory, case
        self.daemon = Daemon(binary, directory, case.settings)
        self.drivers, self.proxies = [], []
        # What a case measured; printed with its result.
        self.notes = []

    async def start(self):
        await self.daemon.start()
        if self.case.settle:
            await self.settle()

    async def settle(self):
        status, answer = await self.daemon.api("POST", "/v1/settle", {})
        assert status == 200, f"settle: {status} {answer}"

    async def driver(self, name, token=None, wrapper=()):
        """A driver with a proxy of its own, `driver.proxy`, as the command of a wrapper if that is given."""
        proxy = Proxy()
        await proxy.start(self.daemon.address)
        driver = Driver([*wrapper, *self.argv], name, proxy.url, token, self.directory)
        driver.proxy = proxy
        self.proxies.append(proxy)
        await driver.start()
        self.drivers.append(driver)
        return driver

    async def member(self, name, ttl_ms=30_000, member=None, **options):
        """A driver that has joined; `driver.handle` and `driver.tenure` are its membership."""
        driver = await self.driver(name)

        async def join():
            # On a busy machine the library's time-outs may pass; its retries are the matter of other cases.
            try:
                return await driver.call("join", group=GROUP, member=member or name, ttl_ms=ttl_ms, **options)
            except Refused as refused:
                assert refused.code == "unreachable", refused
                return None

        joined = await self.until(f"{name} has joined", join)
        driver.handle, driver.tenure = joined["handle"], joined["tenure"]
        return driver

    async def wrapped(self, name, ttl_ms=30_000, within=()):
        """A driver inside `tenure join`, whose tenure it acts under. Both reach the daemon through its proxy."""
        wrapper = [self.daemon.binary, "join", "--group", GROUP, "--member", name, "--ttl", f"{ttl_ms}ms", "--"]
        driver = await self.driver(name, wrapper=[*wrapper, *within])

        async def inherit():
            # On a busy machine the wrapper may have lapsed before the program begins; it joins again.
            try:
                return await driver.call("inherit")
            except Refused as refused:
                assert refused.code in ("tenure_ended", "unreachable"), refused
                return None

        inherited = await self.until(f"{name} has inherited", inherit)
        driver.handle, driver.tenure = inherited["handle"], inherited["tenure"]
        return driver

    async def restart(self):
        """Starts the killed daemon again, behind the same proxies."""
        await self.daemon.start()
        for proxy in self.proxies:
            proxy.upstream = self.daemon.address

    async def until(self, what, condition, patience=PATIENCE):
        """Waits until a condition holds, and returns what it returned."""
        end = time.monotonic() + patience
        while True:
            found = await condition()
            if found:
                return found
            if time.monotonic() > end:
                raise AssertionError(f"not within {patience} s: {what}")
            await asyncio.sleep(0.02)

    async def lease(self, lease):
        return await self.daemon.get(f"/v1/groups/{GROUP}/leases/{lease}")

    async def owner(self, registry, key):
        return await self.daemon.get(f"/v1/groups/{GROUP}/registries/{registry}/claims/{key}")

    async def session(self, session):
        return await self.daemon.get(f"/v1/groups/{GROUP}/sessions/{session}")

    async def logged(self, *kinds):
        """The events of the group, of these types, in their order."""
        events, after = [], ""
        while True:
            page = await self.daemon.get(f"/v1/groups/{GROUP}/events?limit=1000&after={after}")
            if page is None or not page["events"]:
                return [event for event in events if event["type"] in kinds or not kinds]
            events += page["events"]
            after = page["next"]

    async def has_event(self, kind, **fields):
        """Waits for an event in the daemon's log."""
        async def look():
            for event in await self.logged(kind):
                if all(event.get(name) == value for name, value in fields.items()):
                    return event
            return None

        return await self.until(f"the event {kind} {fields}", look)

    async def granted(self, driver, lease, **arguments):
        """Acquires a lease as soon as it is free. Beware: it polls."""
        async def ask():
            try:
                return await driver.call("acquire", handle=driver.handle, lease=lease, **arguments)
            except Refused as refused:
                assert refused.code in ("lease_held", "unsettled", "unreachable"), refused
                return None

        return await self.until(f"{driver.name} has {lease}", ask)

    async def becomes(self, driver, verdict):
        """Waits for a verdict of the membership; returns the verdicts that were seen before, in their order."""
        seen = []

        async def ask():
            now = (await driver.call("verdict", handle=driver.handle))["verdict"]
            if not seen or seen[-1] != now:
                seen.append(now)
            return now == verdict

        await self.until(f"the verdict {verdict} of {driver.name}", ask)
        return seen

    async def verdict(self, driver):
        return (await driver.call("verdict", handle=driver.handle))["verdict"]

    async def lease_verdict(self, driver, lease_handle):
        return (await driver.call("lease_verdict", lease_handle=lease_handle))["verdict"]

    async def works(self, driver, lease_handle, name):
        """Starts work in a file and waits for its first lines."""
        file = Work(os.path.join(self.directory, name))
        await driver.call("work", lease_handle=lease_handle, file=file.path, period_ms=10)
        await self.goes_on(file)
        return file

    async def goes_on(self, work, lines=3):
        before = len(work.lines())

        async def more():
            return len(work.lines()) >= before + lines

        await self.until(f"work in {work.path}", more)

    async def close(self):
        for process in [self.daemon, *self.drivers]:
            if process.process and process.process.returncode is None:
                process.thaw()
        failures = []
        for driver in self.drivers:
            try:
                await driver.close()
            except AssertionError as error:
                failures.append(error)
        for driver in self.drivers:
            await driver.kill()
        for proxy in self.proxies:
            await proxy.close()
        await self.daemon.kill()
        if failures:
            raise failures[0]


class Work:
    """The lines that a driver wrote while its verdict was held."""

    def __init__(self, path):
        self.path = path

    def lines(self):
        """Pairs of token and time."""
        try:
            with open(self.path) as file:
                text = file.read()
        except FileNotFoundError:
            return []
        # A line that is being written has no line feed yet.
        return [tuple(map(int, line.split())) for line in text.split("\n")[:-1]]


def follows(first, second):
    """Fails if two workers overlapped or the second had no higher token."""
    last, begin = first.lines()[-1], second.lines()[0]
    assert last[1] < begin[1], f"two worked at once: {last} in {first.path}, {begin} in {second.path}"
    assert last[0] < begin[0], f"the token did not rise: {last[0]}, then {begin[0]}"
