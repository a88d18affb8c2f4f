// The members of a group: liveness, last beat and holdings. Late members come first.

import { path, storeTime } from './api.js';
import { at, attr, Choice, exact, field, h, many, nothing, number, say, show, span, time } from './dom.js';
import { List, Pages } from './list.js';
import { View, Walk } from './walk.js';
import { changed, groupState, isKnown, storeMomentOf, trouble } from './world.js';

const ENDS = new Set(['left', 'lapsed', 'superseded', 'expelled', 'no_progress']);
/** How long the row of an ended member stays visible. */
const LINGER = 4000;
/** How long a reading counts as current. */
export const FRESH = 6000;

/** All members of a group, to sort or filter. */
export function membersOf(group) {
  return new Walk((query) => path`v1/groups/${group}/members?` + query, 'members', (item) => item.member);
}

export class Members {
  constructor(group, walk = membersOf(group)) {
    Object.assign(this, { group, walk, ended: new Map(), state: 'all', order: 'urgent', text: '' });
    this.view = new View(walk);
    this.pages = new Pages((query) => path`v1/groups/${group}/members?` + query, 'members', (item) => item.member);
    this.states = new Choice('Which members', [], 'all', (state) => this.want({ state }));
    this.orders = new Choice('Order', [['urgent', 'Longest since a beat'], ['name', 'By name']], 'urgent', (order) => this.want({ order }));
    this.filter = field('Filter members', 'name or label', (text) => this.want({ text: text.toLowerCase() }));
    this.progress = h('p', { class: 'fine', role: 'status' });
    this.crash = h('p', { class: 'crash', 'data-tone': 'braked' }, h('b', {}), ' ', h('span', {}));
    this.never = nothing(
      'No members yet.', 'Whatever runs under this command is a member for as long as it lives:',
      'tenure join --store ' + location.origin + ' --group ' + group + ' -- sleep 600',
    );
    this.gone = nothing('No member is alive.', 'The timeline shows which ended, when and why.');
    this.missed = nothing('No member fits the filter.');
    this.list = new List({
      label: 'Members of ' + group, make: row,
      fill: (element, index) => this.fill(element, index),
      open: (index) => this.open(index),
      empty: [this.never, this.gone, this.missed],
    });
    this.root = h(
      'section', { class: 'pane', 'aria-label': 'Members' }, this.crash,
      h('div', { class: 'pane-head' }, this.states.root, h('div', { class: 'ask' }, this.orders.root, this.filter)), this.progress, this.list.root,
    );
    this.want({});
  }

  attach() {
    this.list.attach();
    this.begin();
  }

  detach() {
    this.list.detach();
    this.pages.stop.abort();
    this.walk.stop();
  }

  /** Whether the whole listing is needed, since pages are ordered by name. */
  get isWhole() {
    return this.order !== 'name' || this.text !== '' || this.state !== 'all';
  }

  want(change) {
    Object.assign(this, change);
    const { state, text } = this;
    const wanted = (item) => (state === 'all' || stateOf(item) === state)
      && (!text || item.member.toLowerCase().includes(text) || Object.values(item.labels).some((value) => value.toLowerCase().includes(text)));
    this.view.set(wanted, this.order === 'name' ? (a, b) => (a.member < b.member ? -1 : 1) : byUrgency);
    this.list.active = -1;
    if (this.list.attached) this.begin();
    changed();
  }

  begin() {
    if (this.isWhole) this.walk.start();
    else {
      this.walk.stop();
      this.pages.want(0);
    }
  }

  /** The items of the list, in order: names, or members if pages are shown as they come. */
  items() {
    if (!this.isWhole) return this.pages.items();
    return this.view.list(this.list.isHeld).map((id) => this.walk.items.get(id));
  }

  item(index) {
    return this.isWhole ? this.walk.items.get(this.shown?.[index]) : this.pages.items()[index];
  }

  paint() {
    const state = groupState(this.group);
    const expected = state?.members ?? 0;
    this.paintCrash(state);
    this.paintHead(expected);
    const whole = this.isWhole;
    this.shown = whole ? this.view.list(this.list.isHeld) : null;
    const source = whole ? this.walk : this.pages;
    const count = whole ? this.shown.length : this.pages.count(expected);
    const isKnownEmpty = source.whole && !source.error && isKnown(this.group);
    const seen = this.list.draw(count, isKnownEmpty, trouble(this.group, source.error));
    const isFiltered = this.text !== '' || this.state !== 'all';
    show(this.missed, isFiltered && this.walk.items.size > 0);
    show(this.never, this.missed.hidden && !state?.last_event);
    show(this.gone, this.missed.hidden && Boolean(state?.last_event));
    if (!whole && seen && seen.last >= this.pages.items().length) this.pages.want(seen.last);
  }

