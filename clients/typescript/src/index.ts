/// <reference lib="esnext.disposable" preserve="true" />

import { Group } from "./group.js";
import { type ClientOptions, Http } from "./http.js";
import { type InheritOptions, Membership } from "./membership.js";
import { Roster } from "./roster.js";

export type { ClaimOptions } from "./claims.js";
export type { Clock } from "./clock.js";
export { type Outcome, TenureError } from "./error.js";
export type { Assignment, Fleet, FleetOptions } from "./fleet.js";
export type { EventOptions, Followed, Group } from "./group.js";
export type { ClientOptions } from "./http.js";
export type { AcquireOptions, Lease } from "./lease.js";
export type { EndReason, InheritOptions, JoinOptions, Membership, MembershipEvent, Verdict } from "./membership.js";
export { rank, score } from "./placement.js";
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

  /**
   * Acts under the tenure of the `tenure join` or `tenure lock` around this process, without a join of its own.
   *
   * The tenure is the holder: processes that share it share its leases, so let each acquire others. `leave()` ends the beats of
   * this process; what it holds stays with the tenure until the wrapper leaves. When the wrapper joins again after a lapse, the
   * membership follows it.
   */
  inherit(options: InheritOptions = {}): Promise<Membership> {
    return Membership.inherit(this.#http, options);
  }

  roster(name: string): Roster {
    return new Roster(this.#http, name);
  }
}
