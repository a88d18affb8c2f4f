"""Rosters: providers, availability, reservations."""

from suite.calls import RESERVE
from suite.world import case


@case("A provider that is online is available, is reserved up to its capacity, and is free again after the release.")
async def reserve_and_release(world):
    a = await world.driver("a")
    roster = {"roster": "care"}
    put = await a.call("provider_put", provider="ann", capacity=1, display_name="Ann", **roster)
    assert put["provider"] == "ann" and not put["online"], put
    assert (await a.call("available", **roster))["providers"] == []
    assert (await a.call("online", provider="ann", **roster))["online"]
    await a.call("heartbeat", provider="ann", **roster)
    assert (await a.call("available", **roster))["providers"] == ["ann"]
    reserved = await a.call("reserve", engagement="call-1", **roster)
    assert reserved == {"engagement": "call-1", "provider": "ann"}, reserved
    refused = await a.refused("reserve", engagement="call-2", **roster)
    assert (refused.code, refused.status, refused.outcome) == ("none_available", 409, "unchanged"), refused
    assert (await a.call("provider", provider="ann", **roster))["occupancy"] == 1
    await a.call("release_engagement", engagement="call-1", **roster)
    again = await a.call("reserve", **roster)
    assert again["provider"] == "ann" and again["engagement"], again
    await a.call("release_engagement", engagement=again["engagement"], **roster)
    gone = await a.call("offline", provider="ann", **roster)
    assert not gone["online"], gone
    assert (await a.call("available", **roster))["providers"] == []
    assert await a.call("provider", provider="nobody", **roster) is None


@case("A reservation whose answer was lost is repeated under its id: one place is taken.")
async def lost_answer_of_a_reserve(world):
    a = await world.driver("a")
    await a.call("provider_put", roster="care", provider="ann", capacity=5)
    await a.call("online", roster="care", provider="ann")
    taken = 0
    for silent in (False, True):
        for engagement in (None, f"call-{silent}"):
            lost = a.proxy.drop_answer(*RESERVE, silent=silent)
            reserved = await a.call("reserve", roster="care", engagement=engagement)
            taken += 1
            assert lost.hits == 1 and reserved["provider"] == "ann", reserved
            provider = await a.call("provider", roster="care", provider="ann")
            assert provider["occupancy"] == taken, provider


@case("A provider whose heartbeats stop is not available any more; heartbeats of another keep it there.")
async def silent_provider_lapses(world):
    a = await world.driver("a")
    for provider in ("ann", "bob"):
        await a.call("provider_put", roster="care", provider=provider, capacity=1)
    status, answer = await world.daemon.api("PATCH", "/v1/rosters/care", {"stale_after_ms": 3_000})
    assert status == 200, answer
    for provider in ("ann", "bob"):
        await a.call("online", roster="care", provider=provider)

    async def ann_is_gone():
        await a.call("heartbeat", roster="care", provider="bob")
        return not (await a.call("provider", roster="care", provider="ann"))["online"]

    await world.until("ann is offline", ann_is_gone)
    assert (await a.call("available", roster="care"))["providers"] == ["bob"]
    bob = await a.call("provider", roster="care", provider="bob")
    assert bob["online"] and bob["alive"], bob
    refused = await a.refused("heartbeat", roster="care", provider="ann")
    assert (refused.code, refused.status) == ("provider_offline", 409), refused
