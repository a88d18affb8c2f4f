// Virtual lists: only visible rows are elements, and only visited pages are fetched.

import { get } from './api.js';
import { attr, h, say } from './dom.js';
import { changed } from './world.js';

/** Extra rows above and below, so that scrolling shows no gap. */
const BEYOND = 6;
/** The page size after a jump. */
const LEAP = 500;
/** Browsers cannot scroll further than some 30 million pixels. */
export const MOST_ROWS = 200_000;

/** A list of rows of one height. Give it a `count`, how to `make` a row, and how to `fill` one with the item at an index. */
export class List {
  constructor({ label, empty, make, fill, open, key }) {
    Object.assign(this, { make, fill, open, key });
    this.count = 0;
    this.active = -1;
    this.rows = new Map();
    this.spare = [];
    this.body = h('div', {
      class: 'rows', role: 'listbox', tabindex: 0, 'aria-label': label, onkeydown: (event) => this.press(event),
      onclick: (event) => this.click(event), onfocus: () => this.move(Math.max(0, this.active), false),
      onpointerenter: (event) => { this.isPointed = event.pointerType === 'mouse'; }, onpointerleave: () => { this.isPointed = false; changed(); },
      onblur: () => changed(),
    });
    this.none = h('div', { class: 'none' }, empty ?? '');
    this.trouble = h('p', { class: 'quiet', hidden: true });
    this.root = h('div', { class: 'list' }, this.body, this.none, this.trouble);
    this.prefix = 'row-' + Math.random().toString(36).slice(2, 8) + '-';
    this.seen = { first: 0, last: -1 };
    this.attached = this.isPointed = false;
    this.moved = () => changed();
  }

  /** The nearest scrolling ancestor. */
  scroller() {
    const own = this.root.closest('.scrolls');
    const scrolls = own && getComputedStyle(own).overflowY !== 'visible';
    return scrolls ? own : document.scrollingElement;
  }

  /** Whether rows must not move because the pointer is on one. */
  get isHeld() {
    return this.isPointed || document.activeElement === this.body;
  }

  attach() {
    this.attached = true;
    addEventListener('scroll', this.moved, { passive: true, capture: true });
    addEventListener('resize', this.moved, { passive: true });
  }

  detach() {
    this.attached = false;
    removeEventListener('scroll', this.moved, { capture: true });
    removeEventListener('resize', this.moved);
  }

  height() {
    return parseFloat(getComputedStyle(this.body).getPropertyValue('--row')) || 48;
  }

  /** The visible rows. */
  look() {
    const scroller = this.scroller();
    const row = this.height();
    const top = scroller === document.scrollingElement ? 0 : scroller.getBoundingClientRect().top;
    const tall = scroller === document.scrollingElement ? innerHeight : scroller.clientHeight;
    const above = top - this.body.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(above / row) - BEYOND);
    const last = Math.min(this.count - 1, Math.ceil((above + tall) / row) + BEYOND);
    this.seen = { first, last };
    return row;
  }

  /** Draws what is in sight. Answers the first and the last row. Without any it says so, once that is known to be so, or
      what is in the way of knowing. */
  draw(count, known = true, error = null) {
    this.count = Math.min(count, MOST_ROWS);
    this.none.hidden = this.count > 0 || !known || error !== null;
    this.trouble.hidden = this.count > 0 || error === null;
    say(this.trouble, error?.message);
    this.body.hidden = this.count === 0;
    if (this.count === 0 || this.root.offsetParent === null) {
      if (this.count === 0) this.clear();
      return null;
    }
    const row = this.height();
    this.body.style.height = this.count * row + 'px';
    this.look();
    const { first, last } = this.seen;
    for (const [index, element] of this.rows) if (index < first || index > last) this.put(index, element);
    for (let index = first; index <= last; index += 1) {
      let element = this.rows.get(index);
      if (!element) {
        element = this.spare.pop() ?? this.body.appendChild(this.fresh());
        element.hidden = false;
        element.style.transform = 'translateY(' + index * row + 'px)';
        element.id = this.prefix + index;
        this.rows.set(index, element);
      } else if (element.row !== row) {
        element.style.transform = 'translateY(' + index * row + 'px)';
      }
      element.row = row;
      element.index = index;
      attr(element, 'aria-posinset', index + 1);
      attr(element, 'aria-setsize', this.count);
      attr(element, 'aria-selected', index === this.active ? 'true' : 'false');
      this.fill(element, index);
    }
    if (this.active >= this.count) this.active = this.count - 1;
    return this.seen;
  }

  fresh() {
    const element = this.make();
    element.classList.add('row');
    element.setAttribute('role', 'option');
    return element;
  }

  put(index, element) {
    this.rows.delete(index);
    element.hidden = true;
    element.id = '';
    this.spare.push(element);
  }

  clear() {
    for (const [index, element] of this.rows) this.put(index, element);
    this.active = -1;
  }

  /** Fills the visible rows again without measuring: for ages in seconds. */
  tick() {
    for (const [index, element] of this.rows) this.fill(element, index);
  }

  click(event) {
    const element = event.target.closest('.row');
    if (!element || event.target.closest('a, button')) return;
    this.move(element.index, false);
    this.open(element.index);
  }

  press(event) {
    if (event.target !== this.body || event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(1, this.seen.last - this.seen.first - 2 * BEYOND);
    const to = {
      ArrowDown: this.active + 1, ArrowUp: this.active - 1, Home: 0, End: this.count - 1,
      PageDown: this.active + page, PageUp: this.active - page,
    }[event.key];
    if (to !== undefined) this.move(to, true);
    else if (event.key === 'Enter' && this.active >= 0) this.open(this.active);
    else return;
    event.preventDefault();
  }

  move(to, scroll) {
    if (this.count === 0) return;
    this.active = Math.min(Math.max(0, to), this.count - 1);
    attr(this.body, 'aria-activedescendant', this.prefix + this.active);
    if (scroll) this.reveal(this.active);
    changed();
  }

  reveal(index) {
    const scroller = this.scroller();
    const row = this.height();
    const page = scroller === document.scrollingElement;
    const edge = page ? (document.querySelector('.top')?.offsetHeight ?? 0) : scroller.getBoundingClientRect().top;
    const bottom = page ? innerHeight : edge + scroller.clientHeight;
    const at = this.body.getBoundingClientRect().top + index * row;
    if (at < edge) scroller.scrollTop -= edge - at;
    else if (at + row > bottom) scroller.scrollTop += at + row - bottom;
  }
}

