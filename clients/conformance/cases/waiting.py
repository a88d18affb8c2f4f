"""Waiting for a lease."""

from suite.calls import ACQUIRE
from suite.driver import Refused
from suite.world import GROUP, case

PATH = f"/v1/groups/{GROUP}/leases/l/acquire"


async def waits(world, driver, wait_ms=60_000):
    """Begins to wait, and returns once its request has arrived at the daemon."""
    before = (await waiting(world)) or 0
    asked = driver.begin("acquire", handle=driver.handle, lease="l", wait_ms=wait_ms)

    async def queued():
        return (await waiting(world)) > before

    await world.until(f"{driver.name} waits", queued)
    return asked


async def waiting(world):
    lease = await world.lease("l")
    return lease["waiting"] if lease else 0


@case("Waiters are granted the lease in the order in which they came.", needs=("wait",))
async def first_come_first_served(world):
    holder = await world.member("holder")
    held = await holder.call("acquire", handle=holder.handle, lease="l")
    waiters = [await world.member(name) for name in ("b", "c", "d")]
    asked = [await waits(world, waiter) for waiter in waiters]
    last, current = held["token"], (holder, held)
    for waiter, answer in zip(waiters, asked):
        await current[0].call("release", lease_handle=current[1]["lease_handle"])
        grant = await answer
        assert grant["token"] > last and grant["waited_ms"] >= 0, grant
        assert await world.lease_verdict(waiter, grant["lease_handle"]) == "held"
        last, current = grant["token"], (waiter, grant)
    assert [event["member"] for event in await world.logged("lease_granted", "lease_taken_over")] == ["holder", "b", "c", "d"]


@case("A waiter that dies gives up its place: the next one is served while the tenure of the dead one lives on.", needs=("wait",))
async def waiter_killed(world):
    holder, b, c = [await world.member(name, ttl_ms=110_000) for name in ("holder", "b", "c")]
    held = await holder.call("acquire", handle=holder.handle, lease="l")
    dead = await waits(world, b)
    asked = await waits(world, c)
    dead.cancel()
    await b.kill()

    async def one_left():
        return await waiting(world) == 1

    await world.until("the place of the dead waiter is gone", one_left)
    await holder.call("release", lease_handle=held["lease_handle"])
    grant = await asked
    assert grant["token"] > held["token"]
    assert not await world.logged("lapsed")


@case("A wait that is over is a refusal that says so, and leaves no place behind.", needs=("wait",))
async def wait_is_over(world):
    a, b = await world.member("a"), await world.member("b")
    held = await a.call("acquire", handle=a.handle, lease="l")
    refused = await b.refused("acquire", handle=b.handle, lease="l", wait_ms=4_000)
    assert (refused.code, refused.status, refused.outcome) == ("lease_held", 409, "unchanged"), refused
    assert await waiting(world) == 0
    assert b.proxy.count(*ACQUIRE) == 1, "one wait is one request"
    await a.call("release", lease_handle=held["lease_handle"])
    assert await world.lease("l") is None, "nobody asked any more"


@case("A newer request of the same tenure replaces the older one, which is told so and does not ask again.", needs=("wait",))
async def wait_replaced(world):
    a, b = await world.member("a"), await world.member("b")
    await a.call("acquire", handle=a.handle, lease="l")
    asked = await waits(world, b)
    newer = world.daemon.api("POST", PATH, {"tenure": b.tenure, "wait_ms": 1_000})
    status, answer = await newer
    assert (status, answer["code"]) == (409, "lease_held"), answer
    try:
        raise AssertionError(f"the older request must be refused: {await asked}")
    except Refused as refused:
        assert (refused.code, refused.status) == ("wait_replaced", 409), refused
    assert b.proxy.count(*ACQUIRE) == 1


@case("A waiting acquire whose connection breaks is asked again, keeps its turn or joins anew, and is granted.", needs=("wait",))
async def wait_survives_a_broken_connection(world):
    a, b = await world.member("a"), await world.member("b")
    held = await a.call("acquire", handle=a.handle, lease="l")
    asked = await waits(world, b)
    b.proxy.reset_connections()

    async def again():
        return b.proxy.count(*ACQUIRE) >= 2

    await world.until("it asks again", again)
    await a.call("release", lease_handle=held["lease_handle"])
    grant = await asked
    assert (await world.lease("l"))["token"] == grant["token"] > held["token"]
    assert await world.lease_verdict(b, grant["lease_handle"]) == "held"


@case("A wait goes on for as long as was asked behind a proxy that ends each request before it is over.", needs=("wait",))
async def wait_behind_a_proxy_that_cuts(world):
    a, b = await world.member("a", ttl_ms=110_000), await world.member("b", ttl_ms=110_000)
    held = await a.call("acquire", handle=a.handle, lease="l")
    asked = await waits(world, b)
    for _ in range(6):
        before = b.proxy.count(*ACQUIRE)
        b.proxy.reset_connections()

        async def again():
            return b.proxy.count(*ACQUIRE) > before and await waiting(world) == 1  # noqa: B023

        await world.until("it asks again", again)
    await a.call("release", lease_handle=held["lease_handle"])
    grant = await asked
    assert await world.lease_verdict(b, grant["lease_handle"]) == "held"


@case("A wait may be longer than the daemon's limit of a minute.", needs=("wait",))
async def wait_longer_than_a_minute(world):
    a, b = await world.member("a"), await world.member("b")
    held = await a.call("acquire", handle=a.handle, lease="l")
    asked = await waits(world, b, wait_ms=90_000)
    await a.call("release", lease_handle=held["lease_handle"])
    grant = await asked
    assert await world.lease_verdict(b, grant["lease_handle"]) == "held"