  /** A mass lapse as one row: the number, what the brake retains, and until when. */
  paintCrash(state) {
    const brake = state?.brake;
    show(this.crash, Boolean(brake));
    if (!brake) return;
    const left = Date.parse(brake.until) - storeMomentOf(this.group);
    say(this.crash.firstChild, many(brake.lapsed, 'member') + ' lapsed together.');
    say(this.crash.lastChild, many(brake.present, 'is', 'are') + ' present. ' + keeps(state, isKnown(this.group) && left > 0 ? ', another ' + span(left) : ''));
  }

  paintHead(expected) {
    const { walk } = this;
    let late = 0;
    let over = 0;
    if (this.isWhole && this.counted !== walk.changes) {
      for (const item of walk.items.values()) {
        const state = stateOf(item);
        if (state === 'late') late += 1;
        else if (state === 'over') over += 1;
      }
      Object.assign(this, { counted: walk.changes, late, over });
    }
    const isCounted = this.isWhole && walk.items.size > 0;
    this.states.set([
      ['all', 'All ' + number(expected)],
      ['late', 'Late' + (isCounted ? ' ' + number(this.late) : ''), 'uncertain'], ['over', 'Past their end' + (isCounted ? ' ' + number(this.over) : ''), 'ended'],
    ]);
    show(this.root.querySelector('.pane-head'), expected > 0 || walk.items.size > 0);
    say(this.progress, this.isWhole ? told(walk, expected, this.list.isHeld) : '');
  }

  tick() {
    this.list.tick();
  }

  /** Called every few seconds: beats create no events. */
  freshen() {
    const { first, last } = this.list.seen;
    if (this.isWhole) return this.walk.isSmall ? null : this.refresh((this.shown ?? []).slice(first, last + 1));
    return this.pages.freshen(first, Math.max(first, last));
  }

  /** Reads the visible rows again when a full pass takes long. */
  refresh(names) {
    const isOver = (name) => !this.ended.has(this.walk.items.get(name)?.tenure);
    return this.walk.refresh(names, (name) => path`v1/groups/${this.group}/members/${name}`, isOver);
  }

  /** Applies events. */
  hear(events) {
    const joined = new Set();
    let news = false;
    for (const event of events) {
      if (event.type === 'joined') joined.add(event.tenure.slice(0, event.tenure.lastIndexOf('@')));
      else if (ENDS.has(event.type)) this.ended.set(event.tenure, { reason: event.type, at: Date.now() });
      else if (event.type === 'gap' || event.type === 'evicted' || event.type.startsWith('lease_')) news = true;
    }
    for (const name of joined) (this.coming ??= new Set()).add(name);
    if (news || joined.size) this.soon ??= setTimeout(() => { this.soon = null; this.look(); }, 400);
    if (this.ended.size) this.forget();
  }

  /** Reads new members: all of a small group, a few of a large one, whose next pass finds the rest. */
  look() {
    const coming = [...(this.coming ?? [])];
    this.coming = null;
    if (!this.isWhole) this.freshen();
    else if (this.walk.isSmall || !this.walk.whole) this.walk.again();
    else this.refresh(coming);
  }

  /** Removes rows of members that ended a while ago. */
  forget() {
    this.leaving ??= setTimeout(() => {
      this.leaving = null;
      const due = Date.now() - LINGER;
      const gone = new Set();
      for (const [tenure, { at }] of this.ended) if (at <= due) gone.add(tenure);
      this.pages.drop((item) => gone.has(item.tenure));
      for (const item of [...this.walk.items.values()]) if (gone.has(item.tenure)) this.walk.drop(item.member);
      for (const tenure of gone) this.ended.delete(tenure);
      if (this.ended.size) this.forget();
      changed();
    }, LINGER);
  }

  open(index) {
    const item = this.item(index);
    if (item) location.hash = at('why', this.group, item.member);
  }

