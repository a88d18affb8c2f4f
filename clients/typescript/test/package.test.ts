// The package as its users get it: packed, installed into an empty folder, where the README's start is checked and runs.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { daemon } from "./daemon.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const run = promisify(execFile);

// What the README's start calls, and what ends its loop.
const work = `
const written: number[] = [];
async function writeReport(token: number): Promise<void> {
  if (written.push(token) === 3) await lease.release();
}
`;

test("the README's start runs from the installed package", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "tenure-ts-"));
  const running = await daemon();
  t.after(async () => {
    await running.stop();
    rmSync(folder, { recursive: true });
  });
  await run("npm", ["pack", "--pack-destination", folder, "--loglevel=error"], { cwd: root });
  const [archive, ...others] = readdirSync(folder).filter((name) => name.endsWith(".tgz"));
  assert.ok(archive && others.length === 0);
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
  const quiet = ["--offline", "--no-audit", "--no-fund", "--loglevel=error"];
  await run("npm", ["install", ...quiet, join(folder, archive)], { cwd: folder });
  const files = readdirSync(join(folder, "node_modules/tenure-client"));
  assert.deepEqual(files.sort(), ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "dist", "package.json"]);

  const start = readFileSync(join(root, "README.md"), "utf8").match(/```ts\n([\s\S]*?)```/)?.[1] ?? "";
  assert.ok(start.includes("http://127.0.0.1:7717"), start);
  const program = work + start.replace("http://127.0.0.1:7717", running.url);
  writeFileSync(join(folder, "start.ts"), `${program}if (written.length !== 3) throw new Error(String(written));\n`);
  const options = ["--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom"];
  await run(join(root, "node_modules/.bin/tsc"), [...options, "start.ts"], { cwd: folder });
  await run(process.execPath, ["start.js"], { cwd: folder });
});