/** The pages of a listing, as far as they were visited; visible ones are fetched again periodically. */
export class Pages {
  /** `address` makes the path of a page from its query; `name` is the field with the items, `id` the key of an item. */
  constructor(address, name, id, size = 100) {
    Object.assign(this, { address, name, id, size });
    this.reset();
  }

  reset() {
    this.stop?.abort();
    this.stop = new AbortController();
    this.pages = [];
    this.next = undefined;
    this.whole = false;
    this.error = null;
    this.page = null;
    this.version = (this.version ?? 0) + 1;
    this.busy = null;
    this.again = null;
    this.all = null;
  }

  items() {
    this.all ??= this.pages.flatMap((page) => page.items);
    return this.all;
  }

  /** The number of rows: fetched ones, or the known total. */
  count(expected) {
    const loaded = this.items().length;
    return this.whole ? loaded : Math.max(loaded, Math.min(expected ?? 0, MOST_ROWS));
  }

  /** Fetches up to the item at an index. Large jumps use large pages. */
  want(index) {
    if (this.busy || this.whole || index < this.items().length) return;
    const version = this.version;
    this.busy = this.more(Math.min(LEAP, Math.max(this.size, index + 1 - this.items().length))).then(
      () => { this.error = null; },
      (error) => { if (version === this.version) this.error = error; },
    ).finally(() => {
      if (version !== this.version) return;
      this.busy = null;
      // A failed fetch is repeated in the next round.
      if (!this.error) this.want(index);
      changed();
    });
  }

  async read(after, limit) {
    const query = new URLSearchParams({ limit });
    if (after !== null) query.set('after', after);
    const answer = await get(this.address(query), { signal: this.stop.signal });
    return { items: answer[this.name].map((item) => stamp(item)), next: answer.next ?? null, answer };
  }

  async more(limit) {
    const version = this.version;
    const after = this.pages.length ? this.next : null;
    const { items, next, answer } = await this.read(after, limit);
    if (version !== this.version) return;
    const known = new Set(this.items().map(this.id));
    this.page = answer;
    this.pages.push({ after, items: items.filter((item) => !known.has(this.id(item))) });
    this.next = next;
    this.whole = next === null;
    this.all = null;
  }

  /** Fetches the pages of these rows again. */
  async freshen(first, last) {
    if (this.again || this.busy) return;
    if (this.pages.length === 0) {
      this.want(0);
      return;
    }
    const version = this.version;
    this.again = this.renew(first, last).then(
      () => { this.error = null; },
      (error) => { if (version === this.version) this.error = error; },
    );
    await this.again;
    if (version !== this.version) return;
    this.again = null;
    changed();
  }

  async renew(first, last) {
    const version = this.version;
    let begin = 0;
    const seen = this.pages.filter((page) => {
      const end = begin + page.items.length;
      const hit = begin <= last && end >= first;
      begin = end;
      return hit;
    });
    for (const page of seen.slice(0, 4)) {
      // Large pages, left by jumps, are read half as often.
      if (page.items.length > 2 * this.size && Date.now() - (page.read ?? 0) < 5500) continue;
      page.read = Date.now();
      const { items, next, answer } = await this.read(page.after, Math.min(1000, Math.max(this.size, page.items.length)));
      if (version !== this.version) return;
      const elsewhere = new Set(this.pages.filter((other) => other !== page).flatMap((other) => other.items.map(this.id)));
      page.items = items.filter((item) => !elsewhere.has(this.id(item)));
      this.page = answer;
      if (page === this.pages.at(-1)) {
        this.next = next;
        this.whole = next === null;
      }
      this.all = null;
    }
  }

  /** Inserts or replaces an item, in the order of names if there is one. */
  put(item) {
    stamp(item);
    const name = this.id(item);
    for (const page of this.pages) {
      const at = page.items.findIndex((other) => this.id(other) === name);
      if (at >= 0) {
        page.items[at] = item;
        this.all = null;
        return;
      }
    }
    const page = this.pages.find(({ items }) => items.length && this.id(items.at(-1)) > name) ?? this.pages.at(-1);
    if (!page || (!this.whole && page === this.pages.at(-1) && !(this.id(page.items.at(-1) ?? item) > name))) return;
    const at = page.items.findIndex((other) => this.id(other) > name);
    page.items.splice(at < 0 ? page.items.length : at, 0, item);
    this.all = null;
  }

  /** Removes items. */
  drop(gone) {
    for (const page of this.pages) {
      const left = page.items.filter((item) => !gone(item));
      if (left.length !== page.items.length) {
        page.items = left;
        this.all = null;
      }
    }
  }
}

/** Records when an item was read, so that its ages advance. */
function stamp(item) {
  item.read = Date.now();
  return item;
}
