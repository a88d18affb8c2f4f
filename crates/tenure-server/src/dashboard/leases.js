// Leases by node: the holder and the preferred node of each target.

import { get, path } from './api.js';
import { at, attr, Choice, h, keyed, many, nothing, number, say, show, svg } from './dom.js';
import { List } from './list.js';
import { memberOf } from './story.js';
import { changed, isKnown, trouble } from './world.js';

/** The most targets and leases that are read. */
const MOST = 10_000;
const MOST_NODES = 60;
const MOST_CELLS = 500;
/** A larger group is read again only after events, and at this interval. */
const LARGE = 1000;
const EVERY = 30_000;
const CELL = 9;
const PITCH = 12;
const KINDS = ['here', 'away', 'ghost', 'wanted', 'paused'];
const WORDS = {
  here: 'held where it is preferred', away: 'held elsewhere than preferred', ghost: 'its holder has ended', wanted: 'preferred here, not held here', paused: 'paused',
};
const FREE = '';

export class Leases {
  constructor(group) {
    this.group = group;
    this.entries = new Map();
    this.read = false;
    this.more = false;
    this.last = 0;
    this.filter = 'all';
    this.stop = new AbortController();
    this.choice = new Choice('Which leases', [], 'all', (chosen) => { this.filter = chosen; this.rows = null; changed(); });
    this.nodes = h('div', { class: 'nodes' });
    this.caption = h('p', { class: 'caption', 'aria-live': 'off' });
    this.legend = h('p', { class: 'legend' }, KINDS.map((kind) => h('span', { 'data-cell': kind }, h('i', {}), WORDS[kind])));
    this.list = new List({
      label: 'Leases and targets of ' + group, make: row,
      fill: (element, index) => this.fill(element, index),
      open: (index) => this.go(this.shown()[index]),
      empty: nothing(
        'No leases and no targets yet.', 'A target is a unit of work of a fleet; its lease names the holder. Create one, or acquire a lease by name:',
        'tenure targets add endpoint-1 --store ' + location.origin + ' --group ' + group,
      ),
    });
    this.root = h(
      'section', { class: 'pane', 'aria-label': 'Leases' }, this.nodes, this.caption, this.legend,
      h('div', { class: 'pane-head' }, this.choice.root), this.list.root,
    );
  }

  attach() {
    this.list.attach();
    this.look();
  }

  detach() {
    this.list.detach();
    this.stop.abort();
  }

  /** Every few seconds. */
  freshen() {
    if (this.entries.size <= LARGE || Date.now() - this.last >= EVERY) this.look();
  }

  /** Reads everything in pages of a thousand. Events that arrive during the read are newer than what is read. */
  async look() {
    if (this.busy) return;
    this.busy = true;
    this.last = Date.now();
    this.arrived = new Map();
    try {
      const entries = new Map();
      this.more = await this.pages('targets', (target) => {
        entries.set(target.target, { ...target, name: target.target, isTarget: true });
      });
      this.more = (await this.pages('leases', (lease) => {
        const entry = entries.get(lease.lease) ?? { name: lease.lease, isTarget: false };
        entries.set(lease.lease, {
          ...entry, holder: lease.holder, tenure: lease.tenure, token: lease.token, alive: lease.alive,
          places: lease.places, free: lease.free, waiting: lease.waiting,
        });
      })) || this.more;
      this.entries = entries;
      this.read = true;
      this.made = null;
      for (const [name, news] of this.arrived) this.change(name, news);
    } catch {
      // A banner shows the error; the old content stays.
      this.last = 0;
    }
    this.busy = false;
    if (this.once) this.soonest();
    changed();
  }

  /** Reads again soon, once for all events until then; after the current read, if there is one. */
  soonest() {
    this.once = this.busy;
    if (!this.busy) this.soon ??= setTimeout(() => { this.soon = null; this.look(); }, this.entries.size > LARGE ? 4000 : 700);
  }

  async pages(what, take) {
    let after = null;
    for (let read = 0; read < MOST; read += 1000) {
      const query = new URLSearchParams({ limit: 1000, ...(after ? { after } : {}) });
      const page = await get(path`v1/groups/${this.group}/${what}?` + query, { signal: this.stop.signal });
      page[what].forEach(take);
      after = page.next;
      if (!after) return false;
    }
    return true;
  }

