// The driver of the conformance suite (../../conformance/PROTOCOL.md): translates its commands into calls of the package.

import { appendFileSync } from "node:fs";
import { createInterface } from "node:readline";

import {
  type Assignment,
  type Fleet,
  type Group,
  type JoinOptions,
  type Lease,
  type Membership,
  Tenure,
  TenureError,
} from "../src/index.js";

type Fields = Record<string, unknown>;
// Commands come from the runner, which checks them.
// biome-ignore lint/suspicious/noExplicitAny: the fields of a command depend on its operation
type Command = any;

const tenure = new Tenure(
  process.env.TENURE_STORE ?? "",
  process.env.TENURE_TOKEN ? { token: process.env.TENURE_TOKEN } : {},
);
const handles = new Map<string, Membership>();
const leases = new Map<string, Lease>();
const fleets = new Map<string, Fleet>();
const follows = new Map<string, AbortController>();
let names = 0;

const write = (line: Fields) => process.stdout.write(`${JSON.stringify(line)}\n`);
const given = (fields: Fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => value != null));

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

function find<T>(map: Map<string, T>, name: string): T {
  const found = map.get(name);
  if (!found) throw new Error(`unknown handle ${name}`);
  return found;
}

async function join({ op, group, member, ttl_ms, labels, rejoin }: Command) {
  const handle = `h${++names}`;
  const options: JoinOptions = {
    ...given({ ttlMs: ttl_ms, labels, rejoin }),
    onEvent: (event) => {
      // The protocol of the suite does not have these.
      if (event.type === "claim_lost" || event.type === "session_lost") return;
      if (event.type !== "lease_lost") {
        write({ event: event.type, handle, member, ...event, type: undefined });
        return;
      }
      const { lease } = event;
      const name = [...leases].find(([, other]) => other === lease)?.[0];
      // A lease that is lost before the runner has its handle reads as lost.
      if (name) write({ event: "lease_lost", lease_handle: name, lease: lease.name, token: lease.token });
    },
  };
  const membership = await (op === "inherit" ? tenure.inherit(options) : tenure.group(group).join(member, options));
  handles.set(handle, membership);
  return { handle, tenure: membership.tenure };
}

async function acquire({ handle, lease, wait_ms, holders }: Command) {
  const held = await find(handles, handle).acquire(lease, given({ waitMs: wait_ms, holders }));
  const name = `l${++names}`;
  leases.set(name, held);
  return {
    lease_handle: name,
    token: held.token,
    place: held.place,
    generation: held.generation,
    waited_ms: held.waitedMs,
  };
}

function work({ lease_handle, file, period_ms }: Command) {
  const lease = find(leases, lease_handle);
  const timer = setInterval(() => {
    const now = process.hrtime.bigint();
    const verdict = lease.verdict();
    if (verdict === "held") appendFileSync(file, `${lease.token} ${now}\n`);
    if (verdict === "lost") clearInterval(timer);
  }, period_ms);
  return {};
}

function startFleet({ handle, file, period_ms, stability_ms }: Command) {
  const work = async (assignment: Assignment) => {
    while (await assignment.nextCycle(period_ms)) {
      const now = process.hrtime.bigint();
      if (assignment.lease.verdict() === "held")
        appendFileSync(file, `${assignment.target} ${assignment.token} ${now}\n`);
    }
  };
  fleets.set(handle, find(handles, handle).fleet(work, { stabilityMs: stability_ms }));
  return {};
}

async function follow(group: Group, after: number | undefined, name: string, signal: AbortSignal) {
  for await (const item of group.follow({ ...given({ after }), signal })) {
    write(item.type === "gap" ? { event: "gap", follow: name } : { event: "item", follow: name, item: item.event });
  }
}

