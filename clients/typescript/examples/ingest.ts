// An ingest instance: devices connect to it, and a command that any instance gets reaches the one that has the device.
//
//   node ingest.js [NAME]
//
//   curl -X PUT    http://INSTANCE/devices/cam-17             the device connects here
//   curl -X DELETE http://INSTANCE/devices/cam-17             it disconnects
//   curl -X POST   http://ANY/devices/cam-17 -d 'reboot'      a command for it
//
// What an instance had that is killed is free after its ttl, and the event `evicted` lists it.

import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";

// In your program: from "tenure-client".
import { Tenure } from "../src/index.js";

const REGISTRY = "devices";
const group = new Tenure().group("ingest");
const connected = new Set<string>();

async function text(request: IncomingMessage): Promise<string> {
  let all = "";
  for await (const part of request.setEncoding("utf8")) all += part;
  return all;
}

const server = createServer((request, response) => {
  const device = decodeURIComponent(request.url?.split("/")[2] ?? "");
  handle(request, device)
    .then((status) => response.writeHead(status).end())
    .catch((error: unknown) => response.writeHead(503).end(String(error)));
});

async function handle(request: IncomingMessage, device: string): Promise<number> {
  if (request.method === "PUT") {
    // A device that connects here is here, whatever its former owner.
    await membership.claim(REGISTRY, device);
    connected.add(device);
    return 204;
  }
  if (request.method === "DELETE") {
    connected.delete(device);
    await membership.releaseClaim(REGISTRY, device);
    return 204;
  }
  return send(device, await text(request));
}

/** Hands a command to the device, here or through the instance that has it. */
async function send(device: string, command: string): Promise<number> {
  if (connected.has(device)) {
    console.log("command", device, command);
    return 202;
  }
  const claim = await group.owner(REGISTRY, device);
  const owner = claim?.alive ? await group.member(claim.owner) : null;
  const address = owner?.labels?.address;
  if (!address || claim?.owner === membership.member) return 404;
  const forwarded = await fetch(`${address}/devices/${encodeURIComponent(device)}`, { method: "POST", body: command });
  return forwarded.status;
}

await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
const membership = await group.join(process.argv[2], {
  ttlMs: Number(process.env.TENURE_TTL_MS ?? 30_000),
  patienceMs: 60_000,
  labels: { address },
  checkClaimsMs: 5_000,
  onEvent: (event) => {
    // The device has connected elsewhere: close its connection here.
    if (event.type === "claim_lost") connected.delete(event.key);
  },
});
console.log("listening", address);

const stop = () => {
  server.close();
  membership.leave().catch(console.error);
};
for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, stop);
const reason = await membership.stopped;
if (reason !== "left") console.error("ended:", reason);
process.exitCode = reason === "left" ? 0 : 1;
