"""Leases: tokens, lost answers, contenders, hand-off, and leases that are taken away."""

import asyncio
import random

from suite.calls import ACQUIRE, BEAT, RELEASE
from suite.driver import Refused
from suite.proxy import BLACK_HOLE, CUT, HALF_OPEN, PASS
from suite.world import GROUP, Work, case, follows

LEASE = f"/v1/groups/{GROUP}/leases/l"


@case("A lease has one holder; another is refused with a typed error; the token rises with every grant.")
async def token_rises(world):
    a, b = await world.member("a"), await world.member("b")
    last = 0
    for _ in range(3):
        for holder, other in ((a, b), (b, a)):
            held = await holder.call("acquire", handle=holder.handle, lease="l")
            assert held["token"] > last, f"{held['token']} after {last}"
            last = held["token"]
            assert held["generation"] == last, "each exclusive grant begins one"
            assert await holder.call("lease_verdict", lease_handle=held["lease_handle"]) == {"verdict": "held", "token": last}
            refused = await other.refused("acquire", handle=other.handle, lease="l")
            assert (refused.code, refused.status, refused.outcome) == ("lease_held", 409, "unchanged"), refused
            shown = await other.call("lease", group=GROUP, lease="l")
            assert (shown["holder"], shown["token"], shown["alive"]) == (holder.name, last, True), shown
            await holder.call("release", lease_handle=held["lease_handle"])
            assert await world.lease_verdict(holder, held["lease_handle"]) == "lost"
    assert not a.events and not b.events, "a release is no loss"


@case("A repeated acquire under the same tenure keeps the lease and its token.")
async def acquire_again_keeps(world):
    a = await world.member("a")
    first = await a.call("acquire", handle=a.handle, lease="l")
    again = await a.call("acquire", handle=a.handle, lease="l")
    assert first["token"] == again["token"]
    assert await world.lease_verdict(a, again["lease_handle"]) == "held"


@case("An acquire whose answer was lost is repeated: the same token as at the store.")
async def lost_answer_of_an_acquire(world):
    a = await world.member("a")
    for silent in (False, True):
        lost = a.proxy.drop_answer(*ACQUIRE, silent=silent)
        held = await a.call("acquire", handle=a.handle, lease="l")
        assert lost.hits == 1
        assert (await world.lease("l"))["token"] == held["token"]
        assert await world.lease_verdict(a, held["lease_handle"]) == "held"
        await a.call("release", lease_handle=held["lease_handle"])


@case("A release whose answer was lost is repeated: the lease is free.")
async def lost_answer_of_a_release(world):
    a, b = await world.member("a"), await world.member("b")
    for silent in (False, True):
        held = await a.call("acquire", handle=a.handle, lease="l")
        lost = a.proxy.drop_answer(*RELEASE, silent=silent)
        await a.call("release", lease_handle=held["lease_handle"])
        assert lost.hits == 1
        taken = await b.call("acquire", handle=b.handle, lease="l")
        assert taken["token"] > held["token"]
        await b.call("release", lease_handle=taken["lease_handle"])


@case("An acquire that is never answered fails, and what it was granted is given back while the member lives on.")
async def unanswered_acquire_is_given_back(world):
    a = await world.member("a", ttl_ms=9_000)
    lost = a.proxy.drop_answer(*ACQUIRE, times=-1)
    refused = await a.refused("acquire", handle=a.handle, lease="l")
    assert refused.outcome == "unknown", refused
    assert lost.hits, "it was asked"
    lost.stop()

    async def free():
        return await world.lease("l") is None

    await world.until("the lease is given back", free)
    assert await a.call("verdict", handle=a.handle) == {"verdict": "held", "tenure": a.tenure}


@case("A verdict is lost before its release is sent: no work is done under a lease that may be free.")
async def release_ends_work_first(world):
    a, b = await world.member("a"), await world.member("b")
    held = await a.call("acquire", handle=a.handle, lease="l")
    first = await world.works(a, held["lease_handle"], "first")
    a.proxy.delay_answer(*RELEASE, 0.5)
    release = a.begin("release", lease_handle=held["lease_handle"])
    granted = await world.granted(b, "l")
    second = await world.works(b, granted["lease_handle"], "second")
    await release
    await world.goes_on(second)
    follows(first, second)


@case("Two contenders under faults: never both at work, and tokens that rise.", long=True)
async def contenders(world):
    seed = random.Random(9)
    drivers = [await world.member(name, ttl_ms=2_400) for name in ("a", "b")]
    over, works = asyncio.Event(), []

    async def contend(driver):
        while not over.is_set():
            try:
                held = await driver.call("acquire", handle=driver.handle, lease="l")
            except Refused:
                await asyncio.sleep(0.05)
                continue
            work = Work(f"{world.directory}/work-{driver.name}-{len(works)}")
            works.append(work)
            await driver.call("work", lease_handle=held["lease_handle"], file=work.path, period_ms=5)
            await asyncio.sleep(seed.uniform(0.2, 1.5))
            try:
                await driver.call("release", lease_handle=held["lease_handle"])
            except Refused:
                pass

    async def disturb():
        for _ in range(8):
            driver = seed.choice(drivers)
            fault = seed.choice([BLACK_HOLE, HALF_OPEN, CUT, "stop"])
            driver.freeze() if fault == "stop" else driver.proxy.set(fault)
            await asyncio.sleep(seed.uniform(0.3, 3.5))
            driver.thaw() if fault == "stop" else driver.proxy.set(PASS)
            await asyncio.sleep(seed.uniform(0.1, 1.0))
        over.set()

    await asyncio.gather(disturb(), *(contend(driver) for driver in drivers))
    worked = sorted((work for work in works if work.lines()), key=lambda work: work.lines()[0][1])
    assert len(worked) >= 3, "too little was seen to say anything"
    for first, second in zip(worked, worked[1:]):
        if first.lines()[-1][0] == second.lines()[0][0]:
            assert first.path.split("-")[-2] == second.path.split("-")[-2], "one token in two processes"
            assert first.lines()[-1][1] < second.lines()[0][1]
        else:
            follows(first, second)


