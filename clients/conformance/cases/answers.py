"""Answers that do not come from a daemon, or not in time."""

import time

from suite.calls import BEAT, CLAIM
from suite.world import GROUP, case

PAGE = {"Content-Type": "text/html"}
# What a proxy, a captive portal or a server that breaks off may answer in place of the daemon.
STRANGE = (
    (200, b"<html>welcome</html>", PAGE),
    (200, b'{"outcome": "new", "ow', None),
    (200, b"[1]", None),
    (200, b'"new"', None),
    (502, b"<html>bad gateway</html>", PAGE),
)


@case("An answer that no daemon gives is an error that knows nothing: a web page, half a JSON, another JSON, a redirect.")
async def strange_answers(world):
    a = await world.member("a")
    for status, body, headers in STRANGE:
        rule = a.proxy.replace_answer(*CLAIM, status, body, times=10, headers=headers)
        refused = await a.refused("claim", handle=a.handle, registry="r", key="k")
        assert refused.outcome == "unknown" and refused.code not in ("", None, "bad_command"), (body, refused)
        rule.stop()
    # It is not followed: it could lead to another server, with the token.
    elsewhere = {"Location": f"{a.proxy.url}/elsewhere"}
    for status in (302, 307):
        rule = a.proxy.replace_answer(*CLAIM, status, b"", times=10, headers=elsewhere)
        refused = await a.refused("claim", handle=a.handle, registry="r", key="k")
        assert refused.code not in ("", None, "bad_command"), refused
        rule.stop()
    assert a.proxy.count("GET|PUT|POST", "/elsewhere") == 0
    # The page of a proxy does not say that the key is free.
    a.proxy.replace_answer("GET", f"/v1/groups/{GROUP}/registries/r/claims/k", 404, b"<html>no such page</html>",
                           times=10, headers=PAGE)
    refused = await a.refused("owner", group=GROUP, registry="r", key="k")
    assert refused.outcome == "unchanged" and refused.code != "bad_command", refused
    assert (await a.call("claim", handle=a.handle, registry="r", key="k"))["outcome"] == "new"


@case("Beats that something else than the daemon answers confirm nothing and end nothing; the membership recovers.", long=True)
async def strange_beats(world):
    a = await world.member("a", ttl_ms=3_000)
    rule = a.proxy.garble_answers(*BEAT, [(200, {}, None)])
    await world.becomes(a, "lost")
    rule.stop()
    strange = [*STRANGE, (404, b"<html>no such page</html>", PAGE), (410, b"<html>gone</html>", PAGE),
               (302, b"", {"Location": f"{a.proxy.url}/elsewhere"})]
    rule = a.proxy.garble_answers(*BEAT, strange)

    async def each_twice():
        return rule.hits >= 2 * len(strange)

    await world.until("it beats on", each_twice)
    assert await world.verdict(a) == "lost", "a strange answer confirmed it"
    rule.stop()
    await world.becomes(a, "held")
    assert await a.call("verdict", handle=a.handle) == {"verdict": "held", "tenure": a.tenure}
    assert not a.had("ended") and not a.had("rejoined"), a.events


@case("The end of a tenure whose reason is no text ends the beats of no member for good.")
async def strange_ends(world):
    a = await world.member("a", ttl_ms=3_000)
    for reason in (5, True, [], ["lapsed"], {}):
        rule = a.proxy.garble_answers(*BEAT, [(410, {"code": "tenure_ended", "status": 410, "reason": reason}, None)])

        async def told():
            return rule.hits  # noqa: B023

        await world.until("a beat is answered", told)
        rule.stop()
        await world.becomes(a, "held")


@case("An answer that arrives byte by byte is none: calls end in bounded time, beats go on, and the membership recovers.")
async def dripping_answers(world):
    a = await world.member("a", ttl_ms=3_000)
    a.proxy.drip = 0.1
    began = time.monotonic()
    refused = await a.refused("claim", handle=a.handle, registry="r", key="k")
    assert refused.outcome == "unknown", refused
    assert time.monotonic() - began < 40, "it has no end"
    await world.becomes(a, "lost")
    a.proxy.drip = 0.0
    await world.becomes(a, "held")
    assert await a.call("verdict", handle=a.handle) == {"verdict": "held", "tenure": a.tenure}
    assert not a.had("ended") and not a.had("rejoined"), a.events
