// The timeline: the events of a group, newest first.

import { get, path } from './api.js';
import { Folded, lines } from './bursts.js';
import { at, attr, Choice, h, many, nothing, say, show, time } from './dom.js';
import { List } from './list.js';
import { isEnding, tell } from './story.js';
import { changed, isKnown, trouble } from './world.js';

/** The most events that are kept, the newest. */
const MOST = 5000;
const FIRST = 400;
const FURTHER = 1000;
/** The most pages that are read to find the beginning of a burst. */
const MOST_PAGES = 24;

export class Timeline {
  constructor(group) {
    this.group = group;
    this.events = [];
    this.folded = new Folded();
    this.since = null;
    this.lowest = null;
    this.atBegin = false;
    this.busy = false;
    this.opened = new Set();
    this.only = true;
    this.choice = new Choice('Which events', [['endings', 'What ended'], ['all', 'Everything']], 'endings', (chosen) => {
      this.only = chosen === 'endings';
      this.told = null;
      this.search();
      changed();
    });
    this.never = nothing('Nothing has ended here yet.', 'When a member ends, this shows which one, when and why, and what was cleaned up.');
    this.none = h('p', { class: 'quiet' });
    this.list = new List({
      label: 'Events of ' + group + ', the newest first',
      make: row,
      fill: (element, index) => this.fill(element, index),
      open: (index) => this.open(index),
      empty: [this.never, this.none],
    });
    this.older = h('button', { type: 'button', class: 'plain older', onclick: () => this.back(FURTHER) }, 'Look further back');
    this.root = h(
      'section', { class: 'pane timeline', 'aria-label': 'Timeline' },
      h('div', { class: 'pane-head' }, h('h3', {}, 'Timeline'), this.choice.root), this.list.root, this.older,
    );
  }

  attach() {
    this.stop = new AbortController();
    this.list.attach();
  }

  detach() {
    this.stop?.abort();
    this.list.detach();
  }

  /** Starts at the newest event; the stream continues from there. */
  async begin(newest) {
    this.lowest = newest + 1;
    await this.back(FIRST);
    await this.search();
  }

  /** Reads back to an end, and to the beginning of its burst, within a limit. */
  async search() {
    for (let tries = 0; tries < MOST_PAGES && this.only && !this.atBegin; tries += 1) {
      const isShort = tries < 4 && this.rows().length < 10;
      if (!isShort && !this.rows().some(({ burst }) => burst?.isMore)) break;
      const { lowest } = this;
      await this.back(FURTHER, true);
      if (this.lowest === lowest) break;
    }
  }

  /** Reads events before the oldest one. Beyond the limit they are only counted. */
  async back(count, counted = false) {
    const room = Math.min(count, MOST - this.events.length);
    if (this.busy || this.atBegin || this.lowest === null || (room <= 0 && !counted)) return;
    this.busy = true;
    const limit = room > 0 ? room : FURTHER;
    try {
      const page = await get(path`v1/groups/${this.group}/events?before=${this.lowest}&limit=${limit}`, { signal: this.stop?.signal });
      if (room > 0) this.events = page.events.concat(this.events);
      else for (const event of page.events.toReversed()) this.folded.before(event, this.events);
      this.since = page.events.length ? Date.parse(page.events[0].at) : this.since;
      this.atBegin = page.events.length < limit;
      this.lowest = Number(page.next);
    } catch {
      // A banner shows the error; the button stays.
    }
    this.busy = false;
    this.told = null;
    changed();
  }

  hear(events) {
    let newest = this.events.at(-1)?.id ?? 0;
    for (const event of events) {
      // After a gap the store may have lost its data and restarted its numbers.
      if (event.type !== 'gap' && event.id <= newest) continue;
      this.events.push(event);
      newest = event.id;
    }
    if (this.events.length > MOST) {
      for (const event of this.events.slice(0, -MOST)) this.folded.drop(event);
      this.events = this.events.slice(-MOST);
    }
    this.told = null;
  }

  /** The lines: events, and bursts unless opened. */
  rows() {
    this.told ??= lines(this.events, this.folded, this.opened, this.atBegin ? null : this.since, this.only ? isEnding : undefined);
    return this.told;
  }

  paint() {
    this.list.draw(this.rows().length, this.lowest !== null && !this.busy && isKnown(this.group), trouble(this.group));
    show(this.never, this.atBegin);
    show(this.none, !this.atBegin);
    say(this.none, 'Nothing has ended in the newest ' + many(this.events.length, 'event') + '.');
    this.older.hidden = this.atBegin || this.lowest === null || this.events.length >= MOST;
    this.older.disabled = this.busy;
  }

  tick() {}

  open(index) {
    const row = this.rows()[index];
    if (row?.burst) {
      // A burst with missing events cannot be opened: its count would be lost.
      if (row.burst.own.length < row.burst.count) return;
      this.opened.add(row.burst.events[0].id);
      this.told = null;
      changed();
      return;
    }
    const id = row?.event && tell(row.event).id;
    if (id) location.hash = at('why', this.group, id);
  }

  fill(element, index) {
    const row = this.rows()[index];
    if (!row) return;
    const event = row.event ?? row.burst.last;
    if (element.shows === event && element.many === row.burst?.count && element.more === row.burst?.isMore) return;
    Object.assign(element, { shows: event, many: row.burst?.count, more: row.burst?.isMore });
    const told = row.burst ? tellMany(row.burst) : tell(event);
    write(element.parts, event, told);
    attr(element, 'data-tone', told.tone);
    attr(element, 'title', told.who + ' ' + told.what + '. ' + told.detail);
  }
}

export function row() {
  const parts = {
    at: h('time', {}), who: h('span', { class: 'name' }), what: h('span', { class: 'what' }), detail: h('span', { class: 'sub' }),
  };
  const element = h(
    'div', { class: 'event' }, parts.at, h('span', { class: 'dot' }),
    h('span', { class: 'who' }, h('span', { class: 'line' }, parts.who, ' ', parts.what), parts.detail),
  );
  element.parts = parts;
  return element;
}

export function write(parts, event, told) {
  say(parts.at, event.at ? time(Date.parse(event.at)) : '');
  attr(parts.at, 'datetime', event.at);
  say(parts.who, told.who);
  say(parts.what, told.what);
  say(parts.detail, told.detail);
}

/** What events of a type are about. */
function noun(type) {
  if (type === 'evicted') return 'ended tenure';
  if (type === 'target_changed') return 'target';
  return type.startsWith('lease_') ? 'lease' : type.startsWith('session_') ? 'session' : 'member';
}

/** Many events of one kind in one line. */
export function tellMany({ events, last: newest, count, from, to, tenures, isMore }) {
  const last = tell(newest);
  const names = [...new Set(events.map((event) => tell(event).who))];
  const what = last.what.replace(/^was /, 'were ').replace(/^is /, 'are ').replace(/ (by|to) \S+$/, '');
  const number = many(tenures.size || count, noun(events[0].type));
  const stretch = time(from) === time(to) ? '' : 'from ' + time(from) + ' on · ';
  return { ...last, who: isMore ? 'at least ' + number : number, what, detail: stretch + names.slice(0, 3).join(', ') + ', …' };
}
