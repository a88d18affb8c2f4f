/// <reference lib="esnext.disposable" preserve="true" />

import { Group } from "./group.js";
import { type ClientOptions, Http } from "./http.js";
import { Roster } from "./roster.js";

export type { ClaimOptions } from "./claims.js";
export type { Clock } from "./clock.js";
export { type Outcome, TenureError } from "./error.js";
export type { EventOptions, Followed, Group } from "./group.js";
export type { ClientOptions } from "./http.js";
export type { AcquireOptions, Lease } from "./lease.js";
export type { EndReason, JoinOptions, Membership, MembershipEvent, Verdict } from "./membership.js";
export type { Roster } from "./roster.js";
export type { AttachOptions } from "./sessions.js";
export type * from "./types.js";

/** A client of a daemon. It opens no connection by itself. */
export class Tenure {
  readonly #http: Http;

  /**
   * `url` is that of the daemon, as `https://HOST:7717?tls_ca=FILE` (also `tls_cert` and `tls_key`, for a client certificate). By
   * default the variable `TENURE_STORE`, or `http://127.0.0.1:7717`.
   */
  constructor(url?: string, options: ClientOptions = {}) {
    this.#http = new Http(url, options);
  }

  group(name: string): Group {
    return new Group(this.#http, name);
  }

  roster(name: string): Roster {
    return new Roster(this.#http, name);
  }
}
