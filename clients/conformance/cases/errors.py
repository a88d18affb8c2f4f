"""Typed errors, and answers that a library does not expect."""

import os
import subprocess
import time

from suite.calls import BEAT, CLAIM
from suite.driver import Refused
from suite.proxy import BLACK_HOLE
from suite.world import GROUP, case


async def with_tokens(world):
    """Restarts the daemon with two tokens: one that may beat, and one that may only read."""
    file = os.path.join(world.directory, "tokens.toml")
    tokens = {}
    for name, scope in (("worker", "read,beat"), ("reader", "read"), ("operator", "read,beat,write,operate")):
        out = os.path.join(world.directory, f"{name}.token")
        subprocess.run([world.daemon.binary, "token", "new", "--name", name, "--scope", scope, "--add", file, "--out", out],
                       check=True, stdout=subprocess.DEVNULL)
        with open(out) as written:
            tokens[name] = written.read().strip()
    await world.daemon.kill()
    world.daemon.settings = ("--tokens", file)
    world.daemon.token = tokens["operator"]
    await world.restart()
    return tokens


@case("401 for a wrong token, 403 for one without the scope; the right one works.", settle=False)
async def unauthenticated_and_forbidden(world):
    tokens = await with_tokens(world)
    join = {"group": GROUP, "ttl_ms": 20_000}
    none = await world.driver("none")
    refused = await none.refused("join", member="none", **join)
    assert (refused.code, refused.status, refused.outcome) == ("unauthenticated", 401, "unchanged"), refused
    wrong = await world.driver("wrong", token=tokens["worker"][:-4] + "AAAA")
    assert (await wrong.refused("join", member="wrong", **join)).status == 401
    reader = await world.driver("reader", token=tokens["reader"])
    refused = await reader.refused("join", member="reader", **join)
    assert (refused.code, refused.status) == ("forbidden", 403), refused
    worker = await world.driver("worker", token=tokens["worker"])
    joined = await worker.call("join", member="worker", **join)
    assert (await worker.call("claim", handle=joined["handle"], registry="r", key="k"))["outcome"] == "new"
    assert [m["member"] for m in (await reader.call("members", group=GROUP))["members"]] == ["worker"]


@case("422 for a name that is not allowed, whatever characters it has; nothing is sent to another path.")
async def invalid_names(world):
    a = await world.member("a")
    for key in ("a b", "a/b", "ä", "a?b=c", "..", "%2e", "a#b"):
        refused = await a.refused("claim", handle=a.handle, registry="r", key=key)
        # ".." and a name made of allowed characters is a matter of the daemon.
        assert (refused.code, refused.status, refused.outcome) == ("invalid", 422, "unchanged") or key == "..", (key, refused)
    for key in ("a.b", "a:b", "a_b-c", "x" * 200):
        await a.call("claim", handle=a.handle, registry="r", key=key)
        assert (await world.owner("r", key))["owner"] == "a"
    refused = await a.refused("join", group=GROUP, member="b", ttl_ms=10)
    assert (refused.code, refused.status) == ("invalid", 422), refused


@case("404 for what does not exist: null where absence is an answer, an error where it is not.")
async def not_found(world):
    a = await world.member("a")
    assert await a.call("owner", group=GROUP, registry="r", key="none") is None
    assert await a.call("session", group=GROUP, session="none") is None
    assert await a.call("lease", group=GROUP, lease="none") is None
    refused = await a.refused("release_engagement", roster="care", engagement="none")
    assert refused.status == 404 and refused.outcome == "unchanged", refused


@case("429 with a long retry_after_ms is returned at once with it; a short one is waited for.")
async def too_many_requests(world):
    a = await world.member("a")
    problem = {"type": "about:blank", "title": "Too many requests", "status": 429, "code": "rate_limited",
               "detail": "slow down", "retry_after_ms": 50_000}
    rule = a.proxy.replace_answer(*CLAIM, 429, problem)
    began = time.monotonic()
    refused = await a.refused("claim", handle=a.handle, registry="r", key="k")
    assert (refused.code, refused.status, refused.outcome) == ("rate_limited", 429, "unchanged"), refused
    assert refused.retry_after_ms == 50_000 and rule.hits == 1, refused
    assert time.monotonic() - began < 40, "it waited"
    a.proxy.replace_answer(*CLAIM, 429, {**problem, "retry_after_ms": 200})
    assert (await a.call("claim", handle=a.handle, registry="r", key="k"))["outcome"] == "new"
    calls = [at for at, request in a.proxy.log if "/claims" in request.path]
    assert calls[-1] - calls[-2] >= 0.2, "it came back too early"