  /** Lease events apply immediately; preferred nodes are read again when members have changed. */
  hear(events) {
    let placed = false;
    for (const event of events) {
      // The other holders and the waiters are not in the event.
      if (event.type?.startsWith('lease_') && this.isShared(event)) placed = true;
      else if (event.type === 'lease_granted' || event.type === 'lease_taken_over') {
        this.learn(event.lease, { holder: memberOf(event.tenure), tenure: event.tenure, token: event.token, alive: true });
      } else if (event.type === 'lease_released') {
        this.learn(event.lease, { holder: undefined, tenure: undefined, token: undefined, alive: undefined });
      } else if (['target_changed', 'joined', 'labels_changed', 'left', 'lapsed', 'superseded', 'expelled', 'no_progress', 'gap'].includes(event.type)) placed = true;
    }
    if (placed) this.soonest();
  }

  isShared(event) {
    const { places = 1, waiting = 0 } = this.entries.get(event.lease) ?? {};
    return places > 1 || waiting > 0 || event.place !== undefined || event.request !== undefined || event.type === 'lease_revoked';
  }

  learn(name, news) {
    if (this.busy) this.arrived.set(name, news);
    this.change(name, news);
  }

  change(name, news) {
    if (!this.read) return;
    const entry = { ...(this.entries.get(name) ?? { name, isTarget: false }), ...news };
    if (!entry.holder && !entry.isTarget) this.entries.delete(name);
    else this.entries.set(name, entry);
    this.made = null;
  }

