// Networks that fail, as a `fetch` for a client, and a TCP proxy that drops idle connections.

import type { AddressInfo } from "node:net";
import { connect, createServer, type Socket } from "node:net";

type Rule = (url: URL, init: RequestInit) => Promise<Response> | undefined;

/** A network with a delay, that can be silent, and in which something else can answer. */
export class Network {
  delayMs = 0;
  isSilent = false;
  rule: Rule | undefined;

  readonly fetch: typeof fetch = async (target, init = {}) => {
    if (this.delayMs > 0) await new Promise((resolve) => setTimeout(resolve, this.delayMs));
    if (this.isSilent) return silence(init.signal);
    return this.rule?.(new URL(String(target)), init) ?? fetch(target, init);
  };
}

export const silence = (signal: AbortSignal | null | undefined) =>
  new Promise<never>((_, reject) => {
    const abort = () => reject(signal?.reason);
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort);
  });

/** A balancer that drops idle connections without a word: it resets them when they are used again. */
export async function balancer(target: string) {
  const { hostname, port } = new URL(target);
  const open = new Map<Socket, { dropped: boolean }>();
  const server = createServer((client) => {
    const daemon = connect(Number(port), hostname);
    const state = { dropped: false };
    open.set(client, state);
    client.on("data", (bytes) => (state.dropped ? client.resetAndDestroy() : daemon.write(bytes)));
    daemon.on("data", (bytes) => client.write(bytes));
    for (const [one, other] of [
      [client, daemon],
      [daemon, client],
    ] as const) {
      one.on("error", () => {});
      one.on("close", () => other.destroy());
    }
    client.on("close", () => open.delete(client));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    /** Drops the connections of now. Returns how many. */
    drop: () => {
      for (const state of open.values()) state.dropped = true;
      return open.size;
    },
    close: () => {
      server.close();
      for (const client of open.keys()) client.destroy();
    },
  };
}
