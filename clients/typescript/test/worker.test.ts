// The proof of the worker example: it is frozen past its ttl, its successor starts, and it writes nothing more.

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { daemon, firstLine, until } from "./daemon.js";

const program = fileURLToPath(new URL("../examples/worker.js", import.meta.url));

function worker(url: string, member: string, file: string): ChildProcess {
  const env = { ...process.env, TENURE_STORE: url, TENURE_TTL_MS: "3000" };
  return spawn(process.execPath, [program, "jobs", member, file], { env, stdio: ["ignore", "pipe", "inherit"] });
}

test("a frozen worker writes nothing after its successor", async (t) => {
  const running = await daemon();
  const folder = mkdtempSync(join(tmpdir(), "tenure-ts-"));
  const file = join(folder, "written");
  writeFileSync(file, "");
  const tokens = () =>
    readFileSync(file, "utf8")
      .trim()
      .split("\n")
      .map((line) => Number(line.split(" ")[0]));

  const workers: ChildProcess[] = [];
  t.after(async () => {
    for (const child of workers) child.kill("SIGKILL");
    await running.stop();
    rmSync(folder, { recursive: true });
  });

  const first = worker(running.url, "first", file);
  workers.push(first);
  const ended = new Promise<number | null>((resolve) => first.once("exit", resolve));
  const granted = Number((await firstLine(first, (line) => line.startsWith("acquired"))).split(" ")[1]);
  await until(() => tokens().length > 3);
  first.kill("SIGSTOP");
  const second = worker(running.url, "second", file);
  workers.push(second);
  const successor = Number((await firstLine(second, (line) => line.startsWith("acquired"))).split(" ")[1]);
  assert.ok(successor > granted);
  await until(() => tokens().includes(successor));
  first.kill("SIGCONT");
  assert.equal(await ended, 3);
  const written = tokens();
  const takeover = written.indexOf(successor);
  assert.ok(written.slice(0, takeover).every((token) => token === granted));
  assert.ok(written.slice(takeover).every((token) => token === successor));

  const stopped = new Promise<number | null>((resolve) => second.once("exit", resolve));
  second.kill("SIGTERM");
  assert.equal(await stopped, 0);
});