  /** Groups the leases by node. */
  make() {
    if (this.made) return this.made;
    const all = [...this.entries.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
    const nodes = new Map();
    const of = (name) => nodes.get(name) ?? nodes.set(name, { name, cells: [], held: 0, preferred: 0 }).get(name);
    const counts = { all: all.length, away: 0, free: 0, paused: 0 };
    for (const entry of all) {
      entry.kind = kind(entry);
      if (entry.holder) {
        const node = of(entry.holder);
        node.held += 1;
        node.cells.push([entry.kind, entry]);
      }
      if (entry.paused) counts.paused += 1;
      else if (!entry.holder) counts.free += 1;
      else if (entry.kind === 'away') counts.away += 1;
      if (entry.preferred && !entry.paused) of(entry.preferred).preferred += 1;
    }
    for (const entry of all) {
      if (entry.preferred && entry.holder !== entry.preferred && !entry.paused) of(entry.preferred).cells.push(['wanted', entry]);
      else if (!entry.holder) of(FREE).cells.push([entry.paused ? 'paused' : 'wanted', entry]);
    }
    this.rows = null;
    this.made = { all, counts, nodes: [...nodes.values()].sort((a, b) => (a.name === FREE ? 1 : b.name === FREE || a.name < b.name ? -1 : 1)) };
    return this.made;
  }

  shown() {
    const { all } = this.make();
    this.rows ??= {
      all: () => all,
      away: () => all.filter((entry) => entry.kind === 'away'),
      free: () => all.filter((entry) => !entry.holder && !entry.paused),
      paused: () => all.filter((entry) => entry.paused),
    }[this.filter]();
    return this.rows;
  }

  paint() {
    const { counts, nodes } = this.make();
    const columns = Math.max(8, Math.floor((this.nodes.clientWidth - 4) / PITCH));
    keyed(this.nodes, nodes.slice(0, MOST_NODES), (node) => node.name, (node) => this.strip(node), (element, node) => fillStrip(element, node, columns));
    const used = new Set(nodes.flatMap((node) => node.cells.map(([kind]) => kind)));
    for (const part of this.legend.children) show(part, used.has(part.dataset.cell));
    show(this.choice.root, counts.all > 0);
    this.choice.set([
      ['all', (this.more ? 'First ' : 'All ') + number(counts.all)], ['away', 'Elsewhere than preferred ' + number(counts.away), 'uncertain'],
      ['free', 'Not held ' + number(counts.free), 'ended'], ['paused', 'Paused ' + number(counts.paused)],
    ]);
    if (nodes.length > MOST_NODES) say(this.caption, many(nodes.length - MOST_NODES, 'more node') + ' not drawn; the list has all.');
    this.list.draw(this.read ? this.shown().length : 0, this.read && counts.all === 0 && isKnown(this.group), trouble(this.group));
  }

  tick() {
    this.list.tick();
  }

  /** A node: its name, its load, and a cell for each lease. */
  strip() {
    const paths = Object.fromEntries(KINDS.map((kind) => [kind, svg('path', { 'data-cell': kind })]));
    const drawing = svg('svg', { class: 'cells', role: 'img' }, Object.values(paths));
    const element = h('div', { class: 'node' }, h('p', {}, h('b', {}), h('span', { class: 'sub' })), drawing);
    const entry = (event) => {
      const box = drawing.getBoundingClientRect();
      const column = Math.floor((event.clientX - box.left) / PITCH);
      return element.cells?.[Math.floor((event.clientY - box.top) / PITCH) * element.columns + column];
    };
    drawing.addEventListener('pointermove', (event) => {
      const cell = entry(event);
      say(this.caption, cell ? cell[1].name + ': ' + WORDS[cell[0]] + whereabouts(cell[1]) : '');
    });
    drawing.addEventListener('click', (event) => this.go(entry(event)?.[1]));
    Object.assign(element, { drawing, paths, label: element.querySelector('b'), sub: element.querySelector('.sub') });
    return element;
  }

  go(entry) {
    if (entry) location.hash = at('why', this.group, 'lease:' + entry.name);
  }

  fill(element, index) {
    const entry = this.shown()[index];
    if (!entry) return;
    const { parts } = element;
    const tone = entry.paused || !entry.holder ? 'ended' : entry.alive ? 'alive' : 'uncertain';
    attr(element, 'data-tone', isKnown(this.group) ? tone : 'unknown');
    attr(element, 'data-cell', entry.kind);
    say(parts.name, entry.name);
    say(parts.state, entry.paused ? 'paused' : entry.holder && !entry.alive ? 'its holder has ended; the next acquire gets it' : entry.weight > 1 ? 'weight ' + entry.weight : shared(entry));
    say(parts.holder, entry.holder ? entry.holder : 'not held');
    say(parts.sub, entry.kind === 'away' ? 'preferred ' + entry.preferred : entry.token ? 'token ' + entry.token : entry.preferred ? 'preferred ' + entry.preferred : '');
  }
}

/** The state of a lease for its cell. */
function kind(entry) {
  if (entry.paused) return 'paused';
  if (!entry.holder) return 'wanted';
  if (!entry.alive) return 'ghost';
  return entry.preferred && entry.preferred !== entry.holder ? 'away' : 'here';
}

/** The places of a lease with several holders, and its waiters. */
function shared({ places = 1, free = 0, waiting = 0 }) {
  const taken = places > 1 ? number(places - free) + ' of ' + number(places) + ' places taken' : '';
  const queue = waiting > 0 ? number(waiting) + ' waiting' : '';
  return [taken, queue].filter(Boolean).join(', ');
}

function whereabouts({ holder, preferred }) {
  const held = holder ? ', held by ' + holder : ', not held';
  return held + (preferred && preferred !== holder ? ', preferred ' + preferred : '');
}

/** Draws the cells of a node as one path per kind, whatever their number. */
function fillStrip(element, node, columns) {
  say(element.label, node.name || 'not held');
  const more = node.cells.length - MOST_CELLS;
  say(element.sub, (node.name ? number(node.held) + ' held, ' + number(node.preferred) + ' preferred' : number(node.cells.length) + ' not held: paused, or no member is alive')
    + (more > 0 ? ', ' + number(more) + ' not drawn' : ''));
  const cells = node.cells.slice(0, MOST_CELLS);
  const lines = Object.fromEntries(KINDS.map((kind) => [kind, '']));
  cells.forEach(([kind], index) => {
    const x = (index % columns) * PITCH + 1.5;
    const y = Math.floor(index / columns) * PITCH + 1.5;
    lines[kind] += 'M' + x + ' ' + y + 'h' + CELL + 'v' + CELL + 'h-' + CELL + 'z';
  });
  for (const [kind, line] of Object.entries(lines)) attr(element.paths[kind], 'd', line);
  const tall = Math.max(1, Math.ceil(cells.length / columns)) * PITCH;
  attr(element.drawing, 'height', tall);
  attr(element.drawing, 'width', Math.min(columns, Math.max(1, cells.length)) * PITCH);
  attr(element.drawing, 'aria-label', (node.name || 'not held') + ': ' + KINDS.map((kind) => [WORDS[kind], node.cells.filter(([own]) => own === kind).length])
    .filter(([, count]) => count).map(([words, count]) => number(count) + ' ' + words).join(', '));
  Object.assign(element, { cells, columns });
}

function row() {
  const parts = { name: h('span', { class: 'name' }), state: h('span', { class: 'sub' }), holder: h('span', { class: 'age' }), sub: h('span', { class: 'sub' }) };
  const element = h(
    'div', { class: 'lease' }, h('span', { class: 'dot' }), h('span', { class: 'who' }, parts.name, parts.state),
    h('span', { class: 'beat' }, parts.holder, parts.sub),
  );
  element.parts = parts;
  return element;
}