@case("A server error without an outcome is unknown; an answer that is not a problem is an error as well.")
async def server_errors(world):
    a = await world.member("a")
    problem = {"status": 500, "code": "internal", "title": "Internal error", "type": "about:blank", "detail": "broken"}
    a.proxy.replace_answer(*CLAIM, 500, {**problem, "outcome": "unknown"}, times=10)
    refused = await a.refused("claim", handle=a.handle, registry="r", key="k")
    assert (refused.code, refused.status, refused.outcome) == ("internal", 500, "unknown"), refused
    for rule in a.proxy.rules:
        rule.stop()
    a.proxy.replace_answer(*CLAIM, 502, b"<html>bad gateway</html>", times=10)
    refused = await a.refused("claim", handle=a.handle, registry="r", key="k")
    assert (refused.status, refused.outcome) in ((502, "unknown"), (0, "unknown")), refused


@case("A daemon that does not answer is the error unreachable, in bounded time: unknown for a change, unchanged for a read.")
async def unreachable(world):
    a = await world.member("a", ttl_ms=60_000)
    a.proxy.set(BLACK_HOLE)
    began = time.monotonic()
    refused = await a.refused("claim", handle=a.handle, registry="r", key="k")
    assert (refused.code, refused.status, refused.outcome) == ("unreachable", 0, "unknown"), refused
    refused = await a.refused("owner", group=GROUP, registry="r", key="k")
    assert (refused.code, refused.outcome) == ("unreachable", "unchanged"), refused
    assert time.monotonic() - began < 40, "it has no end"
    assert a.proxy.count(*CLAIM) <= 3


@case("Retries are few: a daemon that is overloaded is not asked more than three times.")
async def retries_are_bounded(world):
    a = await world.member("a")
    problem = {"status": 503, "code": "overloaded", "title": "", "type": "about:blank", "detail": "", "outcome": "unchanged"}
    rule = a.proxy.replace_answer(*CLAIM, 503, problem, times=50)
    try:
        await a.call("claim", handle=a.handle, registry="r", key="k")
        raise AssertionError("it must fail")
    except Refused as refused:
        assert (refused.code, refused.status, refused.outcome) == ("overloaded", 503, "unchanged"), refused
    assert rule.hits <= 3, f"{rule.hits} attempts"


@case("Fields that the library does not know are ignored, in every answer.")
async def unknown_fields(world):
    def grow(value):
        if isinstance(value, list):
            return [grow(item) for item in value]
        if isinstance(value, dict) and not set(value) & {"room", "zone"}:
            return {"a_new_field": {"nested": [1, None]}, **{name: grow(item) for name, item in value.items()}}
        return value

    a = await world.driver("a")
    a.proxy.edit_answers(grow)
    joined = await a.call("join", group=GROUP, member="a", ttl_ms=6_000, labels={"zone": "east"})
    a.handle = joined["handle"]
    assert (await a.call("claim", handle=a.handle, registry="r", key="k"))["outcome"] == "new"
    assert (await a.call("owner", group=GROUP, registry="r", key="k"))["owner"] == "a"
    held = await a.call("acquire", handle=a.handle, lease="l")
    await a.call("attach", handle=a.handle, session="s", connection="c", data={"room": "garden"})
    assert (await a.call("session", group=GROUP, session="s"))["state"] == "active"
    assert (await a.call("members", group=GROUP))["members"][0]["member"] == "a"
    assert (await a.call("events", group=GROUP, limit=10))["items"][0]["type"]
    await a.call("provider_put", roster="care", provider="ann")
    await a.call("online", roster="care", provider="ann")
    assert (await a.call("available", roster="care"))["providers"] == ["ann"]
    before = a.proxy.count(*BEAT)

    async def beats():
        return a.proxy.count(*BEAT) >= before + 3

    await world.until("beats", beats)
    assert await world.lease_verdict(a, held["lease_handle"]) == "held"
    refused = await a.refused("patch_session", group=GROUP, session="none", data={"room": "x"})
    assert refused.code == "session_not_found", refused
    await a.call("release", lease_handle=held["lease_handle"])
    await a.call("leave", handle=a.handle)


@case("Each change carries Tenure-Not-After, except beats; no time-out is longer than a second or so.")
async def changes_carry_a_limit(world):
    a = await world.member("a", ttl_ms=3_000)
    held = await a.call("acquire", handle=a.handle, lease="l")
    await a.call("claim", handle=a.handle, registry="r", key="k")
    await a.call("attach", handle=a.handle, session="s", connection="c")
    await a.call("detach", handle=a.handle, session="s", connection="c")
    await a.call("release_claim", handle=a.handle, registry="r", key="k")
    await a.call("release", lease_handle=held["lease_handle"])

    async def beat():
        return a.proxy.count(*BEAT) > 0

    await world.until("a beat", beat)
    await a.call("leave", handle=a.handle)
    for _, request in a.proxy.log:
        has_limit = "tenure-not-after" in request.headers
        is_change = request.method != "GET" and not request.path.endswith(("/beat", "/beats"))
        assert has_limit == is_change, f"{request.first}: {request.headers}"
