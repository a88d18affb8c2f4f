// What ended, and why: the events of a group, the newest first.

import { get, path } from './api.js';
import { at, attr, Choice, h, many, nothing, say, time } from './dom.js';
import { List } from './list.js';
import { isEnding, tell } from './story.js';
import { changed } from './world.js';

/** The most events that are kept, the newest. */
const MOST = 5000;
const FIRST = 400;
const FURTHER = 1000;
/** As many of one kind at once are told in one line. */
const BURST = 4;
const WITHIN = 2000;

export class Timeline {
  constructor(group) {
    this.group = group;
    this.events = [];
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
    this.list = new List({
      label: 'Events of ' + group + ', the newest first',
      make: row,
      fill: (element, index) => this.fill(element, index),
      open: (index) => this.open(index),
      empty: nothing('Nothing has ended here yet.', 'When a member ends, this tells which, when and why, and what was cleaned up after it.'),
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

  /** Begins at the newest event there is; the stream goes on from there. */
  async begin(newest) {
    this.lowest = newest + 1;
    await this.back(FIRST);
    await this.search();
  }

  /** Looks back until something is found that ended, but not for ever. */
  async search() {
    for (let tries = 0; tries < 4 && this.only && !this.atBegin && this.rows().length < 10; tries += 1) await this.back(FURTHER);
  }

  /** Reads the events before the oldest that is here. */
  async back(count) {
    const room = Math.min(count, MOST - this.events.length);
    if (this.busy || this.atBegin || this.lowest === null || room <= 0) return;
    this.busy = true;
    try {
      const page = await get(path`v1/groups/${this.group}/events?before=${this.lowest}&limit=${room}`, { signal: this.stop?.signal });
      this.events = page.events.concat(this.events);
      this.atBegin = page.events.length < room;
      this.lowest = Number(page.next);
    } catch {
      // The banner tells; the button is still there.
    }
    this.busy = false;
    this.told = null;
    changed();
  }

  hear(events) {
    let newest = this.events.at(-1)?.id ?? 0;
    for (const event of events) {
      // What comes after a gap may be of another life of the store, and count from elsewhere.
      if (event.type !== 'gap' && event.id <= newest) continue;
      this.events.push(event);
      newest = event.id;
    }
    if (this.events.length > MOST) {
      this.events = this.events.slice(-MOST);
      this.lowest = this.events[0].id;
      this.atBegin = false;
    }
    this.told = null;
  }

  /** The lines: events, and bursts of one kind as one line unless it was opened. */
  rows() {
    if (this.told) return this.told;
    const rows = [];
    const events = this.only ? this.events.filter(isEnding) : this.events;
    for (let at = 0; at < events.length;) {
      let end = at + 1;
      const begin = Date.parse(events[at].at);
      while (end < events.length && events[end].type === events[at].type && events[end].reason === events[at].reason && Date.parse(events[end].at) - begin <= WITHIN) end += 1;
      const isBurst = end - at >= BURST && !this.opened.has(events[at].id);
      if (isBurst) rows.push({ burst: events.slice(at, end) });
      else for (let one = at; one < end; one += 1) rows.push({ event: events[one] });
      at = end;
    }
    this.told = rows.reverse();
    return this.told;
  }

  paint() {
    this.list.draw(this.rows().length, this.lowest !== null && !this.busy);
    this.older.hidden = this.atBegin || this.lowest === null || this.events.length >= MOST;
    this.older.disabled = this.busy;
  }

  tick() {}

  open(index) {
    const row = this.rows()[index];
    if (row?.burst) {
      this.opened.add(row.burst[0].id);
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
    const event = row.event ?? row.burst.at(-1);
    if (element.shows === event && element.many === row.burst?.length) return;
    element.shows = event;
    element.many = row.burst?.length;
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
function tellMany(events) {
  const last = tell(events.at(-1));
  const names = [...new Set(events.slice(0, 40).map((event) => tell(event).who))];
  const what = last.what.replace(/^was /, 'were ').replace(/^is /, 'are ').replace(/ (by|to) \S+$/, '');
  // What one of them held may go in several batches.
  const count = events[0].type === 'evicted' ? new Set(events.map((event) => event.tenure)).size : events.length;
  return { ...last, who: many(count, noun(events[0].type)), what, detail: names.slice(0, 3).join(', ') + ', …' };
}
