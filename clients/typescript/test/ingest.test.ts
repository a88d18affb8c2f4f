// The proof of the ingest example: commands follow their devices, also past instances that are killed.

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { daemon, firstLine, until } from "./daemon.js";

const program = fileURLToPath(new URL("../examples/ingest.js", import.meta.url));
const TTL_MS = 3_000;

interface Instance {
  child: ChildProcess;
  address: string;
  /** What it wrote. */
  log: string[];
}

async function start(url: string, name: string): Promise<Instance> {
  const env = { ...process.env, TENURE_STORE: url, TENURE_TTL_MS: String(TTL_MS) };
  const child = spawn(process.execPath, [program, name], { env, stdio: ["ignore", "pipe", "inherit"] });
  const log: string[] = [];
  child.stdout?.on("data", (text) => log.push(...String(text).split("\n")));
  const line = await firstLine(child, (line) => line.startsWith("listening"));
  return { child, address: line.split(" ")[1] ?? "", log };
}

const call = async (instance: Instance, method: string, device: string, body?: string) =>
  (await fetch(`${instance.address}/devices/${device}`, { method, ...(body ? { body } : {}) })).status;

test("commands follow devices, and the dead leave nothing", async (t) => {
  const running = await daemon();
  const instances: Instance[] = [];
  t.after(async () => {
    for (const { child } of instances) child.kill("SIGKILL");
    await running.stop();
  });
  const group = running.store.group("ingest");
  const [one, two] = [await start(running.url, "gw-1"), await start(running.url, "gw-2")];
  instances.push(one, two);
  assert.equal(await call(one, "PUT", "cam-1"), 204);
  assert.equal(await call(one, "PUT", "cam-2"), 204);
  assert.equal(await call(two, "POST", "cam-1", "reboot"), 202);
  await until(() => one.log.includes("command cam-1 reboot"));
  assert.equal(await call(two, "POST", "nowhere", "reboot"), 404);

  // cam-2 moves before the clean-up of its former instance, and keeps its new entry.
  const died = performance.now();
  one.child.kill("SIGKILL");
  assert.equal(await call(two, "PUT", "cam-2"), 204);
  await until(async () => (await group.owner("devices", "cam-1")) === null);
  const took = performance.now() - died;
  assert.ok(took <= TTL_MS + 1_000, `evicted after ${took} ms`);
  assert.equal((await group.owner("devices", "cam-2"))?.owner, "gw-2");
  assert.equal(await call(two, "POST", "cam-2", "zoom"), 202);
  const { events } = await group.events({ types: ["evicted"] });
  assert.ok(JSON.stringify(events).includes("devices/cam-1"));

  const again = await start(running.url, "gw-1");
  instances.push(again);
  assert.equal(await call(again, "POST", "cam-2", "focus"), 202);
  await until(() => two.log.includes("command cam-2 focus"));
  assert.equal(await call(two, "DELETE", "cam-2"), 204);
  assert.equal(await call(again, "POST", "cam-2", "focus"), 404);
  const stopped = new Promise((resolve) => two.child.once("exit", resolve));
  two.child.kill("SIGTERM");
  assert.equal(await stopped, 0);
});
