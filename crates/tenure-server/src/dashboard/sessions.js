// The sessions of a group by state, with the time left to resume them.

import { get, path } from './api.js';
import { at, attr, Choice, h, many, nothing, number, parts, say, show, span } from './dom.js';
import { List, Pages } from './list.js';
import { changed, groupState, isKnown, momentOf, trouble } from './world.js';

const TONES = { active: 'alive', disconnected: 'uncertain', orphan: 'ended' };

export class Sessions {
  constructor(group) {
    this.group = group;
    this.state = 'all';
    this.stats = null;
    this.bar = h('div', { class: 'bar' });
    this.choice = new Choice('Which sessions', [], 'all', (chosen) => {
      this.state = chosen;
      this.pages.reset();
      this.pages.want(0);
      changed();
    });
    this.pages = new Pages((query) => {
      if (this.state !== 'all') query.set('state', this.state);
      return path`v1/groups/${group}/sessions?` + query;
    }, 'sessions', (item) => item.session, 50);
    this.list = new List({
      label: 'Sessions of ' + group, make: row,
      fill: (element, index) => this.fill(element, index),
      open: (index) => this.open(index),
      empty: h('div', {}, nothing(
        'No sessions here.', 'A front-end attaches a connection under its tenure; the session outlives it by its grace:',
        "curl -X PUT " + location.origin + "/v1/groups/" + group + "/sessions/s-1 --json '{\"tenure\":\"TENURE\",\"connection\":\"c-1\"}'",
      )),
    });
    this.root = h(
      'section', { class: 'pane', 'aria-label': 'Sessions' }, h('div', { class: 'pane-head' }, this.choice.root), this.bar, this.list.root,
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
      this.stats = await get(path`v1/groups/${this.group}/sessions-stats`, { signal: this.pages.stop.signal });
    } catch {
      // A banner shows the error.
    }
    await this.pages.freshen(first, Math.max(first, last));
    changed();
  }

  hear(events) {
    if (events.some((event) => event.session || event.type === 'gap' || event.type === 'sessions_repaired')) {
      this.soon ??= setTimeout(() => { this.soon = null; this.freshen(); }, 500);
    }
  }

  expected() {
    if (!this.stats) return groupState(this.group)?.sessions ?? 0;
    const { active, disconnected, orphans } = this.stats;
    return { all: active + disconnected + orphans, active, disconnected, orphan: orphans }[this.state];
  }

  paint() {
    const stats = this.stats ?? { active: 0, disconnected: 0, orphans: 0 };
    const total = stats.active + stats.disconnected + stats.orphans;
    this.choice.set([
      ['all', 'All ' + number(total)], ['active', 'Active ' + number(stats.active), 'alive'],
      ['disconnected', 'Disconnected ' + number(stats.disconnected), 'uncertain'], ['orphan', 'Orphans ' + number(stats.orphans), 'ended'],
    ]);
    show(this.choice.root, Boolean(this.stats));
    this.bar.hidden = total === 0;
    parts(this.bar, [['active', stats.active, 'alive'], ['disconnected', stats.disconnected, 'uncertain'], ['orphans', stats.orphans, 'ended']]);
    const seen = this.list.draw(this.pages.count(this.expected()), this.pages.whole && isKnown(this.group), trouble(this.group, this.pages.error));
    if (seen && seen.last >= this.pages.items().length) this.pages.want(seen.last);
  }

  tick() {
    this.list.tick();
  }

  open(index) {
    const item = this.pages.items()[index];
    if (item) location.hash = at('why', this.group, 'session:' + item.session);
  }

  fill(element, index) {
    const item = this.pages.items()[index];
    const { parts } = element;
    attr(element, 'data-empty', !item);
    const known = isKnown(this.group);
    attr(element, 'data-tone', item && (known ? TONES[item.state] : 'unknown'));
    say(parts.name, item?.session);
    say(parts.alias, item?.alias ? 'alias ' + item.alias : '');
    say(parts.state, item ? state(item, known ? Date.now() : momentOf(this.group)) : '');
    say(parts.epoch, item ? 'epoch ' + item.epoch : '');
  }
}

function row() {
  const parts = {
    name: h('span', { class: 'name' }), alias: h('span', { class: 'sub' }), state: h('span', { class: 'age' }), epoch: h('span', { class: 'sub' }),
  };
  const element = h(
    'div', { class: 'session' }, h('span', { class: 'dot' }), h('span', { class: 'who' }, parts.name, parts.alias),
    h('span', { class: 'beat' }, parts.state, parts.epoch),
  );
  element.parts = parts;
  return element;
}

function state(item, moment) {
  if (item.state === 'active') return many(item.connections, 'connection');
  if (item.state === 'orphan') return 'waits for the reaper';
  if (item.reap_in_ms === undefined) return 'its front-end has ended';
  const left = item.reap_in_ms - Math.max(0, moment - item.read);
  return left > 0 ? 'reaped in ' + span(left) : 'its grace is over';
}
