// The members of a group: who is alive, when it was last heard of, what it holds.

import { now, path } from './api.js';
import { at, attr, h, many, nothing, say, span } from './dom.js';
import { List, Pages } from './list.js';
import { changed, groupState, isStale } from './world.js';

const ENDS = new Set(['left', 'lapsed', 'superseded', 'expelled']);
/** How long a row that has ended stays, so that its end is seen. */
const LINGER = 4000;

export class Members {
  constructor(group) {
    this.group = group;
    this.ended = new Map();
    this.pages = new Pages((query) => path`v1/groups/${group}/members?` + query, 'members', (item) => item.member);
    this.list = new List({
      label: 'Members of ' + group,
      make: row,
      fill: (element, index) => this.fill(element, index),
      open: (index) => this.open(index),
      empty: nothing(
        'No members yet.', 'Whatever runs under this command is a member for as long as it lives:',
        'tenure join --store ' + location.origin + ' --group ' + group + ' -- sleep 600',
      ),
    });
    this.root = h('section', { class: 'pane', 'aria-label': 'Members' }, this.list.root);
  }

  attach() {
    this.list.attach();
    this.pages.want(0);
  }

  detach() {
    this.list.detach();
    this.pages.stop.abort();
  }

  paint() {
    const expected = groupState(this.group)?.members ?? 0;
    const seen = this.list.draw(this.pages.count(expected), this.pages.whole, this.pages.error);
    if (seen && seen.last >= this.pages.items().length) this.pages.want(seen.last);
  }

  tick() {
    this.list.tick();
  }

  /** Every few seconds: beats make no events. */
  freshen() {
    const { first, last } = this.list.seen;
    return this.pages.freshen(first, Math.max(first, last));
  }

  /** Events, as they come. */
  hear(events) {
    let news = false;
    for (const event of events) {
      if (event.type === 'joined') news = true;
      else if (ENDS.has(event.type)) this.ended.set(event.tenure, { reason: event.type, at: Date.now() });
      else if (event.type === 'gap' || event.type === 'evicted' || event.type.startsWith('lease_')) news = true;
    }
    if (news) this.soon ??= setTimeout(() => { this.soon = null; this.freshen(); }, 400);
    if (this.ended.size) this.forget();
  }

  /** Takes those away whose end was shown for a while. */
  forget() {
    this.leaving ??= setTimeout(() => {
      this.leaving = null;
      const due = Date.now() - LINGER;
      const gone = new Set();
      for (const [tenure, { at }] of this.ended) if (at <= due) gone.add(tenure);
      this.pages.drop((item) => gone.has(item.tenure));
      for (const tenure of gone) this.ended.delete(tenure);
      if (this.ended.size) this.forget();
      changed();
    }, LINGER);
  }

  open(index) {
    const item = this.pages.items()[index];
    if (item) location.hash = at('why', this.group, item.member);
  }

  fill(element, index) {
    const item = this.pages.items()[index];
    const { parts } = element;
    attr(element, 'data-empty', !item);
    if (!item) {
      for (const part of [parts.name, parts.labels, parts.age, parts.ttl, parts.held, parts.state]) say(part, '');
      attr(element, 'data-tone', null);
      parts.fill.style.transform = 'scaleX(0)';
      return;
    }
    const { tone, state, share } = standing(item, this.ended.get(item.tenure));
    attr(element, 'data-tone', tone);
    say(parts.state, state);
    say(parts.name, item.member);
    say(parts.labels, Object.entries(item.labels).map(([name, value]) => name + ' ' + value).join('  ·  '));
    say(parts.age, 'beat ' + span(now() - Date.parse(item.last_beat_at)) + ' ago');
    say(parts.ttl, 'ttl ' + span(item.ttl_ms));
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
    h('span', { class: 'dot' }), h('span', { class: 'who' }, h('span', { class: 'line' }, parts.name, parts.state), parts.labels),
    parts.held, h('span', { class: 'beat' }, parts.age, parts.ttl), h('span', { class: 'life' }, parts.fill),
  );
  element.parts = parts;
  return element;
}

/** How a member stands now, by what was read of it and the time since. An old reading kills nobody. */
export function standing(item, ended) {
  if (ended) return { tone: 'ended', state: ended.reason === 'left' || ended.reason === 'lapsed' ? ended.reason : 'was ' + ended.reason, share: 0 };
  const left = item.expires_in_ms - (Date.now() - item.read);
  const share = Math.min(1, Math.max(0, left / item.ttl_ms));
  if (!item.alive) return { tone: 'uncertain', state: 'past its end', share: 0 };
  // While events come, an end would have been told: a reading that grew old says nothing.
  return isStale() && left <= 0 ? { tone: 'uncertain', state: 'unknown: no answer', share } : { tone: 'alive', state: '', share };
}

export function held({ claims, leases, connections }) {
  const all = [claims && many(claims, 'claim'), leases && many(leases, 'lease'), connections && many(connections, 'connection')];
  return all.filter(Boolean).join(', ') || 'holds nothing';
}