const operations: Record<string, (command: Command) => unknown> = {
  join,
  inherit: join,
  fleet: startFleet,
  drain: async ({ handle }) => ({ stubborn: await find(fleets, handle).drain() }),
  acquire,
  work,
  verdict: ({ handle }) => ({ verdict: find(handles, handle).verdict(), tenure: find(handles, handle).tenure }),
  leave: async ({ handle }) => (await find(handles, handle).leave()) ?? {},
  members: async ({ group }) => ({ members: await all(tenure.group(group).members()) }),
  labels: async ({ handle, labels }) => (await find(handles, handle).setLabels(labels)) ?? {},
  claim: async ({ handle, registry, key, if_absent }) => {
    const { outcome } = await find(handles, handle).claim(registry, key, { ifAbsent: if_absent === true });
    return { outcome };
  },
  release_claim: async ({ handle, registry, key }) => (await find(handles, handle).releaseClaim(registry, key)) ?? {},
  owner: ({ group, registry, key }) => tenure.group(group).owner(registry, key),
  lease_verdict: ({ lease_handle }) => ({
    verdict: find(leases, lease_handle).verdict(),
    token: find(leases, lease_handle).token,
  }),
  release: async ({ lease_handle, to }) => (await find(leases, lease_handle).release(to ?? undefined)) ?? {},
  lease: ({ group, lease }) => tenure.group(group).lease(lease),
  attach: ({ handle, session, connection, data, grace_ms }) =>
    find(handles, handle).attach(session, connection, given({ data, graceMs: grace_ms })),
  detach: async ({ handle, session, connection }) => (await find(handles, handle).detach(session, connection)) ?? {},
  session: ({ group, session }) => tenure.group(group).session(session),
  sessions: async ({ group, state, older_than_ms }) => {
    const sessions = [];
    const listed = tenure.group(group).sessions(given({ state, olderThanMs: older_than_ms }));
    for await (const one of listed) sessions.push(one);
    return { sessions };
  },
  patch_session: ({ group, session, data, handle }) =>
    handle ? find(handles, handle).patchSession(session, data) : tenure.group(group).patchSession(session, data),
  events: async ({ group, after, limit }) => {
    const { events, next, missed } = await tenure.group(group).events(given({ after, limit }));
    return { items: events, next, missed };
  },
  follow: ({ group, after }) => {
    const name = `f${++names}`;
    const controller = new AbortController();
    follows.set(name, controller);
    // The answer names the stream before its first line.
    setImmediate(() => follow(tenure.group(group), after ?? undefined, name, controller.signal).catch(console.error));
    return { follow: name };
  },
  unfollow: ({ follow: name }) => find(follows, name).abort() ?? {},
  provider_put: ({ roster, provider, capacity, display_name }) =>
    tenure.roster(roster).put(provider, given({ capacity, displayName: display_name })),
  provider: ({ roster, provider }) => tenure.roster(roster).provider(provider),
  online: ({ roster, provider }) => tenure.roster(roster).online(provider),
  offline: ({ roster, provider }) => tenure.roster(roster).offline(provider),
  heartbeat: async ({ roster, provider }) => (await tenure.roster(roster).heartbeat(provider)) ?? {},
  available: async ({ roster }) => {
    const candidates = await all(tenure.roster(roster).available());
    return { providers: candidates.map(({ provider }) => provider) };
  },
  reserve: async ({ roster, engagement: id }) => {
    const { engagement, provider } = await tenure.roster(roster).reserve(given({ engagement: id }));
    return { engagement, provider };
  },
  release_engagement: async ({ roster, engagement }) => {
    await tenure.roster(roster).moveEngagement(engagement, "ended");
    return {};
  },
};

function problem(error: unknown): Fields {
  if (!(error instanceof TenureError)) {
    return { code: "bad_command", status: 0, outcome: "unchanged", message: String((error as Error)?.stack ?? error) };
  }
  const { code, status, outcome, message } = error;
  return { code, status, outcome, reason: error.reason ?? null, retry_after_ms: error.retryAfterMs ?? null, message };
}

async function answer(line: string) {
  const command: Command = JSON.parse(line);
  try {
    const operation = operations[command.op];
    if (!operation) throw new Error(`unknown operation ${command.op}`);
    const ok = await operation(command);
    write({ id: command.id, ok });
  } catch (error) {
    write({ id: command.id, error: problem(error) });
  }
}

const lines = createInterface({ input: process.stdin });
lines.on("line", answer);
lines.on("close", () => process.exit(0));
