import type { Agent, ClientRequest, IncomingMessage } from "node:http";

import { invalid } from "./error.js";
import type { TlsFiles } from "./place.js";
import { nodeModule, type Pool, type Reply, type Request, type Send } from "./send.js";

const IDLE_MS = 30_000;
const MAX_ANSWER = 16 * 2 ** 20;

const load = async <T>(name: string): Promise<T> => (await nodeModule<T>(name)) as T;

/** Sends by the modules of Node.js, with a pool of connections for each kind of call. */
export async function sendByNode(files: TlsFiles): Promise<Send> {
  const http = await load<typeof import("node:http")>("node:http");
  const https = await load<typeof import("node:https")>("node:https");
  const { createSecureContext } = await load<typeof import("node:tls")>("node:tls");
  const { X509Certificate } = await load<typeof import("node:crypto")>("node:crypto");
  let seen = await state(files);
  let tls = await read(files);
  const agents = new Map<Pool, Agent>();
  /** Takes replaced files, for new connections. While they cannot be used, the last ones count. */
  const renew = async () => {
    const now = await state(files);
    if (now === seen) return;
    try {
      const found = await read(files);
      createSecureContext(found);
      // It takes any text for authorities.
      if (found.ca) new X509Certificate(found.ca);
      [seen, tls] = [now, found];
      agents.clear();
    } catch {}
  };
  return async (request) => {
    const isSecure = request.url.startsWith("https:");
    if (isSecure) await renew();
    const settings = { keepAlive: true, maxFreeSockets: 8, timeout: IDLE_MS };
    const agent =
      agents.get(request.pool) ?? (isSecure ? new https.Agent({ ...settings, ...tls }) : new http.Agent(settings));
    agents.set(request.pool, agent);
    const make = isSecure ? https.request : http.request;
    for (let resent = false; ; resent = true) {
      const { method, headers, signal } = request;
      const outgoing = make(request.url, { method, headers, signal, agent });
      try {
        return { ...(await answer(outgoing, request)), resent };
      } catch (error) {
        // A connection that was idle may be dead, and the others with it: once more, on a new one.
        for (const idle of Object.values(agent.freeSockets).flat()) idle?.destroy();
        if (resent || !outgoing.reusedSocket || signal.aborted) throw error;
      }
    }
  };
}

function answer(outgoing: ClientRequest, request: Request): Promise<Reply> {
  return new Promise((resolve, reject) => {
    outgoing.on("error", reject);
    outgoing.on("response", (incoming: IncomingMessage) => {
      let text = "";
      incoming.setEncoding("utf8");
      incoming.on("data", (part: string) => {
        text += part;
        if (text.length > MAX_ANSWER) incoming.destroy(new Error("the answer is too long"));
      });
      incoming.on("error", reject);
      incoming.on("close", () => {
        if (!incoming.complete) return reject(new Error("the answer was cut"));
        const storeTime = incoming.headers["tenure-store-time"];
        resolve({ status: incoming.statusCode ?? 0, text, storeTime: String(storeTime) });
      });
    });
    outgoing.end(request.body);
  });
}

/** Which files these are now: it changes when one is replaced or written. */
async function state(files: TlsFiles): Promise<string> {
  const { stat } = await load<typeof import("node:fs/promises")>("node:fs/promises");
  const found = Object.values(files).map(async (file) => {
    const now = await stat(file, { bigint: true }).catch(() => undefined);
    return now && `${now.mtimeNs} ${now.ino} ${now.size}`;
  });
  return (await Promise.all(found)).join("/");
}

async function read(files: TlsFiles): Promise<TlsFiles> {
  const { readFile } = await load<typeof import("node:fs/promises")>("node:fs/promises");
  const found: TlsFiles = {};
  for (const [name, file] of Object.entries(files)) {
    try {
      found[name as keyof TlsFiles] = await readFile(file, "utf8");
    } catch (cause) {
      throw invalid(
        `tls_${name} of the daemon's URL cannot be read: ${cause instanceof Error ? cause.message : cause}`,
      );
    }
  }
  return found;
}
