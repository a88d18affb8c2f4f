"""Joining, beating, leaving, and how a tenure ends."""

import asyncio
import time

from suite.calls import BEAT, JOIN, LEAVE
from suite.proxy import BLACK_HOLE, PASS
from suite.world import GROUP, case, follows

MEMBERS = f"/v1/groups/{GROUP}/members"


def term(tenure):
    return int(tenure.rpartition("@")[2])


@case("A join is listed with its labels; a leave ends it at once, and the verdict with it.")
async def join_and_leave(world):
    a = await world.member("a", labels={"zone": "east"})
    listed = (await a.call("members", group=GROUP))["members"]
    assert [m["member"] for m in listed] == ["a"] and listed[0]["alive"], listed
    assert listed[0]["labels"] == {"zone": "east"} and listed[0]["tenure"] == a.tenure, listed
    assert await world.verdict(a) == "held"
    await a.call("leave", handle=a.handle)
    assert await world.verdict(a) == "lost"
    assert (await world.has_event("left", member="a"))["tenure"] == a.tenure
    assert not (await a.call("members", group=GROUP))["members"]
    assert not a.had("ended"), "a leave is no end that the program has to be told"


@case("A member stays for many ttls, under one tenure, and its verdict is never anything but held.", long=True)
async def beats_keep_a_member(world):
    a = await world.member("a", ttl_ms=4_000)

    async def beats():
        assert await world.verdict(a) == "held"
        return a.proxy.count(*BEAT) >= 8

    await world.until("8 beats", beats)
    member = await world.daemon.get(f"{MEMBERS}/a")
    assert member["alive"] and member["tenure"] == a.tenure, member
    assert not a.events


@case("The ttl counts from when the last answered call was sent: held, then uncertain, then lost, however late the answer was.", long=True)
async def verdict_runs_from_sending(world):
    ttl = 12.0
    a = await world.driver("a")
    # Under the margin of 1 s, so that counting from the answer would be visible.
    a.proxy.delay_answer(*JOIN, 0.35, times=-1)
    joined = await a.call("join", group=GROUP, member="a", ttl_ms=int(ttl * 1000))
    a.handle = joined["handle"]
    assert await world.verdict(a) == "held"
    a.proxy.set(BLACK_HOLE)
    # The proxy saw the join after it was sent, and no beat was answered.
    assert a.proxy.count(*BEAT) == 0
    sent, seen = max(at for at, request in a.proxy.log if request.method == "POST"), []
    while not seen or seen[-1] != "lost":
        asked = time.monotonic() - sent
        verdict = await world.verdict(a)
        if not seen or seen[-1] != verdict:
            seen.append(verdict)
        assert asked < ttl * 11 / 12 or verdict != "held", f"held, {asked:.2f} s after the join was sent"
        assert asked < ttl or verdict == "lost", f"{verdict}, {asked:.2f} s after the join was sent"
        assert asked > ttl or time.monotonic() - sent > ttl - 0.5 or verdict != "lost", f"lost after only {asked:.2f} s"
        await asyncio.sleep(0.02)
    assert seen == ["held", "uncertain", "lost"], seen


@case("A join whose answer was lost is repeated; the member has one living tenure, the one that the library names.")
async def lost_answer_of_a_join(world):
    for name, silent in (("closed", False), ("silent", True)):
        a = await world.driver(name)
        lost = a.proxy.drop_answer(*JOIN, silent=silent)
        joined = await a.call("join", group=GROUP, member=name, ttl_ms=30_000)
        assert lost.hits == 1, "the daemon had joined it"
        member = await world.daemon.get(f"{MEMBERS}/{name}")
        assert member["tenure"] == joined["tenure"] and member["alive"], member
        assert (await a.call("verdict", handle=joined["handle"]))["verdict"] == "held"
        assert not a.events, "the first tenure was never the program's"


@case("A join that arrives after its client stopped waiting does not supersede its own repetition.")
async def late_join_is_refused(world):
    a = await world.driver("a")
    held = a.proxy.hold_request(*JOIN)
    joined = await a.call("join", group=GROUP, member="a", ttl_ms=30_000)
    assert held.hits == 1
    held.released.set()

    async def delivered():
        return held.statuses

    assert await world.until("the late request is answered", delivered) == [409]
    assert (await world.daemon.get(f"{MEMBERS}/a"))["tenure"] == joined["tenure"]


