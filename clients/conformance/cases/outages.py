"""Networks and daemons that fail."""

import asyncio

from suite.calls import BEAT, CLAIM
from suite.proxy import BLACK_HOLE, CUT, HALF_OPEN, PASS
from suite.world import GROUP, case, follows


async def beats(world, driver, count=2):
    before = driver.proxy.count(*BEAT)

    async def more():
        return driver.proxy.count(*BEAT) >= before + count

    await world.until(f"{count} beats of {driver.name}", more)


async def recovers(world, driver):
    """It is held again under the tenure that it had, and was never told of an end."""
    await world.becomes(driver, "held")
    now = await driver.call("verdict", handle=driver.handle)
    assert now["tenure"] == driver.tenure, now
    assert not driver.had("ended") and not driver.had("rejoined"), driver.events


@case("A client whose network falls silent stops work before the store gives its lease away, and joins again afterwards.")
async def black_hole(world):
    b = await world.member("b")
    a = await world.member("a", ttl_ms=4_000)
    held = await a.call("acquire", handle=a.handle, lease="l")
    first = await world.works(a, held["lease_handle"], "first")
    a.proxy.set(BLACK_HOLE)
    granted = await world.granted(b, "l")
    second = await world.works(b, granted["lease_handle"], "second")
    assert await world.lease_verdict(a, held["lease_handle"]) == "lost"
    a.proxy.set(PASS)
    await a.event("rejoined")
    await a.event("lease_lost", lease_handle=held["lease_handle"])
    assert await world.lease_verdict(a, held["lease_handle"]) == "lost", "a new tenure does not bring the lease back"
    await world.goes_on(second)
    follows(first, second)


@case("The same when connections are cut instead of silent.")
async def cut_off(world):
    b = await world.member("b")
    a = await world.member("a", ttl_ms=4_000)
    held = await a.call("acquire", handle=a.handle, lease="l")
    first = await world.works(a, held["lease_handle"], "first")
    a.proxy.set(CUT)
    granted = await world.granted(b, "l")
    second = await world.works(b, granted["lease_handle"], "second")
    a.proxy.set(PASS)
    await a.event("rejoined")
    follows(first, second)


@case("Beats that arrive but are not answered do not count: the lease is lost for good, the membership recovers.")
async def half_open(world):
    a = await world.member("a", ttl_ms=4_000)
    held = await a.call("acquire", handle=a.handle, lease="l")
    work = await world.works(a, held["lease_handle"], "first")
    a.proxy.set(HALF_OPEN)
    await world.becomes(a, "lost")
    await a.event("lease_lost", lease_handle=held["lease_handle"])
    lines = len(work.lines())
    member = await world.daemon.get(f"/v1/groups/{GROUP}/members/a")
    assert member["alive"] and member["tenure"] == a.tenure, "at the store it never ended"
    a.proxy.set(PASS)
    await recovers(world, a)
    assert await world.lease_verdict(a, held["lease_handle"]) == "lost"
    # Nobody works under it here, so it must not stay taken as long as the member lives.
    b = await world.member("b")
    granted = await world.granted(b, "l")
    assert granted["token"] > held["token"]
    assert len(work.lines()) == lines, "the old handle does not work again"
    assert await a.call("verdict", handle=a.handle) == {"verdict": "held", "tenure": a.tenure}


@case("A lease that was lost by time is acquired again under the tenure that recovered, and stays.", long=True)
async def lost_by_time_and_acquired_again(world):
    a = await world.member("a", ttl_ms=5_000)
    held = await a.call("acquire", handle=a.handle, lease="l")
    a.proxy.set(HALF_OPEN)
    await a.event("lease_lost", lease_handle=held["lease_handle"])
    a.proxy.set(PASS)
    await recovers(world, a)
    # It may be about to give the lost lease back.
    again = await world.granted(a, "l")
    assert again["token"] >= held["token"]
    await beats(world, a, 4)
    assert await a.call("lease_verdict", lease_handle=again["lease_handle"]) == {"verdict": "held", "token": again["token"]}
    assert await world.lease_verdict(a, held["lease_handle"]) == "lost"
    assert (await world.lease("l"))["token"] == again["token"]


@case("A short silence of the network costs nothing: no verdict but held, the same tenure, the same lease.", long=True)
async def short_outage(world):
    a = await world.member("a", ttl_ms=20_000)
    held = await a.call("acquire", handle=a.handle, lease="l")
    a.proxy.set(BLACK_HOLE)
    await a.refused("owner", group=GROUP, registry="r", key="k")
    a.proxy.set(PASS)
    await beats(world, a)
    assert await world.verdict(a) == "held"
    assert await a.call("lease_verdict", lease_handle=held["lease_handle"]) == {"verdict": "held", "token": held["token"]}
    assert not a.events