  fill(element, index) {
    const item = this.item(index);
    const { parts } = element;
    attr(element, 'data-empty', !item);
    if (!item) {
      for (const part of [parts.name, parts.labels, parts.age, parts.ttl, parts.held, parts.state]) say(part, '');
      attr(element, 'data-tone', null);
      parts.fill.style.transform = 'scaleX(0)';
      return;
    }
    const { tone, state, share, age, asOf } = standing(item, isKnown(this.group), this.ended.get(item.tenure));
    attr(element, 'data-tone', tone);
    say(parts.state, state);
    say(parts.name, item.member);
    say(parts.labels, Object.entries(item.labels).map(([name, value]) => name + ' ' + value).join('  ·  '));
    say(parts.age, 'beat ' + span(age) + ' ago');
    say(parts.ttl, asOf ? 'as of ' + asOf : 'ttl ' + exact(item.ttl_ms));
    attr(parts.ttl, 'data-old', Boolean(asOf));
    say(parts.held, held(item.holdings));
    parts.fill.style.transform = 'scaleX(' + share.toFixed(3) + ')';
  }
}

function row() {
  const parts = {
    state: h('span', { class: 'state' }), name: h('span', { class: 'name' }), labels: h('span', { class: 'sub labels' }),
    age: h('span', { class: 'age' }), ttl: h('span', { class: 'sub ttl' }), held: h('span', { class: 'held' }),
    fill: h('span', { class: 'fill' }),
  };
  const element = h(
    'div', { class: 'member' },
    h('span', { class: 'dot' }), h('span', { class: 'who' }, h('span', { class: 'line' }, parts.name, ' ', parts.state), parts.labels),
    parts.held, h('span', { class: 'beat' }, parts.age, parts.ttl), h('span', { class: 'life' }, parts.fill),
  );
  element.parts = parts;
  return element;
}

/** The progress of reading the whole listing. */
export function told(walk, expected, isHeld) {
  if (!walk.whole) return walk.read ? 'Read ' + number(walk.read) + (expected ? ' of ' + number(expected) : '') + ' so far; those are in order.' : '';
  const cut = walk.isCut ? 'The first ' + number(walk.read) + ' are in order; more are not read. ' : '';
  const pass = walk.isSmall ? '' : 'All ' + number(walk.items.size) + ' were last read at ' + time(storeTime(walk.at)) + '; rows in sight are read every 3 s. ';
  return (cut || pass) + (isHeld && !walk.isSmall ? 'The order is held while you point at it.' : '');
}

export const beatAt = (item) => (item.beat ??= Date.parse(item.last_beat_at));

/** Orders by lateness: past their end first, then by the age of the last beat. */
export function byUrgency(a, b) {
  return a.alive - b.alive || beatAt(a) - beatAt(b) || (a.member < b.member ? -1 : 1);
}

/** `over`, `late` (half of its ttl went by without a beat; it should beat every third), or `fine`: when it was read. */
export function stateOf(item) {
  if (!item.alive) return 'over';
  return storeTime(item.read) - beatAt(item) > item.ttl_ms / 2 ? 'late' : 'fine';
}

/** How a member stands by what was read of it: its tone, a word, the share of its time that is left, and how long ago it
    beat. Without a reading that is fresh, `asOf` is when that was so. */
export function standing(item, isKnown, ended) {
  const now = Date.now();
  const left = item.expires_in_ms - (now - item.read);
  const isFresh = isKnown && now - item.read < FRESH && (left > 0 || !item.alive);
  const moment = isFresh ? now : item.read;
  const age = storeTime(moment) - beatAt(item);
  if (ended) return { tone: 'ended', state: ended.reason === 'left' || ended.reason === 'lapsed' ? ended.reason : 'was ' + ended.reason, share: 0, age };
  const share = Math.min(1, Math.max(0, (item.expires_in_ms - (moment - item.read)) / item.ttl_ms));
  if (!isFresh) return { tone: 'unknown', state: '', share, age, asOf: time(storeTime(item.read)) };
  const state = stateOf(item);
  if (state === 'over') return { tone: 'uncertain', state: 'past its end', share: 0, age };
  if (state === 'late') return { tone: 'uncertain', state: age > item.ttl_ms ? 'kept by the grace' : 'late', share, age };
  return { tone: 'alive', state: '', share, age };
}

/** What the brake retains and until when, as text. */
export function keeps({ releasing, brake }, left = '') {
  const what = releasing ? 'The brake keeps what ' + many(releasing, 'ended tenure') + ' held' : 'They held nothing that the brake retains; it holds';
  return what + ' until ' + time(Date.parse(brake.until)) + left + ', or until enough members are back.';
}

export function held({ claims, leases, connections }) {
  const all = [claims && many(claims, 'claim'), leases && many(leases, 'lease'), connections && many(connections, 'connection')];
  return all.filter(Boolean).join(', ') || 'holds nothing';
}