@case("Another process with the same name takes over: the older one is told superseded, stops and does not come back.")
async def superseded(world):
    a = await world.member("a", member="same", ttl_ms=6_000)
    joins = a.proxy.count(*JOIN)
    b = await world.member("b", member="same", ttl_ms=6_000)
    ended = await a.event("ended")
    assert (ended["reason"], ended["tenure"], ended["member"]) == ("superseded", a.tenure, "same"), ended
    assert await world.verdict(a) == "lost"
    refused = await a.refused("claim", handle=a.handle, registry="r", key="k")
    assert refused.code == "tenure_ended" and refused.reason == "superseded", refused
    quiet = len(a.proxy.log)
    await beats_on(world, b)
    assert await world.verdict(b) == "held" and not b.events
    assert not a.had("rejoined") and a.proxy.count(*JOIN) == joins
    assert len(a.proxy.log) == quiet, "it goes on asking for its name"


async def beats_on(world, driver):
    before = driver.proxy.count(*BEAT)

    async def beats():
        return driver.proxy.count(*BEAT) >= before + 3

    await world.until(f"{driver.name} beats on", beats)


@case("An operator expels a member: it is told expelled, stops and does not come back.")
async def expelled(world):
    a = await world.member("a", ttl_ms=6_000)
    joins = a.proxy.count(*JOIN)
    leased = await a.call("acquire", handle=a.handle, lease="l")
    status, _ = await world.daemon.api("DELETE", f"/v1/groups/{GROUP}/tenures/{a.tenure}?expel=true")
    assert status == 204
    ended = await a.event("ended")
    assert ended["reason"] == "expelled", ended
    await a.event("lease_lost", lease_handle=leased["lease_handle"])
    assert await world.verdict(a) == "lost"
    refused = await a.refused("acquire", handle=a.handle, lease="other")
    assert refused.code == "tenure_ended", refused
    assert await world.daemon.get(f"{MEMBERS}/a") is None
    assert not a.had("rejoined") and a.proxy.count(*JOIN) == joins


async def lapse(world, driver):
    """Cuts a driver off until the daemon has ended its tenure."""
    driver.proxy.set(BLACK_HOLE)
    await world.has_event("lapsed", tenure=driver.tenure)


@case("After a lapse the library joins again with a higher term, with its labels, and has its claims again.")
async def lapsed_joins_again(world):
    a = await world.member("a", ttl_ms=3_000, labels={"zone": "east"})
    await a.call("claim", handle=a.handle, registry="r", key="mine")
    await a.call("claim", handle=a.handle, registry="r", key="lost")
    await a.call("claim", handle=a.handle, registry="r", key="released")
    await a.call("release_claim", handle=a.handle, registry="r", key="released")
    leased = await a.call("acquire", handle=a.handle, lease="l")
    await lapse(world, a)
    other = await world.member("other")
    await other.call("claim", handle=other.handle, registry="r", key="lost")
    a.proxy.set(PASS)
    ended = await a.event("ended", tenure=a.tenure)
    assert ended["reason"] == "lapsed", ended
    again = await a.event("rejoined")
    assert term(again["tenure"]) > term(a.tenure), again
    await a.event("lease_lost", lease_handle=leased["lease_handle"])
    assert await world.lease_verdict(a, leased["lease_handle"]) == "lost"
    assert await a.call("verdict", handle=a.handle) == {"verdict": "held", "tenure": again["tenure"]}

    async def claimed():
        claim = await world.owner("r", "mine")
        return claim and claim["tenure"] == again["tenure"] and claim["alive"]

    await world.until("the claim is made again", claimed)
    assert (await world.owner("r", "lost"))["owner"] == "other", "a living owner keeps its key"
    assert await world.owner("r", "released") is None
    member = await world.daemon.get(f"{MEMBERS}/a")
    assert member["labels"] == {"zone": "east"}, member


