// The answers of the daemon, as they are on the wire. A newer daemon may add fields.

export interface Problem {
  code: string;
  title: string;
  detail: string;
  outcome: "unchanged" | "unknown" | null;
  reason: string | null;
  retry_after_ms: number | null;
  /** With `lease_held`, `not_holder`: the member that holds it. */
  holder: string | null;
  /** With `claim_held`, `not_owner`: the member that owns the key. */
  owner: string | null;
  tenure: string | null;
  waited_ms: number | null;
  [field: string]: unknown;
}

export interface Page {
  next?: string | null;
}

export interface Joined {
  tenure: string;
  member: string;
  ttl_ms: number;
  superseded?: string | null;
}

export interface Member {
  member: string;
  tenure: string;
  alive: boolean;
  labels: Record<string, string>;
  ttl_ms: number;
  expires_in_ms: number;
  joined_at: string;
  last_beat_at: string;
}

/** The owner of a key. `alive` tells whether its tenure is alive now. */
export interface Claim {
  key: string;
  owner: string;
  tenure: string;
  alive: boolean;
}

export interface Claimed {
  key: string;
  owner: string;
  tenure: string;
  outcome: "new" | "kept" | "moved";
  from?: string | null;
  from_member?: string | null;
  revision?: number | null;
}

/** The result for one of many keys; `held`: another member has it. */
export interface ClaimResult {
  key: string;
  outcome: "new" | "kept" | "moved" | "held";
  owner?: string | null;
  tenure?: string | null;
}

export interface LeaseHolder {
  holder: string;
  tenure: string;
  token: number;
  place?: number;
  generation?: number;
  alive: boolean;
  expires_in_ms: number;
  revoked?: boolean;
}

/** A lease; of a shared one the fields beside `holders` name the living holder with the highest token. */
export interface LeaseState {
  lease: string;
  holder: string;
  tenure: string;
  token: number;
  generation?: number;
  alive: boolean;
  expires_in_ms: number;
  holders?: LeaseHolder[];
  places?: number;
  free?: number;
  waiting?: number;
}

/** A thing that one node of a fleet works on: the one that holds the lease of its name. */
export interface Target {
  target: string;
  paused: boolean;
  weight: number;
  /** The node that should have it. Only the lease decides. */
  preferred?: string | null;
  holder?: string | null;
  tenure?: string | null;
  token?: number | null;
  alive?: boolean | null;
}

/** The answer to an acquire of many leases: one result for each. */
export interface AcquiredMany {
  results: {
    lease: string;
    outcome: string;
    token?: number | null;
    place?: number | null;
    generation?: number | null;
  }[];
  revision?: number | null;
}

export interface Acquired {
  lease: string;
  token: number;
  outcome: "granted" | "kept";
  place?: number;
  generation?: number;
  waited_ms?: number;
  from?: string | null;
  from_member?: string | null;
  revision?: number | null;
}

export type SessionData = Record<string, unknown>;

export interface Session {
  session: string;
  state: "active" | "disconnected" | "orphan";
  connections: number;
  epoch: number;
  alias?: string | null;
  data?: SessionData;
  disconnected_at?: string | null;
  reap_in_ms?: number | null;
}

export interface Attached extends Session {
  outcome: "created" | "attached" | "resumed";
  revision?: number | null;
}

export interface TenureEvent {
  id: number;
  type: string;
  at: string;
  tenure?: string | null;
  member?: string | null;
  from?: string | null;
  from_member?: string | null;
  reason?: string | null;
  lease?: string | null;
  token?: number | null;
  session?: string | null;
  [field: string]: unknown;
}

export interface EventsPage {
  events: TenureEvent[];
  /** Whether events after the one asked for are missing: the log was trimmed, or the store lost data. */
  missed: boolean;
  next: string;
}

export interface Provider {
  provider: string;
  display_name?: string | null;
  active: boolean;
  online: boolean;
  alive: boolean;
  occupancy: number;
  capacity: number;
  last_heartbeat_at?: string | null;
}

export interface Candidate {
  provider: string;
  occupancy: number;
  capacity: number;
}

export interface Availability {
  available: boolean;
  count: number;
  as_of: string;
}

export interface Engagement {
  engagement: string;
  provider?: string | null;
  status: string;
  expires_at?: string | null;
}