@case("Slow answers within the time-outs change nothing.", long=True)
async def slow_answers(world):
    a = await world.member("a", ttl_ms=9_000)
    a.proxy.delay = 0.2
    held = await a.call("acquire", handle=a.handle, lease="l")
    assert (await a.call("claim", handle=a.handle, registry="r", key="k"))["outcome"] == "new"
    await beats(world, a, 4)
    assert await world.verdict(a) == "held"
    assert await world.lease_verdict(a, held["lease_handle"]) == "held"
    await a.call("release", lease_handle=held["lease_handle"])
    assert not a.events


@case("A daemon that is stopped past the ttl ends no member: verdicts are lost meanwhile and held again after.")
async def frozen_daemon(world):
    a = await world.member("a", ttl_ms=4_000)
    b = await world.member("b", ttl_ms=4_000)
    held = await a.call("acquire", handle=a.handle, lease="l")
    work = await world.works(a, held["lease_handle"], "work")
    world.daemon.freeze()
    await world.becomes(a, "lost")
    await world.becomes(b, "lost")
    lines = len(work.lines())
    world.daemon.thaw()
    await recovers(world, a)
    await recovers(world, b)
    assert not await world.logged("lapsed")
    assert len(work.lines()) == lines and await world.lease_verdict(a, held["lease_handle"]) == "lost"


@case("A daemon that is killed and started again on its file: members, claims, leases and tokens are what they were.", long=True)
async def daemon_restarted(world):
    a = await world.member("a", ttl_ms=30_000)
    held = await a.call("acquire", handle=a.handle, lease="l")
    await a.call("claim", handle=a.handle, registry="r", key="k")
    await world.daemon.kill()
    await world.restart()
    await beats(world, a)
    assert await a.call("verdict", handle=a.handle) == {"verdict": "held", "tenure": a.tenure}
    assert await a.call("lease_verdict", lease_handle=held["lease_handle"]) == {"verdict": "held", "token": held["token"]}
    claim = await a.call("owner", group=GROUP, registry="r", key="k")
    assert claim["tenure"] == a.tenure and claim["alive"], claim
    await a.call("release", lease_handle=held["lease_handle"])
    again = await a.call("acquire", handle=a.handle, lease="l")
    assert again["token"] > held["token"]
    assert not a.events


@case("The store lost its data: members learn unknown, join again and claim again; no lease is granted before the wait is over.")
async def data_loss(world):
    a = await world.member("a", ttl_ms=6_000)
    held = await a.call("acquire", handle=a.handle, lease="l")
    work = await world.works(a, held["lease_handle"], "work")
    await a.call("claim", handle=a.handle, registry="r", key="k")
    await world.daemon.kill()
    world.daemon.lose_data()
    await world.restart()
    assert (await a.event("ended", tenure=a.tenure))["reason"] == "unknown"
    again = await a.event("rejoined")
    await a.event("lease_lost", lease_handle=held["lease_handle"])
    lines = len(work.lines())

    async def claimed():
        claim = await world.owner("r", "k")
        return claim and claim["tenure"] == again["tenure"]

    await world.until("the claim is made again", claimed)
    refused = await a.refused("acquire", handle=a.handle, lease="l")
    assert (refused.code, refused.status, refused.outcome) == ("unsettled", 409, "unchanged"), refused
    assert refused.retry_after_ms > 0, refused
    assert len(work.lines()) == lines, "no work after the loss"


async def idle_connections(driver, count=40):
    """Leaves this many idle connections in the driver's pool."""
    delayed = driver.proxy.delay_answer(*CLAIM, 0.3, times=count)
    calls = (driver.call("claim", handle=driver.handle, registry="r", key=f"k{n}") for n in range(count))
    await asyncio.gather(*calls)
    delayed.stop()


@case("Many idle connections that were closed, as by a restart of a balancer, cost neither a call nor a lease.")
async def pool_of_dead_connections(world):
    a = await world.member("a", ttl_ms=6_000)
    held = await a.call("acquire", handle=a.handle, lease="l")
    for turn in range(3):
        await idle_connections(a)
        a.proxy.reset_connections()
        await a.call("claim", handle=a.handle, registry="r", key="k")
        assert await world.lease_verdict(a, held["lease_handle"]) != "lost", f"lost in turn {turn}"
    await beats(world, a, 3)
    assert not a.had("lease_lost"), a.events


@case("The first call after a restart of the daemon is answered, whatever the restart closed, and leases are kept.")
async def first_call_after_a_restart(world):
    a = await world.member("a", ttl_ms=9_000)
    held = await a.call("acquire", handle=a.handle, lease="l")
    for _ in range(2):
        await idle_connections(a)
        await world.daemon.kill()
        a.proxy.reset_connections()
        await world.restart()
        await a.call("claim", handle=a.handle, registry="r", key="k")
        assert await world.lease_verdict(a, held["lease_handle"]) == "held"
    await beats(world, a, 2)
    assert not a.had("lease_lost") and not a.had("ended"), a.events
