"""A fleet: nodes that share targets."""

import asyncio
import os
import time

from suite.world import GROUP, case

TARGETS = 27
# Not below the 5 s for which a lease stays reserved for the node that it was handed to, and that is killed.
TTL = 5.0


class Files:
    """The lines of all nodes: target, token, and the time that was read before the verdict."""

    def __init__(self, world):
        self._world, self._paths = world, {}

    def path(self, node):
        return self._paths.setdefault(node, os.path.join(self._world.directory, f"fleet-{node}"))

    def lines(self, *nodes):
        """By target: pairs of time and token, in the order of time."""
        found = {}
        for node in nodes or self._paths:
            try:
                with open(self.path(node)) as file:
                    text = file.read()
            except FileNotFoundError:
                continue
            for line in text.split("\n")[:-1]:
                target, token, at = line.split()
                found.setdefault(target, []).append((int(at), int(token)))
        return {target: sorted(polls) for target, polls in found.items()}


class Lateness:
    """How late this process was woken at worst: a busy machine delays the nodes as well."""

    def __init__(self):
        self.worst = 0.0
        self._task = asyncio.ensure_future(self._run())

    async def _run(self):
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.02)
            self.worst = max(self.worst, time.monotonic() - before - 0.02)

    def stop(self):
        self._task.cancel()


async def node(world, files, name):
    driver = await world.member(name, ttl_ms=int(TTL * 1000))
    await driver.call("fleet", handle=driver.handle, file=files.path(name), period_ms=100, stability_ms=2_000)
    return driver


async def all_polled(world, files, *nodes):
    """Waits until each target was polled again, by one of these nodes."""
    before = {target: polls[-1] for target, polls in files.lines().items()}

    async def ask():
        now = files.lines(*nodes)
        return len(now) == TARGETS and all(polls[-1] > before.get(target, (0, 0)) for target, polls in now.items())

    await world.until(f"polls of all targets by {nodes}", ask)


@case("27 targets on nodes that are killed, drained and joined: no older token after a newer one, no gap above ttl + 1 s.",
      long=True)
async def fleet_moves(world):
    files, lateness = Files(world), Lateness()
    for number in range(TARGETS):
        status, answer = await world.daemon.api("PUT", f"/v1/groups/{GROUP}/targets/endpoint-{number}", {})
        assert status in (200, 201), answer
    one, two = await node(world, files, "one"), await node(world, files, "two")
    three = await node(world, files, "three")
    await all_polled(world, files)

    async def shared():
        return all(files.lines(name) for name in ("one", "two", "three"))

    await world.until("each node polls", shared)
    await three.kill()
    await all_polled(world, files, "one", "two")
    assert await two.call("drain", handle=two.handle) == {"stubborn": []}
    await two.call("leave", handle=two.handle)
    await all_polled(world, files, "one")
    await node(world, files, "four")

    async def moved():
        return len(files.lines("four")) >= 5

    await world.until("targets move to the new node", moved)
    await all_polled(world, files)
    lateness.stop()
    worst = 0.0
    for target, polls in files.lines().items():
        tokens = [token for _, token in polls]
        assert tokens == sorted(tokens), f"an older token after a newer one: {target}"
        worst = max([worst, *((b[0] - a[0]) / 1e9 for a, b in zip(polls, polls[1:]))])
    assert worst <= TTL + 1 + lateness.worst, f"a gap of {worst:.2f} s, with {lateness.worst:.2f} s of lateness"
    world.notes.append(f"worst gap {worst:.2f} s")
    assert await one.call("drain", handle=one.handle) == {"stubborn": []}
