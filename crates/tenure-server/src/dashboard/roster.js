// The providers of a roster: available, busy, silent, offline, deactivated.

import { get, path, storeTime } from './api.js';
import { at, attr, Choice, h, many, nothing, number, parts, say, show, span, time } from './dom.js';
import { List, Pages } from './list.js';
import { changed, link, moment, rosters } from './world.js';

/** How long an answer counts as current; it is refreshed every 3 s. */
const OLD = 8000;

export class Providers {
  constructor(roster) {
    this.roster = roster;
    this.state = 'all';
    this.stats = null;
    this.bar = h('div', { class: 'bar' });
    this.source = h('p', { class: 'fine' });
    this.choice = new Choice('Which providers', [], 'all', (chosen) => {
      this.state = chosen;
      this.pages.reset();
      this.pages.want(0);
      changed();
    });
    this.pages = new Pages((query) => {
      if (this.state !== 'all') query.set('state', this.state);
      return path`v1/rosters/${roster}/providers?` + query;
    }, 'providers', (item) => item.provider);
    const cli = 'tenure roster put ada --roster ' + roster + ' --capacity 2 --store ' + location.origin;
    this.list = new List({
      label: 'Providers of ' + roster, make: row,
      fill: (element, index) => this.fill(element, index),
      open: (index) => this.open(index),
      empty: nothing('No providers here.', 'Write one down, then it can go online:', cli),
    });
    this.root = h(
      'section', { class: 'pane', 'aria-label': 'Providers' }, h('div', { class: 'pane-head' }, this.choice.root), this.bar, this.source, this.list.root,
    );
  }

  attach() {
    this.list.attach();
    this.pages.want(0);
    this.freshen();
  }

  detach() {
    this.list.detach();
    this.pages.stop.abort();
  }

  async freshen() {
    const { first, last } = this.list.seen;
    try {
      const sent = Date.now();
      this.stats = await get(path`v1/rosters/${this.roster}/stats`, { signal: this.pages.stop.signal });
      this.read = sent;
    } catch {
      // A banner shows the error.
    }
    await this.pages.freshen(first, Math.max(first, last));
    changed();
  }

  hear() {
    this.soon ??= setTimeout(() => { this.soon = null; this.freshen(); }, 400);
  }

  paint() {
    show(this.choice.root, Boolean(this.stats));
    const { online, available, busy, offline, deactivated } = this.stats ?? { online: 0, available: 0, busy: 0, offline: 0, deactivated: 0 };
    const silent = Math.max(0, online - available - busy);
    const total = online + offline + deactivated;
    this.choice.set([
      ['all', 'All ' + number(total)], ['available', 'Available ' + number(available), 'alive'], ['busy', 'Busy ' + number(busy), 'busy'],
      ['offline', 'Offline ' + number(offline), 'ended'], ['deactivated', 'Deactivated ' + number(deactivated), 'braked'],
    ]);
    show(this.bar, total > 0);
    parts(this.bar, [
      ['available', available, 'alive'], ['busy', busy, 'busy'], ['online, no fresh heartbeat', silent, 'uncertain'], ['offline', offline, 'ended'],
      ['deactivated', deactivated, 'braked'],
    ]);
    say(this.source, this.told());
    const expected = { all: total, available, busy, offline, deactivated }[this.state];
    const seen = this.list.draw(this.pages.count(expected), this.pages.whole && this.isNow(), this.pages.error);
    if (seen && seen.last >= this.pages.items().length) this.pages.want(seen.last);
  }

  /** Whether the content is current. Independent of the group, since the ledger answers while the mirror is down. */
  isNow() {
    return link() !== 'daemon' && Date.now() - (this.read ?? 0) < OLD;
  }

  /** The time of the content, by the browser's clock. */
  moment() {
    return this.isNow() ? Date.now() : this.read ?? moment();
  }

  /** The source of the answers, and the last success of each sweep. */
  told() {
    const known = rosters().find((roster) => roster.roster === this.roster);
    const source = this.stats?.source;
    const old = this.read && !this.isNow() ? 'As of ' + time(storeTime(this.read)) + '. ' : '';
    const from = old + (source ? 'Answered from the ' + source + (source === 'ledger' ? ', while the hot copy is away or not caught up' : '') + '.' : '');
    if (!known) return from;
    const sweeps = old ? [] : Object.entries(known.sweeps_age_ms).map(([name, age]) => name + ' ' + span(age) + ' ago');
    const dirty = known.dirty ? ' ' + many(known.dirty, 'row') + ' not in the mirror yet.' : '';
    return from + dirty + (sweeps.length ? ' Sweeps: ' + sweeps.join(', ') + '.' : '');
  }

  tick() {
    this.list.tick();
  }

  open(index) {
    const item = this.pages.items()[index];
    if (item) location.hash = at('why', 'roster.' + this.roster, item.provider);
  }

  fill(element, index) {
    const item = this.pages.items()[index];
    const { parts } = element;
    attr(element, 'data-empty', !item);
    const { tone, state } = item ? standing(item) : { tone: null, state: '' };
    attr(element, 'data-tone', item && !this.isNow() ? 'unknown' : tone);
    say(parts.name, item?.display_name || item?.provider);
    say(parts.id, item?.display_name ? item.provider : '');
    say(parts.state, state);
    say(parts.load, item ? item.occupancy + ' of ' + item.capacity + ' taken' : '');
    say(parts.heard, item?.last_heartbeat_at ? 'heartbeat ' + span(storeTime(this.moment()) - Date.parse(item.last_heartbeat_at)) + ' ago' : '');
  }
}

/** Whether a provider can take work, and if not, why not. */
export function standing(item) {
  if (!item.active) return { tone: 'braked', state: 'deactivated' };
  if (!item.online) return { tone: 'ended', state: 'offline' };
  if (!item.reachable) return { tone: 'uncertain', state: 'no fresh heartbeat' };
  return item.occupancy < item.capacity ? { tone: 'alive', state: 'available' } : { tone: 'busy', state: 'busy' };
}

function row() {
  const parts = {
    name: h('span', { class: 'name' }), id: h('span', { class: 'sub' }), state: h('span', { class: 'held' }),
    load: h('span', { class: 'age' }), heard: h('span', { class: 'sub' }),
  };
  const element = h(
    'div', { class: 'provider' }, h('span', { class: 'dot' }), h('span', { class: 'who' }, parts.name, parts.id),
    parts.state, h('span', { class: 'beat' }, parts.load, parts.heard),
  );
  element.parts = parts;
  return element;
}
