import { invalid, type TenureError } from "./error.js";
import type { TlsFiles } from "./place.js";

/**
 * A set of connections. Beats have their own, so that they neither wait for a connection nor meet one that another call found
 * dead; waits hold theirs for long.
 */
export type Pool = "calls" | "beats" | "waits";

export interface Request {
  url: string;
  method: string;
  headers: Record<string, string>;
  body: string | undefined;
  signal: AbortSignal;
  pool: Pool;
}

export interface Reply {
  status: number;
  text: string;
  storeTime: string | null | undefined;
  /** Whether it answers a second request, after one on an idle connection that may have taken effect. */
  resent?: boolean;
}

export type Send = (request: Request) => Promise<Reply>;

/** The modules that Node.js has beside `fetch`; `undefined` in other runtimes. Bundlers for browsers do not see the import. */
export async function nodeModule<T>(name: string): Promise<T | undefined> {
  const versions = globalThis.process?.versions as Record<string, string | undefined> | undefined;
  if (!versions?.node || versions.bun || versions.deno) return undefined;
  return (await import(name)) as T;
}

/** Sends by `fetch`. The runtime decides about its connections and the authorities that it trusts. */
function sendByFetch(given: typeof fetch): Send {
  return async ({ pool: _, body, ...request }) => {
    // Another server would get the token.
    const response = await given(request.url, {
      ...request,
      redirect: "manual",
      ...(body === undefined ? {} : { body }),
    });
    return {
      status: response.status,
      text: await response.text(),
      storeTime: response.headers.get("tenure-store-time"),
    };
  };
}

/** Sends by the modules of Node.js, or by `fetch` where there are none or one is given. */
export async function makeSend(given: typeof fetch | undefined, files: TlsFiles): Promise<Send> {
  const node = given ? undefined : await nodeModule<typeof import("node:http")>("node:http");
  if (node) return (await import("./node.js")).sendByNode(files);
  if (Object.keys(files).length > 0) throw onlyNode();
  return sendByFetch(given ?? fetch);
}

const onlyNode = (): TenureError =>
  invalid(
    "tls_ca, tls_cert and tls_key in the URL need Node.js without a fetch of yours; elsewhere the runtime has the files",
  );
