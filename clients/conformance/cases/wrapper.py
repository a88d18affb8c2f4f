"""Programs inside `tenure join`, which act under its tenure."""

from suite.calls import BEAT
from suite.proxy import BLACK_HOLE, PASS
from suite.world import GROUP, case


async def beats(world, driver, count):
    """Waits for beats of the wrapper and the program together."""
    before = driver.proxy.count(*BEAT)

    async def more():
        return driver.proxy.count(*BEAT) >= before + count

    await world.until(f"{count} beats", more)


@case("A program inside tenure join acts under its wrapper's tenure: no second join, and what it holds is the wrapper's.")
async def inherits(world):
    a = await world.wrapped("a", ttl_ms=3_000)
    b = await world.member("b")
    held = await a.call("acquire", handle=a.handle, lease="l")
    assert await a.call("claim", handle=a.handle, registry="r", key="k") == {"outcome": "new"}
    lease, claim = await world.lease("l"), await world.owner("r", "k")
    assert lease["tenure"] == claim["tenure"] == a.tenure, (lease, claim)
    assert (await b.refused("acquire", handle=b.handle, lease="l")).code == "lease_held"
    # Longer than its ttl.
    await beats(world, a, 8)
    assert await world.lease_verdict(a, held["lease_handle"]) == "held"
    await a.call("release", lease_handle=held["lease_handle"])
    await world.granted(b, "l")
    ended = [event for event in await world.logged("joined", "superseded", "left") if event["member"] == "a"]
    assert [event["type"] for event in ended] == ["joined"], ended
    assert not a.events, a.events


@case("Joining under the name of the wrapper is refused, and the wrapper continues.")
async def wrappers_name_is_taken(world):
    a = await world.wrapped("a", ttl_ms=3_000)
    refused = await a.refused("join", group=GROUP, member="a", ttl_ms=3_000)
    assert "wrapper" in refused.message, refused
    await a.call("join", group=GROUP, member="other", ttl_ms=3_000)
    assert await world.verdict(a) == "held"


@case("Inside a lock within tenure join a program acts under the tenure of the lock, which is the nearer one.")
async def nearest_wrapper(world):
    lock = [world.daemon.binary, "lock", "deploy", "--group", "locks", "--"]
    a = await world.wrapped("a", within=lock)
    assert not a.tenure.startswith("a@"), a.tenure
    held = await a.call("acquire", handle=a.handle, lease="l")
    lease = await world.daemon.get("/v1/groups/locks/leases/l")
    assert (lease["tenure"], lease["token"]) == (a.tenure, held["token"]), lease


@case("Leaving an inherited tenure ends nothing but the handle: the wrapper leaves when its command ends.")
async def leaving_is_the_wrappers(world):
    a = await world.wrapped("a")
    await a.call("claim", handle=a.handle, registry="r", key="k")
    await a.call("leave", handle=a.handle)
    assert await world.verdict(a) == "lost"
    assert (await world.owner("r", "k"))["alive"]
    again = await a.call("inherit")
    assert again["tenure"] == a.tenure
    await a.close()
    await world.has_event("left", member="a")


@case("When the wrapper lapsed and joined again, the program follows it: its leases are lost, its claims made again.")
async def follows_the_wrapper(world):
    a = await world.wrapped("a", ttl_ms=4_000)
    held = await a.call("acquire", handle=a.handle, lease="l")
    await a.call("claim", handle=a.handle, registry="r", key="k")
    a.proxy.set(BLACK_HOLE)
    await world.has_event("lapsed", member="a")
    a.proxy.set(PASS)
    await a.event("ended", tenure=a.tenure)
    rejoined = await a.event("rejoined")
    assert await world.lease_verdict(a, held["lease_handle"]) == "lost"

    async def owned():
        return ((await world.owner("r", "k")) or {}).get("tenure") == rejoined["tenure"]

    await world.until("the claim under the new tenure", owned)
    joined = [event for event in await world.logged("joined") if event["member"] == "a"]
    assert [event["tenure"] for event in joined] == [a.tenure, rejoined["tenure"]], joined


@case("A lease that an operator released is lost for the program, and free only when the wrapper's tenure has ended.",
      needs=["operator release"])
async def release_by_an_operator(world):
    a = await world.wrapped("a", ttl_ms=3_000)
    b = await world.member("b")
    held = await a.call("acquire", handle=a.handle, lease="l")
    work = await world.works(a, held["lease_handle"], "work")
    status, answer = await world.daemon.api("DELETE", f"/v1/groups/{GROUP}/leases/l")
    assert status == 200 and answer["free_when"] == "tenure_ends", (status, answer)
    await a.event("lease_lost", lease_handle=held["lease_handle"])
    await beats(world, a, 6)
    assert (await b.refused("acquire", handle=b.handle, lease="l")).code == "lease_held"
    await a.close()
    granted = await world.granted(b, "l")
    assert granted["token"] > held["token"]
    assert len(work.lines()) > 0

