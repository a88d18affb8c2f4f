// Registries: which key belongs to whom. The daemon tells the names it has heard of; any other can be asked for.

import { path } from './api.js';
import { at, attr, Choice, h, NAME, nothing, say } from './dom.js';
import { List, Pages } from './list.js';
import { changed, groupState } from './world.js';

const KEPT = 'tenure.registries';

export class Registries {
  constructor(group) {
    this.group = group;
    this.heard = new Set(kept()[group] ?? []);
    this.chosen = null;
    this.owner = '';
    this.choice = new Choice('Registry', [], null, (name) => this.choose(name));
    this.field = h('input', { type: 'text', 'aria-label': 'Name of a registry', placeholder: 'another registry', maxlength: 200, spellcheck: 'false' });
    this.of = h('input', {
      type: 'text', 'aria-label': 'Only claims of this member', placeholder: 'only of member', maxlength: 200, spellcheck: 'false',
      onchange: () => { this.owner = this.of.value.trim(); this.pages.reset(); this.pages.want(0); },
    });
    this.form = h('form', {
      class: 'ask', onsubmit: (event) => { event.preventDefault(); this.add(this.field.value.trim()); this.field.value = ''; },
    }, this.field, this.of, h('button', { class: 'hidden', tabindex: -1 }, 'Show'));
    this.pages = new Pages((query) => {
      if (NAME.test(this.owner)) query.set('owner', this.owner);
      return path`v1/groups/${group}/registries/${this.chosen}/claims?` + query;
    }, 'claims', (item) => item.key);
    this.list = new List({
      label: 'Claims', make: row,
      fill: (element, index) => this.fill(element, index),
      open: (index) => this.open(index),
      empty: nothing(
        'No claims here.', 'A member claims a key under its tenure; when the tenure ends, the claim goes:',
        'curl -X PUT ' + location.origin + '/v1/groups/' + group + "/registries/devices/claims/key-1 --json '{\"tenure\":\"TENURE\"}'",
      ),
    });
    this.root = h('section', { class: 'pane', 'aria-label': 'Registries' }, h('div', { class: 'pane-head' }, this.choice.root, this.form), this.list.root);
  }

  attach() {
    this.list.attach();
    this.learn();
  }

  detach() {
    this.list.detach();
    this.pages.stop.abort();
  }

  /** The names there are: those that the daemon has heard of, those that were evicted from, and those that were asked for. */
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
    this.chosen = name;
    this.pages.reset();
    this.pages.want(0);
    changed();
  }

  hear(events) {
    for (const event of events) if (event.type === 'evicted') Object.keys(event.counts ?? {}).forEach((name) => this.heard.add(name));
    if (events.some((event) => event.type === 'evicted' || event.type === 'gap')) this.freshen();
  }

  async freshen() {
    if (!this.chosen) return;
    const { first, last } = this.list.seen;
    await this.pages.freshen(first, Math.max(first, last));
  }

  paint() {
    this.learn();
    this.choice.set([...this.heard].sort().slice(0, 100).map((name) => [name, name]), this.chosen);
    this.of.hidden = !this.chosen;
    const loaded = this.chosen ? this.pages.items().length : 0;
    const seen = this.list.draw(loaded + (this.chosen && !this.pages.whole && loaded ? 20 : 0), !this.chosen || this.pages.whole, this.pages.error);
    if (seen && seen.last >= loaded) this.pages.want(loaded);
  }

  tick() {}

  open(index) {
    const item = this.pages.items()[index];
    if (item) location.hash = at('why', this.group, this.chosen + '/' + item.key);
  }

  fill(element, index) {
    const item = this.pages.items()[index];
    attr(element, 'data-empty', !item);
    attr(element, 'data-tone', item && (item.alive ? 'alive' : 'ended'));
    say(element.parts.key, item?.key);
    say(element.parts.owner, item ? item.owner : '');
    say(element.parts.state, item && !item.alive ? 'its owner has ended; the janitor will remove it' : '');
  }
}

function row() {
  const parts = { key: h('span', { class: 'name' }), owner: h('span', { class: 'age' }), state: h('span', { class: 'sub' }) };
  const element = h(
    'div', { class: 'claim' }, h('span', { class: 'dot' }), h('span', { class: 'who' }, parts.key, parts.state),
    h('span', { class: 'beat' }, parts.owner),
  );
  element.parts = parts;
  return element;
}

/** Names of registries that somebody asked for in this browser, by group. */
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
    // A browser that keeps nothing; the name is there until the page is closed.
  }
}
