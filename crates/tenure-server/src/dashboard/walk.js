// A whole listing, read in the background, page after page and again and again: what is to be sorted or filtered has to be
// known whole. One request at a time, and on average at most one page a second.

import { find, get } from './api.js';
import { changed } from './world.js';

const PAGE = 1000;
/** The most items that are read and kept. */
const MOST = 200_000;
/** The shortest pause between two passes. */
const PAUSE = 3000;
/** A view of very many is sorted again at most this often. */
const SORTED = 1000;
const LARGE = 5000;
/** Rows in sight are read again by themselves where a pass takes long: those read this long ago, so many, so many at once. */
const OLD = 2500;
const SIGHT = 24;
const AT_ONCE = 4;

export class Walk {
  /** `address` makes the path of a page from its query; `name` is what the items are called, `id` what tells them apart. */
  constructor(address, name, id) {
    Object.assign(this, { address, name, id, items: new Map(), pass: 0, read: 0, at: 0, whole: false, isCut: false, error: null });
    /** What the order hangs on: readings of single items do not move rows, a pass does. And anything at all. */
    this.version = this.changes = 0;
  }

  /** Whether all items fit into one page, which is then as cheap to read again as any. */
  get isSmall() {
    return this.whole && this.items.size <= PAGE;
  }

  start() {
    if (this.stopping) return;
    this.stopping = new AbortController();
    this.run(this.stopping.signal);
  }

  stop() {
    this.stopping?.abort();
    this.stopping = null;
    this.hurry?.();
  }

  /** Begins the next pass now, if none is under way. */
  again() {
    this.hurry?.();
  }

  async run(signal) {
    while (!signal.aborted) {
      let pages = 0;
      if (document.hidden) await new Promise((resolve) => document.addEventListener('visibilitychange', resolve, { once: true }));
      try {
        pages = await this.walk(signal);
        this.error = null;
      } catch (error) {
        if (signal.aborted) return;
        this.error = error;
      }
      changed();
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, Math.max(PAUSE, pages * 1000));
        this.hurry = () => { clearTimeout(timer); resolve(); };
      });
      this.hurry = null;
    }
  }

  /** One pass. Answers how many pages it took. What it does not find is gone. */
  async walk(signal) {
    const pass = this.pass + 1;
    let pages = 0;
    this.read = 0;
    for (let after = null; ;) {
      const query = new URLSearchParams({ limit: PAGE, ...(after === null ? {} : { after }) });
      const sent = Date.now();
      const answer = await get(this.address(query), { signal });
      for (const item of answer[this.name]) this.put(item, sent, pass);
      this.read += answer[this.name].length;
      pages += 1;
      after = answer.next ?? null;
      this.isCut = after !== null && this.read >= MOST;
      if (!this.whole) this.version += 1;
      if (after === null || this.isCut) break;
      changed();
    }
    for (const [id, item] of this.items) if (item.pass < pass) this.items.delete(id);
    Object.assign(this, { pass, whole: true, at: Date.now() });
    this.version += 1;
    return pages;
  }

  /** Reads these again by themselves, `address` being the path of one. `gone` is asked before one that is not there is dropped. */
  async refresh(ids, address, gone = () => true) {
    if (this.refreshing) return;
    const due = ids.filter((id) => Date.now() - (this.items.get(id)?.read ?? 0) > OLD).slice(0, SIGHT);
    this.refreshing = true;
    try {
      for (let begin = 0; begin < due.length; begin += AT_ONCE) {
        await Promise.all(due.slice(begin, begin + AT_ONCE).map(async (id) => {
          const sent = Date.now();
          const item = await find(address(id), { signal: this.stopping?.signal });
          if (item) this.put(item, sent);
          else if (gone(id)) this.drop(id);
        }));
      }
    } catch {
      // The banner tells; what was read before is shown as of then.
    }
    this.refreshing = false;
    if (this.isNew) this.version += 1;
    this.isNew = false;
    changed();
  }

  /** Takes what was read of an item, unless what is known of it is newer. */
  put(item, read, pass = this.pass + 1) {
    const id = this.id(item);
    const known = this.items.get(id);
    if (known?.read > read) known.pass = pass;
    else this.items.set(id, Object.assign(item, { read, pass }));
    this.changes += 1;
    if (!known) this.isNew = true;
  }

  drop(id) {
    if (!this.items.delete(id)) return;
    this.version += 1;
    this.changes += 1;
  }
}

/** The ids of those items of a walk that are wanted, in order. Sorted again when something has changed, not too often;
    while `held`, what is new comes last. */
export class View {
  constructor(walk) {
    Object.assign(this, { walk, ids: [], wanted: () => true, before: () => 0, version: -1, at: 0 });
  }

  /** Other items, or another order. */
  set(wanted, before) {
    Object.assign(this, { wanted, before, version: -1, at: 0 });
  }

  list(held = false) {
    const { walk } = this;
    if (this.version === walk.version && this.wasHeld === held) return this.ids;
    if (walk.items.size > LARGE && Date.now() - this.at < SORTED) return this.ids;
    const keeps = held && this.at > 0;
    const kept = keeps ? this.ids.filter((id) => walk.items.has(id)) : [];
    const known = new Set(kept);
    const items = [];
    for (const item of walk.items.values()) if (!known.has(walk.id(item)) && this.wanted(item)) items.push(item);
    this.ids = kept.concat(items.sort(this.before).map(walk.id));
    Object.assign(this, { version: walk.version, wasHeld: held });
    this.at = Date.now();
    return this.ids;
  }
}
