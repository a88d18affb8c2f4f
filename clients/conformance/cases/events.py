"""Reading and following the events of a group."""

from suite.proxy import CUT, PASS
from suite.world import GROUP, case


async def make_events(world, count):
    """Members that come and go: two events each."""
    for _ in range(count):
        status, joined = await world.daemon.api("POST", f"/v1/groups/{GROUP}/members", {"member": "x", "ttl_ms": 30_000})
        assert status == 201, joined
        status, _ = await world.daemon.api("DELETE", f"/v1/groups/{GROUP}/tenures/{joined['tenure']}")
        assert status == 204


def ids(driver, follow):
    return [event["item"]["id"] for event in driver.had("item", follow=follow)]


@case("Pages of events are read one after the other without leaving one out.")
async def event_pages(world):
    await make_events(world, 5)
    a = await world.driver("a")
    items, after = [], None
    while True:
        page = await a.call("events", group=GROUP, after=after, limit=3)
        assert len(page["items"]) <= 3 and not page["missed"], page
        if not page["items"]:
            break
        items, after = items + page["items"], page["next"]
    wanted = await world.logged()
    assert [item["id"] for item in items] == [event["id"] for event in wanted]
    assert [(i["type"], i.get("member")) for i in items] == [(e["type"], e.get("member")) for e in wanted]


@case("A follower whose connection breaks goes on where it was: each event once, in order, and no gap.")
async def follow_resumes(world):
    a = await world.driver("a")
    await make_events(world, 3)
    follow = (await a.call("follow", group=GROUP))["follow"]

    async def caught_up():
        return ids(a, follow)[-1:] == [event["id"] for event in await world.logged()][-1:]

    for _ in range(3):
        await world.until("all events were delivered", caught_up)
        a.proxy.set(CUT)
        await make_events(world, 4)
        a.proxy.set(PASS)
    await world.until("all events were delivered", caught_up)
    wanted = [event["id"] for event in await world.logged()]
    assert ids(a, follow) == wanted, f"{ids(a, follow)} instead of {wanted}"
    assert not a.had("gap")


@case("A follower goes on after the daemon was killed and started again.")
async def follow_survives_a_restart(world):
    a = await world.driver("a")
    await make_events(world, 2)
    follow = (await a.call("follow", group=GROUP))["follow"]

    async def caught_up():
        return ids(a, follow)[-1:] == [event["id"] for event in await world.logged()][-1:]

    await world.until("all events were delivered", caught_up)
    await world.daemon.kill()
    await world.restart()
    await make_events(world, 2)
    await world.until("all events were delivered", caught_up)
    assert ids(a, follow) == [event["id"] for event in await world.logged()]
    assert not a.had("gap")


@case("A follower that fell behind is told of the gap before it gets what is still there.", settings=("--events-max", "100"))
async def gap_is_announced(world):
    a = await world.driver("a")
    await make_events(world, 1)
    first = (await world.logged())[0]["id"]
    follow = (await a.call("follow", group=GROUP, after=first))["follow"]
    await a.event("item", follow=follow)
    before = len(ids(a, follow))
    a.proxy.set(CUT)
    await make_events(world, 150)

    async def trimmed():
        page = await world.daemon.get(f"/v1/groups/{GROUP}/events?after={first}&limit=1")
        return page["missed"]

    await world.until("the log is trimmed", trimmed)
    a.proxy.set(PASS)
    await a.event("gap", follow=follow)

    async def caught_up():
        return ids(a, follow)[-1:] == [event["id"] for event in await world.logged()][-1:]

    await world.until("the rest was delivered", caught_up)
    kinds = [event["event"] for event in a.events if event.get("follow") == follow]
    assert kinds[before] == "gap" and kinds.count("gap") == 1, kinds[:10]
    assert ids(a, follow) == sorted(set(ids(a, follow)))
    page = await a.call("events", group=GROUP, after=first, limit=1)
    assert page["missed"], "a page says so as well"
