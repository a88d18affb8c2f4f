// A daemon for one test file: TENURE_BIN names the program.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";

import { Tenure } from "../src/index.js";

export interface Daemon {
  url: string;
  store: Tenure;
  stop(): Promise<void>;
}

export async function daemon(): Promise<Daemon> {
  const program = process.env.TENURE_BIN;
  if (!program) throw new Error("TENURE_BIN is not set: it names the tenure program, as target/debug/tenure");
  const folder = mkdtempSync(join(tmpdir(), "tenure-ts-"));
  const args = ["serve", "--store", `sqlite:${folder}/t.db`, "--listen", "127.0.0.1:0"];
  const child = spawn(resolve(program), args, { cwd: folder, stdio: ["ignore", "pipe", "ignore"] });
  const url = await firstLine(child, (line) => line.startsWith("http://"));
  await until(() => settle(url));
  const exited = new Promise((done) => child.once("exit", done));
  const stop = async () => {
    child.kill("SIGKILL");
    await exited;
    rmSync(folder, { recursive: true });
  };
  return { url, store: new Tenure(url), stop };
}

/** Declares that no lease was held before, so that leases are granted. A busy disk can refuse it for a moment. */
async function settle(url: string): Promise<boolean> {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(`${url}/v1/settle`, { method: "POST", headers, body: "{}" });
  if (answer.status < 500 && !answer.ok) throw new Error(`settle: ${answer.status} ${await answer.text()}`);
  return answer.ok;
}

/** The first line of a program that fits. */
export function firstLine(child: ChildProcess, fits: (line: string) => boolean): Promise<string> {
  return new Promise((resolve, reject) => {
    if (!child.stdout) return reject(new Error("the program has no stdout"));
    const lines = createInterface({ input: child.stdout });
    lines.on("line", (line) => fits(line) && resolve(line));
    lines.on("close", () => reject(new Error("the program ended")));
  });
}

/** Waits until a condition holds. */
export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 10));
}

/** A server that answers with what is given, in turn, and keeps what was asked. */
export async function fake(...answers: { status: number; body?: unknown; headers?: Record<string, string> }[]) {
  const asked: { method: string; url: string; headers: Record<string, unknown> }[] = [];
  const server: Server = createServer((request, response) => {
    asked.push({ method: request.method ?? "", url: request.url ?? "", headers: request.headers });
    const answer = answers.length > 1 ? answers.shift() : answers[0];
    request.resume().on("end", () => {
      if (!answer || answer.status === 0) return request.socket.destroy();
      response.writeHead(answer.status, { "content-type": "application/json", ...answer.headers });
      return response.end(answer.body === undefined ? "" : JSON.stringify(answer.body));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}`, asked, close: () => server.close() && server.closeAllConnections() };
}
