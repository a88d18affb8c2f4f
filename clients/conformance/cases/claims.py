"""Registries."""

from suite.calls import CLAIM
from suite.world import GROUP, case


@case("A claim is new, kept or moved; its owner is shown with its tenure and whether it is alive; a release frees the key.")
async def claim_and_release(world):
    a, b = await world.member("a"), await world.member("b")
    claim = {"registry": "r", "key": "k"}
    assert await a.call("owner", group=GROUP, **claim) is None
    assert (await a.call("claim", handle=a.handle, **claim))["outcome"] == "new"
    assert (await a.call("claim", handle=a.handle, **claim))["outcome"] == "kept"
    assert (await b.call("claim", handle=b.handle, **claim))["outcome"] == "moved"
    owner = await a.call("owner", group=GROUP, **claim)
    assert (owner["owner"], owner["tenure"], owner["alive"]) == ("b", b.tenure, True), owner
    refused = await a.refused("release_claim", handle=a.handle, **claim)
    assert (refused.code, refused.status) == ("not_owner", 409), refused
    await b.call("release_claim", handle=b.handle, **claim)
    assert await a.call("owner", group=GROUP, **claim) is None


@case("A claim that must not move a key is refused while its owner lives, and takes the key of a dead one.")
async def claim_if_absent(world):
    a, b = await world.member("a"), await world.member("b")
    claim = {"registry": "r", "key": "k", "if_absent": True}
    assert (await a.call("claim", handle=a.handle, **claim))["outcome"] == "new"
    refused = await b.refused("claim", handle=b.handle, **claim)
    assert (refused.code, refused.status, refused.outcome) == ("claim_held", 409, "unchanged"), refused
    await a.call("leave", handle=a.handle)
    assert (await b.call("claim", handle=b.handle, **claim))["outcome"] in ("new", "moved")


@case("A claim whose answer was lost is repeated: the key is ours, once.")
async def lost_answer_of_a_claim(world):
    a = await world.member("a")
    for silent in (False, True):
        lost = a.proxy.drop_answer(*CLAIM, silent=silent)
        claimed = await a.call("claim", handle=a.handle, registry="r", key="k")
        assert lost.hits == 1 and claimed["outcome"] in ("new", "kept"), claimed
        assert (await world.owner("r", "k"))["tenure"] == a.tenure
        await a.call("release_claim", handle=a.handle, registry="r", key="k")
        assert await world.owner("r", "k") is None


@case("A claim that arrives after its client stopped waiting does not take effect.")
async def late_claim_is_refused(world):
    a, b = await world.member("a"), await world.member("b")
    held = a.proxy.hold_request(*CLAIM)
    # The first attempt is held; another one succeeds.
    await a.call("claim", handle=a.handle, registry="r", key="k")
    assert held.hits == 1
    await b.call("claim", handle=b.handle, registry="r", key="k")
    held.released.set()

    async def delivered():
        return held.statuses

    statuses = await world.until("the late request is answered", delivered)
    assert statuses == [409], f"the late claim was not refused: {statuses}"
    assert (await world.owner("r", "k"))["owner"] == "b"
