// A complete listing, read in the background in repeated passes, for sorting and filtering. One request at a time, on average
// at most one page a second.

import { find, get } from './api.js';
import { changed } from './world.js';

const PAGE = 1000;
/** The most items that are read and kept. */
const MOST = 200_000;
/** The shortest pause between two passes. */
const PAUSE = 3000;
/** The shortest interval of sorting a large listing. */
const SORTED = 1000;
const LARGE = 5000;
/** Visible rows are read individually when a pass takes long: minimum age, batch size, concurrency. */
const OLD = 2500;
const SIGHT = 24;
const AT_ONCE = 4;

export class Walk {
  /** `address` makes the path of a page from its query; `name` is the field with the items, `id` the key of an item. */
  constructor(address, name, id) {
    Object.assign(this, { address, name, id, items: new Map(), pass: 0, read: 0, at: 0, whole: false, isCut: false, error: null });
    /** Versions: of the order, which only passes change, and of any content. */
    this.version = this.changes = 0;
  }

  /** Whether all items fit into one page, which is cheap to read again. */
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

  /** Starts the next pass now, unless one is running. */
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

  /** One pass; returns its number of pages. Items that it does not find are removed. */
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

  /** Reads single items, `address` being the path of one. `gone` confirms the removal of a missing one. */
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
      // A banner shows the error; the old content is shown with its age.
    }
    this.refreshing = false;
    if (this.isNew) this.version += 1;
    this.isNew = false;
    changed();
  }

  /** Stores a read item unless a newer reading is known. */
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
