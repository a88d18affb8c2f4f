import { invalid } from "./error.js";
import { nodeModule } from "./send.js";

/** The files that a daemon's URL names, under the names that Node.js has for their contents. */
export type TlsFiles = { ca?: string; cert?: string; key?: string };

export interface Place {
  base: string;
  files: TlsFiles;
}

/** Environment variables; none where the runtime has none. */
export const variable = (name: string): string | undefined => globalThis.process?.env?.[name] || undefined;

/** Reads the URL of a daemon, as `https://HOST:PORT?tls_ca=FILE`. The error does not contain it: it may carry a password. */
export function readPlace(given: string): Place {
  let url: URL;
  try {
    url = new URL(given);
  } catch {
    throw invalid("the URL of the daemon is not like http://127.0.0.1:7717 or https://HOST:PORT?tls_ca=FILE");
  }
  if (url.protocol !== "http:" && url.protocol !== "https:")
    throw invalid("the URL of the daemon is neither http:// nor https://");
  if (url.username || url.password || url.hash)
    throw invalid("the URL of the daemon has credentials or a fragment; use the option token");
  const files: TlsFiles = {};
  for (const [name, file] of url.searchParams) {
    const field = { tls_ca: "ca", tls_cert: "cert", tls_key: "key" }[name] as keyof TlsFiles | undefined;
    if (!field) throw invalid("the query of the daemon's URL takes tls_ca, tls_cert and tls_key");
    if (url.protocol !== "https:" || !file || files[field]) throw invalid(`${name} names one file, for https://`);
    files[field] = file;
  }
  return { base: url.origin + url.pathname.replace(/\/+$/, ""), files };
}

/** What reads the token for each call: that in a file may be replaced. */
export function readToken(given: string | undefined): () => Promise<string | undefined> {
  const file = variable("TENURE_TOKEN_FILE");
  const token = given ?? variable("TENURE_TOKEN");
  if (given !== undefined || file === undefined) return async () => token;
  let last: string | undefined;
  return async () => {
    try {
      const fs = await nodeModule<typeof import("node:fs/promises")>("node:fs/promises");
      last = (await fs?.readFile(file, "utf8"))?.trim();
    } catch (cause) {
      if (last === undefined) throw invalid(`TENURE_TOKEN_FILE: ${cause instanceof Error ? cause.message : cause}`);
    }
    return last;
  };
}

const MAX_NAME = 200;

/** A name that no other process has: the host, the start of the process and a random part, as in the other libraries. */
export async function generatedName(): Promise<string> {
  const os = await nodeModule<typeof import("node:os")>("node:os");
  const host = (os?.hostname() || "host").replace(/[^A-Za-z0-9._:-]/g, "-");
  const random = Math.floor(Math.random() * 2 ** 32)
    .toString(16)
    .padStart(8, "0");
  const tail = `-${Math.round(performance.timeOrigin * 1_000)}000-${random}`;
  return host.slice(0, MAX_NAME - tail.length) + tail;
}
