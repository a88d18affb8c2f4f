"""Sessions and their connections."""

from suite.calls import ATTACH
from suite.proxy import BLACK_HOLE, PASS
from suite.world import GROUP, case

SESSION = f"/v1/groups/{GROUP}/sessions/s"


@case("A session whose process dies is resumed elsewhere within its grace, with its data.")
async def session_resumes(world):
    a, b = await world.member("a", ttl_ms=3_000), await world.member("b")
    attach = {"session": "s", "grace_ms": 600_000}
    first = await a.call("attach", handle=a.handle, connection="c1", data={"room": "garden"}, **attach)
    assert (first["outcome"], first["connections"]) == ("created", 1), first
    await a.kill()
    await world.has_event("session_disconnected", session="s")
    assert (await b.call("session", group=GROUP, session="s"))["state"] == "disconnected"
    again = await b.call("attach", handle=b.handle, connection="c2", **attach)
    assert again["outcome"] == "resumed" and again["epoch"] > first["epoch"], again
    second = await b.call("attach", handle=b.handle, connection="c3", **attach)
    assert (second["outcome"], second["connections"]) == ("attached", 2), second
    session = await b.call("session", group=GROUP, session="s")
    assert (session["state"], session["connections"], session["data"]) == ("active", 2, {"room": "garden"}), session


@case("A session that nobody resumes is reaped after its grace; the next attach creates it anew.")
async def session_reaped(world):
    a = await world.member("a")
    attach = {"handle": a.handle, "session": "s", "connection": "c", "grace_ms": 1_000}
    await a.call("attach", data={"room": "garden"}, **attach)
    assert (await world.session("s"))["grace_ms"] == 1_000
    await a.call("detach", handle=a.handle, session="s", connection="c")
    await world.has_event("session_reaped", session="s")
    assert await a.call("session", group=GROUP, session="s") is None
    again = await a.call("attach", **attach)
    assert again["outcome"] == "created", again
    assert (await a.call("session", group=GROUP, session="s"))["data"] == {}


@case("Sessions are listed by state and by how long they have had no connection.")
async def sessions_listed_by_age(world):
    a = await world.member("a")
    for session in ("away", "here"):
        await a.call("attach", handle=a.handle, session=session, connection="c", grace_ms=600_000)
    await a.call("detach", handle=a.handle, session="away", connection="c")

    async def listed(**which):
        found = await a.call("sessions", group=GROUP, **which)
        return sorted(session["session"] for session in found["sessions"])

    assert await listed() == ["away", "here"]
    assert await listed(state="active") == ["here"]
    assert await listed(state="disconnected") == ["away"]
    assert await listed(state="disconnected", older_than_ms=3_600_000) == []
    assert await listed(older_than_ms=3_600_000) == []

    async def is_old():
        return await listed(older_than_ms=1_000) == ["away"]

    await world.until("the session has been away for a second", is_old)
    refused = await a.refused("sessions", group=GROUP, state="active", older_than_ms=1)
    assert (refused.code, refused.status) == ("invalid", 422), refused


@case("Session data is merged field by field; null removes a field.")
async def session_data_merges(world):
    a, b = await world.member("a"), await world.member("b")
    await a.call("attach", handle=a.handle, session="s", connection="c", data={"room": "garden", "seen": "1"})
    patched = await a.call("patch_session", group=GROUP, session="s", data={"seen": "2", "name": "x"}, handle=a.handle)
    assert patched["data"] == {"room": "garden", "seen": "2", "name": "x"}, patched
    await b.call("patch_session", group=GROUP, session="s", data={"room": None})
    session = await a.call("session", group=GROUP, session="s")
    assert session["data"] == {"seen": "2", "name": "x"}, session
    refused = await a.refused("patch_session", group=GROUP, session="none", data={"a": "b"})
    assert (refused.code, refused.status) == ("session_not_found", 404), refused


@case("An attach whose answer was lost is repeated: one connection, and the epoch that the library knows detaches it.")
async def lost_answer_of_an_attach(world):
    a = await world.member("a")
    for silent in (False, True):
        lost = a.proxy.drop_answer(*ATTACH, silent=silent)
        attached = await a.call("attach", handle=a.handle, session="s", connection="c")
        assert lost.hits == 1
        session = await world.session("s")
        assert (session["connections"], session["epoch"]) == (1, attached["epoch"]), session
        await a.call("detach", handle=a.handle, session="s", connection="c")
        assert (await world.session("s"))["connections"] == 0


@case("A late goodbye does not disconnect the client that is back already.")
async def old_epoch_detaches_nothing(world):
    a = await world.member("a", ttl_ms=20_000)
    await a.call("attach", handle=a.handle, session="s", connection="c")
    # The same connection is attached again by another hand, at a higher epoch.
    status, _ = await world.daemon.api("PUT", SESSION, {"tenure": a.tenure, "connection": "c"})
    assert status == 200
    detach = a.begin("detach", handle=a.handle, session="s", connection="c")
    try:
        await detach
    except Exception as error:
        assert getattr(error, "status", 0) in (404, 409), error
    assert (await world.session("s"))["connections"] == 1


@case("After a lapse the connections are attached again under the new tenure.")
async def connections_follow_a_rejoin(world):
    a = await world.member("a", ttl_ms=3_000)
    await a.call("attach", handle=a.handle, session="s", connection="c", data={"room": "garden"}, grace_ms=600_000)
    a.proxy.set(BLACK_HOLE)

    async def disconnected():
        return (await world.session("s"))["state"] == "disconnected"

    await world.until("the session is disconnected", disconnected)
    a.proxy.set(PASS)
    await a.event("rejoined")

    async def active():
        session = await world.session("s")
        return session["state"] == "active" and session["connections"] == 1

    await world.until("the connection is attached again", active)
    assert (await world.session("s"))["data"] == {"room": "garden"}
    await a.call("detach", handle=a.handle, session="s", connection="c")
    assert (await world.session("s"))["connections"] == 0