@case("A lease that is handed off goes to its successor and to no other.")
async def hand_off(world):
    a, b, c = [await world.member(name) for name in ("a", "b", "c")]
    held = await a.call("acquire", handle=a.handle, lease="l")
    await a.call("release", lease_handle=held["lease_handle"], to="b")
    refused = await c.refused("acquire", handle=c.handle, lease="l")
    assert refused.code == "lease_held", refused
    taken = await b.call("acquire", handle=b.handle, lease="l")
    assert taken["token"] > held["token"]


@case("Many leases cost one beat: no call but beats goes out while nothing changes.", long=True)
async def many_leases_one_beat(world):
    a = await world.member("a", ttl_ms=9_000)
    grants = [await a.call("acquire", handle=a.handle, lease=f"l{n}") for n in range(120)]
    assert len({grant["token"] for grant in grants}) == 120
    handles = [grant["lease_handle"] for grant in grants]
    before = a.proxy.count(*BEAT)

    async def beats(count):
        async def more():
            return a.proxy.count(*BEAT) >= count

        await world.until(f"{count} beats", more)

    await beats(before + 2)
    start = len(a.proxy.log)
    await beats(before + 5)
    seen = [(request.method, request.path) for _, request in a.proxy.log[start:]]
    others = [call for call in seen if not call[1].endswith(("/beat", "/beats"))]
    assert not others, f"calls besides the beats: {others[:5]}"
    for handle in handles[::20]:
        assert await world.lease_verdict(a, handle) == "held"


@case("A lease that was released under the tenure by another hand is noticed by the revision of a beat.")
async def lost_by_revision(world):
    a = await world.member("a", ttl_ms=6_000)
    kept = await a.call("acquire", handle=a.handle, lease="kept")
    gone = await a.call("acquire", handle=a.handle, lease="l")
    body = {"tenure": a.tenure, "token": gone["token"]}
    status, _ = await world.daemon.api("POST", f"{LEASE}/release", body)
    assert status == 200
    lost = await a.event("lease_lost", lease_handle=gone["lease_handle"])
    assert (lost["lease"], lost["token"]) == ("l", gone["token"]), lost
    assert await world.lease_verdict(a, gone["lease_handle"]) == "lost"

    async def certain():
        return await world.lease_verdict(a, kept["lease_handle"]) == "held"

    await world.until("the other lease is certain again", certain)
    assert len(a.had("lease_lost")) == 1


@case("An operator releases a lease: the holder stops, and only then the lease is free.", needs=("operator release",))
async def operator_release(world):
    a, b = await world.member("a", ttl_ms=6_000), await world.member("b")
    held = await a.call("acquire", handle=a.handle, lease="l")
    first = await world.works(a, held["lease_handle"], "first")
    status, answer = await world.daemon.api("DELETE", f"{LEASE}?token={held['token']}")
    assert status == 200 and answer["holder"] == "a", answer
    granted = await world.granted(b, "l")
    second = await world.works(b, granted["lease_handle"], "second")
    await a.event("lease_lost", lease_handle=held["lease_handle"])
    assert await a.call("verdict", handle=a.handle) == {"verdict": "held", "tenure": a.tenure}, "it is still a member"
    follows(first, second)


@case("A lease of three places: three holders, the fourth and fifth are refused, and a free place is taken.", needs=("holders",))
async def shared_lease(world):
    members = [await world.member(f"m{n}") for n in range(5)]
    held, refusals = [], []
    for member in members:
        try:
            held.append((member, await member.call("acquire", handle=member.handle, lease="l", holders=3)))
        except Refused as refused:
            refusals.append(refused.code)
    assert refusals == ["lease_held"] * 2, refusals
    assert sorted(grant["place"] for _, grant in held) == [0, 1, 2]
    tokens = [grant["token"] for _, grant in held]
    assert tokens == sorted(set(tokens)), tokens
    assert {grant["generation"] for _, grant in held} == {tokens[0]}, held
    other = await members[4].refused("acquire", handle=members[4].handle, lease="l", holders=2)
    assert (other.code, other.status) == ("holders_differ", 409), other
    member, grant = held[1]
    await member.call("release", lease_handle=grant["lease_handle"])
    taken = await members[4].call("acquire", handle=members[4].handle, lease="l", holders=3)
    assert taken["place"] == grant["place"] and taken["token"] > tokens[-1], taken
    assert taken["generation"] == tokens[0], taken
    assert await world.lease_verdict(*(held[0][0], held[0][1]["lease_handle"])) == "held"
