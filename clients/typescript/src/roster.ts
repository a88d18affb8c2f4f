import { orNull } from "./error.js";
import { type Call, type Http, path } from "./http.js";
import type { Availability, Candidate, Engagement, Page, Provider } from "./types.js";

/** A roster: providers that go online and take engagements. */
export class Roster {
  readonly name: string;
  readonly #http: Http;

  constructor(http: Http, name: string) {
    this.#http = http;
    this.name = name;
  }

  /** Creates or changes a provider. */
  put(provider: string, options: { capacity?: number; displayName?: string } = {}): Promise<Provider> {
    const { capacity, displayName } = options;
    const body = {
      ...(capacity === undefined ? {} : { capacity }),
      ...(displayName === undefined ? {} : { display_name: displayName }),
    };
    return this.#http.json({ method: "PUT", path: this.#path("providers", provider), body });
  }

  provider(provider: string): Promise<Provider | null> {
    return orNull(this.#http.json({ path: this.#path("providers", provider) }));
  }

  online(provider: string): Promise<Provider> {
    return this.#http.json({ method: "POST", path: this.#path("providers", provider, "online") });
  }

  offline(provider: string): Promise<Provider> {
    return this.#http.json({ method: "POST", path: this.#path("providers", provider, "offline") });
  }

  /** Keeps a provider online: about every 30 s. `provider_offline` if it has to go online first. */
  async heartbeat(provider: string): Promise<void> {
    const call: Call = {
      method: "POST",
      path: this.#path("providers", provider, "heartbeat"),
      isBeat: true,
      pool: "beats",
    };
    await this.#http.json<unknown>(call);
  }

  async *available(): AsyncGenerator<Candidate> {
    const pages = this.#http.pages<Page & { providers: Candidate[] }>(
      { path: this.#path("available") },
      "providers",
      "provider",
    );
    for await (const page of pages) yield* page.providers;
  }

  availability(): Promise<Availability> {
    return this.#http.json({ path: this.#path("availability") });
  }

  /**
   * Reserves an available provider, or the one that is named, and none of `exclude`; `none_available` if there is none. A
   * repeated id gives the same engagement.
   */
  reserve(
    options: { engagement?: string; provider?: string; exclude?: string[]; expiresInMs?: number; status?: string } = {},
  ): Promise<Engagement> {
    const { engagement = newId(), provider, exclude, expiresInMs, status } = options;
    const body = {
      engagement,
      ...(provider === undefined ? {} : { provider }),
      ...(exclude === undefined ? {} : { except: exclude }),
      ...(expiresInMs === undefined ? {} : { expires_in_ms: expiresInMs }),
      ...(status === undefined ? {} : { status }),
    };
    return this.#http.json({ method: "POST", path: this.#path("reserve"), body });
  }

  engagement(engagement: string): Promise<Engagement | null> {
    return orNull(this.#http.json({ path: this.#path("engagements", engagement) }));
  }

  /** Moves an engagement: `active`, `ended`, `cancelled`. */
  moveEngagement(engagement: string, status: string): Promise<Engagement> {
    return this.#http.json({ method: "PATCH", path: this.#path("engagements", engagement), body: { status } });
  }

  #path(...rest: string[]): string {
    return path("rosters", this.name, ...rest);
  }
}

/** A name that no other caller makes. */
function newId(): string {
  const part = () => Math.floor(Math.random() * 2 ** 48).toString(36);
  return `e-${Date.now().toString(36)}-${part()}${part()}`;
}
