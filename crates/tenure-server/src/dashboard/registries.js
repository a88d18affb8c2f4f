// Registries: keys and owners. Keys of ended or late owners come first. The daemon lists registries that it has seen; any
// other name can be entered.

import { path } from './api.js';
import { at, attr, Choice, field, h, NAME, nothing, number, say, show, span } from './dom.js';
import { List, Pages } from './list.js';
import { beatAt, FRESH, standing, stateOf, told } from './members.js';
import { View, Walk } from './walk.js';
import { changed, groupState, isKnown, trouble } from './world.js';

const KEPT = 'tenure.registries';

export class Registries {
  /** `members` reads the owners. */
  constructor(group, members) {
    Object.assign(this, { group, members, chosen: null, owner: '', state: 'all', order: 'urgent', text: '' });
    this.heard = new Set(kept()[group] ?? []);
    this.choice = new Choice('Registry', [], null, (name) => this.choose(name));
    this.field = h('input', { type: 'text', 'aria-label': 'Name of a registry', placeholder: 'another registry', maxlength: 200, spellcheck: 'false' });
    this.of = h('input', {
      type: 'text', 'aria-label': 'Only claims of this member', placeholder: 'only of member', maxlength: 200, spellcheck: 'false',
      onchange: () => { this.owner = this.of.value.trim(); this.choose(this.chosen); },
    });
    this.states = new Choice('Which claims', [], 'all', (state) => this.want({ state }));
    this.orders = new Choice('Order', [['urgent', 'Longest since a beat'], ['name', 'By key']], 'urgent', (order) => this.want({ order }));
    this.filter = field('Filter claims', 'key or owner', (text) => this.want({ text: text.toLowerCase() }));
    this.progress = h('p', { class: 'fine', role: 'status' });
    this.form = h('form', {
      class: 'ask', onsubmit: (event) => { event.preventDefault(); this.add(this.field.value.trim()); this.field.value = ''; },
    }, this.field, this.of, h('button', { class: 'hidden', tabindex: -1 }, 'Show'));
    this.address = (query) => {
      if (NAME.test(this.owner)) query.set('owner', this.owner);
      return path`v1/groups/${group}/registries/${this.chosen}/claims?` + query;
    };
    this.pages = new Pages(this.address, 'claims', (item) => item.key);
    this.never = nothing(
      'No claims here.', 'A member claims a key under its tenure; when the tenure ends, the claim goes:',
      'curl -X PUT ' + location.origin + '/v1/groups/' + group + "/registries/devices/claims/key-1 --json '{\"tenure\":\"TENURE\"}'",
    );
    this.missed = nothing('No claim fits the filter.');
    this.list = new List({
      label: 'Claims', make: row,
      fill: (element, index) => this.fill(element, index),
      open: (index) => this.open(index),
      empty: [this.never, this.missed],
    });
    this.sorting = h('div', { class: 'pane-head' }, this.states.root, h('div', { class: 'ask' }, this.orders.root, this.filter));
    this.root = h(
      'section', { class: 'pane', 'aria-label': 'Registries' }, h('div', { class: 'pane-head' }, this.choice.root, this.form), this.sorting,
      this.progress, this.list.root,
    );
  }

  attach() {
    this.list.attach();
    this.learn();
    this.begin();
  }

  detach() {
    this.list.detach();
    this.pages.stop.abort();
    this.members.stop();
    this.walk?.stop();
  }

  get isWhole() {
    return this.order !== 'name' || this.text !== '' || this.state !== 'all';
  }

  want(change) {
    Object.assign(this, change);
    this.begin();
    changed();
  }

  /** Reads the content: all claims and owners, or the visible pages. */
  begin() {
    if (!this.chosen || !this.list.attached) return;
    const { state, text } = this;
    const owners = this.members.items;
    const wanted = (item) => (state === 'all' || item.alive === (state === 'alive'))
      && (!text || item.key.toLowerCase().includes(text) || item.owner.toLowerCase().includes(text));
    // An owner that was not read yet sorts like one that is on time.
    const beat = (item) => {
      const owner = ownerOf(item, owners);
      return owner ? beatAt(owner) : Infinity;
    };
    const byOwner = (a, b) => a.alive - b.alive || compare(beat(a), beat(b)) || compare(a.key, b.key);
    this.list.active = -1;
    if (this.isWhole) {
      this.walk ??= new Walk(this.address, 'claims', (item) => item.key);
      this.view ??= new View(this.walk);
      this.view.set(wanted, this.order === 'name' ? (a, b) => compare(a.key, b.key) : byOwner);
      this.walk.start();
      if (this.order === 'name') this.members.stop();
      else this.members.start();
    } else {
      this.walk?.stop();
      this.members.stop();
      this.pages.want(0);
    }
  }

  /** Known names: seen by the daemon, named by evictions, or entered here. */
  learn() {
    for (const name of groupState(this.group)?.registries ?? []) this.heard.add(name);
    if (!this.chosen && this.heard.size) this.choose([...this.heard].sort()[0]);
  }

  add(name) {
    if (!NAME.test(name)) return;
    this.heard.add(name);
    keep(this.group, [...this.heard]);
    this.choose(name);
  }