@case("A member that lapsed while a process of the same name took over does not take the name back.")
async def lapsed_and_replaced(world):
    a = await world.member("a", member="same", ttl_ms=3_000)
    joins = a.proxy.count(*JOIN)
    await lapse(world, a)
    b = await world.member("b", member="same", ttl_ms=20_000)
    a.proxy.set(PASS)
    ended = await a.event("ended")
    assert ended["reason"] in ("lapsed", "superseded"), ended

    async def looked():
        # It may look before it joins, or be told by its beat.
        return ended["reason"] == "superseded" or a.proxy.count("GET", f"{MEMBERS}/same") > 0

    await world.until("it looks who has the name", looked)
    refused = await a.refused("claim", handle=a.handle, registry="r", key="k")
    assert refused.code == "tenure_ended", refused
    assert a.proxy.count(*JOIN) == joins and not a.had("rejoined")
    assert (await world.daemon.get(f"{MEMBERS}/same"))["tenure"] == b.tenure


@case("With rejoin off a lapse is final: the program is told, and no join follows.")
async def lapsed_without_rejoin(world):
    a = await world.member("a", ttl_ms=3_000, rejoin=False)
    joins = a.proxy.count(*JOIN)
    await lapse(world, a)
    a.proxy.set(PASS)
    assert (await a.event("ended"))["reason"] == "lapsed"
    await beats_on(world, await world.member("b", ttl_ms=3_000))
    refused = await a.refused("claim", handle=a.handle, registry="r", key="k")
    assert refused.code == "tenure_ended", refused
    assert await world.verdict(a) == "lost"
    assert a.proxy.count(*JOIN) == joins


@case("A leave releases claims, leases and connections at once.")
async def leave_releases_everything(world):
    a = await world.member("a")
    for lease in ("l1", "l2", "l3"):
        await a.call("acquire", handle=a.handle, lease=lease)
    await a.call("claim", handle=a.handle, registry="r", key="k")
    await a.call("attach", handle=a.handle, session="s", connection="c")
    await a.call("leave", handle=a.handle)
    b = await world.member("b")
    for lease in ("l1", "l2", "l3"):
        await b.call("acquire", handle=b.handle, lease=lease)
    claim = await world.owner("r", "k")
    assert claim is None or not claim["alive"], claim

    async def disconnected():
        return (await world.session("s"))["state"] == "disconnected"

    await world.until("the session is disconnected", disconnected)


@case("A leave whose answer was lost is repeated and succeeds.")
async def lost_answer_of_a_leave(world):
    a = await world.member("a")
    lost = a.proxy.drop_answer(*LEAVE)
    await a.call("leave", handle=a.handle)
    assert lost.hits == 1 and await world.daemon.get(f"{MEMBERS}/a") is None
    assert len(await world.logged("left")) == 1


@case("Labels of a living member are replaced without a new tenure, and kept at the next join.", needs=("labels",))
async def labels_change(world):
    a = await world.member("a", ttl_ms=3_000, labels={"zone": "east", "old": "1"})
    await a.call("labels", handle=a.handle, labels={"zone": "west"})
    member = await world.daemon.get(f"{MEMBERS}/a")
    assert member["labels"] == {"zone": "west"} and member["tenure"] == a.tenure, member
    await lapse(world, a)
    a.proxy.set(PASS)
    await a.event("rejoined")
    assert (await world.daemon.get(f"{MEMBERS}/a"))["labels"] == {"zone": "west"}


@case("A client that is stopped past its ttl knows at its first verdict that it lost; its successor starts only after its last work.")
async def frozen_client(world):
    b = await world.member("b")
    a = await world.member("a", ttl_ms=4_000)
    held = await a.call("acquire", handle=a.handle, lease="l")
    first = await world.works(a, held["lease_handle"], "first")
    a.freeze()
    # Answered only after it runs again.
    verdict = a.begin("verdict", handle=a.handle)
    lease_verdict = a.begin("lease_verdict", lease_handle=held["lease_handle"])
    granted = await world.granted(b, "l")
    second = await world.works(b, granted["lease_handle"], "second")
    a.thaw()
    seen = await verdict
    assert seen["verdict"] == "lost" or seen["tenure"] != a.tenure, "a library may have joined again by then"
    assert (await lease_verdict)["verdict"] == "lost"
    await a.event("lease_lost", lease_handle=held["lease_handle"])
    await world.goes_on(second)
    follows(first, second)
