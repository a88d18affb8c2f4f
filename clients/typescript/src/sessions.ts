import { type Holder, parts } from "./holder.js";
import { type Call, isCount, isList, isText, path } from "./http.js";
import { Turns } from "./turns.js";
import type { Attached, Session, SessionData } from "./types.js";

export interface AttachOptions {
  /** A field replaces the old value, `null` removes it. */
  data?: SessionData;
  alias?: string;
  graceMs?: number;
  /** Do not create the session. */
  resumeOnly?: boolean;
  /** Gives the call up; the connection is detached if it was attached. */
  signal?: AbortSignal;
}

interface Connection {
  session: string;
  connection: string;
  /** That of the newest attach. */
  epoch: number;
}

interface AttachResult {
  session: string;
  connection: string;
  /** `attached` or `resumed`, with `now`; else why not. */
  outcome: string;
  now?: Session | null;
}

/** The connections that a membership has attached to sessions: they are attached again under a new tenure. */
export class Sessions {
  readonly #holder: Holder;
  readonly #connections = new Map<string, Connection>();
  readonly #turns = new Turns();

  constructor(holder: Holder) {
    this.#holder = holder;
  }

  get size(): number {
    return this.#connections.size;
  }

  attach(session: string, connection: string, options: AttachOptions): Promise<Attached> {
    const { data, alias, graceMs, resumeOnly, signal } = options;
    const key = thing(session, connection);
    let had = false;
    const call = (tenure: string): Call => ({
      method: "PUT",
      path: this.#path("sessions", session),
      body: { tenure, connection, data, alias, grace_ms: graceMs, ...(resumeOnly ? { resume_only: true } : {}) },
      check: ({ outcome, epoch }) => isText(outcome) && isCount(epoch),
      caller: signal,
    });
    return this.#turns.grant(
      [key],
      signal,
      async () => {
        had = this.#connections.has(key);
        const attached = await this.#holder.change<Attached>(call);
        this.#connections.set(key, { session, connection, epoch: attached.epoch });
        return attached;
      },
      async () => had || this.#detach(session, connection),
    );
  }

  detach(session: string, connection: string): Promise<void> {
    return this.#turns.run([thing(session, connection)], () => this.#detach(session, connection));
  }

  async #detach(session: string, connection: string): Promise<void> {
    const key = thing(session, connection);
    const epoch = this.#connections.get(key)?.epoch;
    this.#connections.delete(key);
    const url = this.#path("sessions", session, "connections", connection);
    await this.#holder.change((tenure) => ({ method: "DELETE", path: url, query: { tenure, epoch } }));
  }

  /** Attaches the connections again; a session that was reaped is reported. Returns whether it is done. */
  async again(): Promise<boolean> {
    let isDone = true;
    for (const part of parts([...this.#connections])) {
      // A call changes the others at the moment.
      const free = part.filter(([key]) => this.#turns.isFree(key));
      isDone &&= free.length === part.length;
      const keys = free.map(([key]) => key);
      const asked = free.map(([, { session, connection }]) => ({ session, connection }));
      if (asked.length > 0) await this.#turns.run(keys, () => this.#attachPart(asked));
    }
    return isDone;
  }

  async #attachPart(asked: { session: string; connection: string }[]): Promise<void> {
    const keyOf = ({ session, connection }: { session: string; connection: string }) => thing(session, connection);
    const keys = asked.map(keyOf).join();
    const { results } = await this.#holder.change<{ results: AttachResult[] }>((tenure) => ({
      method: "POST",
      path: this.#path("sessions-attach"),
      body: { tenure, sessions: asked.map((one) => ({ ...one, resume_only: true })) },
      check: ({ results }) =>
        isList(results, "session", "connection", "outcome") &&
        (results as AttachResult[]).map(keyOf).join() === keys &&
        (results as AttachResult[]).every(({ now }) => now == null || isCount(now.epoch)),
    }));
    for (const { session, connection, outcome, now } of results) {
      const key = thing(session, connection);
      if (now) {
        this.#connections.set(key, { session, connection, epoch: now.epoch });
      } else {
        this.#connections.delete(key);
        this.#holder.emit({ type: "session_lost", session, connection, reason: outcome });
      }
    }
  }

  #path(...rest: string[]): string {
    return path("groups", this.#holder.group, ...rest);
  }
}

// No name has a slash.
const thing = (session: string, connection: string) => `${session}/${connection}`;