  choose(name) {
    this.walk?.stop();
    Object.assign(this, { chosen: name, walk: null, view: null });
    this.pages.reset();
    this.begin();
    changed();
  }

  hear(events) {
    for (const event of events) if (event.type === 'evicted') Object.keys(event.counts ?? {}).forEach((name) => this.heard.add(name));
    if (events.some((event) => event.type === 'evicted' || event.type === 'gap')) this.freshen();
  }

  async freshen() {
    if (!this.chosen) return;
    if (this.isWhole) {
      const { first, last } = this.list.seen;
      if (this.walk?.isSmall) this.walk.again();
      else await this.walk?.refresh((this.shown ?? []).slice(first, last + 1), (key) => path`v1/groups/${this.group}/registries/${this.chosen}/claims/${key}`);
      return;
    }
    const { first, last } = this.list.seen;
    await this.pages.freshen(first, Math.max(first, last));
  }

  paint() {
    this.learn();
    this.choice.set([...this.heard].sort().slice(0, 100).map((name) => [name, name]), this.chosen);
    this.of.hidden = !this.chosen;
    show(this.sorting, Boolean(this.chosen));
    if (this.isWhole) {
      this.paintWhole();
      return;
    }
    say(this.progress, '');
    show(this.never, true);
    show(this.missed, false);
    const loaded = this.chosen ? this.pages.items().length : 0;
    const seen = this.list.draw(loaded + (this.chosen && !this.pages.whole && loaded ? 20 : 0), !this.chosen || this.pages.whole && isKnown(this.group), trouble(this.group, this.pages.error));
    if (seen && seen.last >= loaded) this.pages.want(loaded);
  }

  paintWhole() {
    const { walk, view } = this;
    const held = this.list.isHeld;
    // Owners are read after their claims.
    if (view && this.owners !== this.members.pass) {
      this.owners = this.members.pass;
      view.version = -1;
    }
    this.shown = view?.list(held) ?? [];
    const ended = walk ? this.countEnded(walk) : 0;
    this.states.set([
      ['all', 'All' + (walk?.whole ? ' ' + number(walk.items.size) : '')], ['alive', 'Owner alive', 'alive'],
      ['ended', 'Owner ended' + (walk?.whole ? ' ' + number(ended) : ''), 'ended'],
    ]);
    say(this.progress, walk ? told(walk, 0, held) : '');
    const isMissed = Boolean(walk?.items.size);
    show(this.missed, isMissed);
    show(this.never, !isMissed);
    this.list.draw(this.shown.length, !this.chosen || (walk.whole && !walk.error && isKnown(this.group)), trouble(this.group, walk?.error));
  }

  countEnded(walk) {
    if (this.counted !== walk.changes) {
      this.counted = walk.changes;
      this.ended = 0;
      for (const item of walk.items.values()) if (!item.alive) this.ended += 1;
    }
    return this.ended;
  }

  item(index) {
    return this.isWhole ? this.walk?.items.get(this.shown?.[index]) : this.pages.items()[index];
  }

  /** The names on the page, for the search. */
  items() {
    return this.isWhole ? (this.shown ?? []).slice(0, 1000).map((key) => this.walk.items.get(key)).filter(Boolean) : this.pages.items();
  }

  tick() {
    this.list.tick();
  }

  open(index) {
    const item = this.item(index);
    if (item) location.hash = at('why', this.group, this.chosen + '/' + item.key);
  }

  fill(element, index) {
    const item = this.item(index);
    attr(element, 'data-empty', !item);
    const owner = item && ownerOf(item, this.members.items);
    const known = isKnown(this.group) && item && Date.now() - item.read < FRESH;
    const late = owner && stateOf(owner) !== 'fine';
    attr(element, 'data-tone', item && (!known ? 'unknown' : !item.alive ? 'ended' : late ? 'uncertain' : 'alive'));
    say(element.parts.key, item?.key);
    say(element.parts.owner, item ? item.owner : '');
    say(element.parts.state, item && !item.alive ? 'its owner has ended; the janitor will remove it' : '');
    const { age, asOf } = owner ? standing(owner, known) : {};
    say(element.parts.beat, owner ? 'beat ' + span(age) + ' ago' + (asOf ? ', as of ' + asOf : '') : '');
  }
}

const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

/** The owner of a claim, when it was read, and is still the same tenure. */
function ownerOf(item, owners) {
  const owner = owners.get(item.owner);
  return owner?.tenure === item.tenure ? owner : null;
}

function row() {
  const parts = { key: h('span', { class: 'name' }), owner: h('span', { class: 'age' }), state: h('span', { class: 'sub' }), beat: h('span', { class: 'sub' }) };
  const element = h(
    'div', { class: 'claim' }, h('span', { class: 'dot' }), h('span', { class: 'who' }, parts.key, parts.state),
    h('span', { class: 'beat' }, parts.owner, parts.beat),
  );
  element.parts = parts;
  return element;
}

/** Registries entered in this browser, by group. */
function kept() {
  try {
    return JSON.parse(localStorage.getItem(KEPT)) ?? {};
  } catch {
    return {};
  }
}

function keep(group, names) {
  try {
    localStorage.setItem(KEPT, JSON.stringify({ ...kept(), [group]: names.slice(0, 100) }));
  } catch {
    // Storage is disabled: the name is kept until the page closes.
  }
}
