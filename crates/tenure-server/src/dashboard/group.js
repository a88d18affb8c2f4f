// A group: its members, its timeline, its leases, sessions and registries; or the providers of a roster.

import { settle } from './acts.js';
import { path } from './api.js';
import { at, attr, h, NAME, number, say, show, time } from './dom.js';
import { Leases } from './leases.js';
import { Members, membersOf } from './members.js';
import { contents, mood } from './overview.js';
import { Registries } from './registries.js';
import { Providers } from './roster.js';
import { Sessions } from './sessions.js';
import { Stream } from './stream.js';
import { Timeline } from './timeline.js';
import { asOf, changed, groupState, isKnown, lookAt, mayOperate, poll, trouble, world } from './world.js';

const WIDE = matchMedia('(min-width: 1080px)');
const TELLING = new Set(['group_unsettled', 'group_settled', 'sweep_braked', 'sweep_unbraked', 'gap']);

export class GroupPage {
  constructor(group, tab, roster = null) {
    Object.assign(this, { group, roster });
    const walk = membersOf(group);
    const kinds = roster
      ? { providers: () => new Providers(roster), timeline: null }
      : {
        members: () => new Members(group, walk), timeline: null, leases: () => new Leases(group), sessions: () => new Sessions(group),
        registries: () => new Registries(group, walk),
      };
    this.kinds = kinds;
    this.timeline = new Timeline(group);
    this.tab = tab in kinds ? tab : Object.keys(kinds)[0];
    this.word = h('span', { class: 'pill' });
    this.settle = h('button', { type: 'button', class: 'plain', hidden: true, onclick: () => settle(group) }, 'Settle …');
    this.counts = h('p', { class: 'under' });
    this.tabs = h('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Parts of ' + group });
    for (const name of Object.keys(kinds)) {
      this.tabs.append(h('a', { role: 'tab', href: this.address(name), 'data-tab': name, id: 'tab-' + name }, name[0].toUpperCase() + name.slice(1)));
    }
    this.tabs.addEventListener('keydown', (event) => this.press(event));
    this.main = h('div', { class: 'side scrolls' });
    this.aside = h('aside', { class: 'side scrolls', 'aria-label': 'Timeline' });
    this.root = h(
      'div', { class: 'group' },
      h('div', { class: 'head' }, h('a', { class: 'back', href: '#/' }, '← overview'), h('h2', {}, roster ?? group, this.word, this.settle), this.counts, this.tabs),
      h('div', { class: 'sides' }, this.main, this.aside),
    );
    this.layout = () => this.place();
  }

  title() {
    return this.roster ?? this.group;
  }

  address(tab) {
    return this.roster ? at('r', this.roster, tab) : at('g', this.group, tab);
  }

  async attach() {
    WIDE.addEventListener('change', this.layout);
    this.stop = new AbortController();
    this.timeline.attach();
    if (!NAME.test(this.group)) {
      say(this.counts, 'No group can have this name: it is made of letters, digits and . _ : -');
      return;
    }
    this.place();
    let wait = 500;
    while (!this.stop.signal.aborted && !this.stream) {
      try {
        const state = await lookAt(this.group, this.stop.signal);
        if (this.stop.signal.aborted) return;
        const newest = state?.last_event ?? 0;
        this.follow(newest);
        await this.timeline.begin(newest);
      } catch {
        await new Promise((resolve) => setTimeout(resolve, wait));
        wait = Math.min(wait * 2, 8000);
      }
    }
  }

  detach() {
    WIDE.removeEventListener('change', this.layout);
    this.stop.abort();
    this.stream?.stop();
    this.timeline.detach();
    this.pane?.detach();
    world.stream = null;
  }

  follow(newest) {
    const address = path`v1/groups/${this.group}/events`;
    this.stream = new Stream(address, newest, (events) => this.hear(events), (state, error) => {
      if (world.stream !== state) {
        // Events may be missing: read everything again.
        if (state === 'live' && world.stream === 'waiting') this.freshen();
        world.stream = state;
        changed();
      }
      world.streamError = error;
    });
  }

  hear(events) {
    this.timeline.hear(events);
    if (this.pane !== this.timeline) this.pane?.hear(events);
    for (const event of events) if (event.type === 'gap') world.gaps = [...world.gaps.slice(-4), { ...event, group: this.group, seen: Date.now() }];
    const isTelling = events.some((event) => TELLING.has(event.type));
    this.soon ??= setTimeout(() => {
      this.soon = null;
      lookAt(this.group, this.stop.signal).catch(() => {});
      if (isTelling) poll();
    }, isTelling ? 50 : 300);
    changed();
  }

  /** Shows a part, beside the timeline or in its place. */
  go(tab) {
    this.tab = tab in this.kinds ? tab : Object.keys(this.kinds)[0];
    this.place();
  }

  place() {
    // Names from the address never appear in a command to copy.
    if (!NAME.test(this.group)) return;
    const wide = WIDE.matches;
    const first = Object.keys(this.kinds)[0];
    const tab = wide && this.tab === 'timeline' ? first : this.tab;
    show(this.aside, wide);
    (wide ? this.aside : this.main).append(this.timeline.root);
    show(this.timeline.root, wide || tab === 'timeline');
    if (this.shown !== tab) {
      if (this.pane && this.pane !== this.timeline) {
        this.pane.detach();
        this.pane.root.remove();
      }
      this.pane = tab === 'timeline' ? this.timeline : this.kinds[tab]();
      this.shown = tab;
      if (tab !== 'timeline') {
        this.main.append(this.pane.root);
        this.pane.attach();
      }
    }
    for (const link of this.tabs.children) {
      const isChosen = link.dataset.tab === tab;
      attr(link, 'aria-selected', isChosen ? 'true' : 'false');
      attr(link, 'tabindex', isChosen ? 0 : -1);
      show(link, !(wide && link.dataset.tab === 'timeline'));
      if (isChosen && !wide) link.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    }
    changed();
  }

  press(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const links = [...this.tabs.children].filter((link) => !link.hidden);
    const next = links[(links.indexOf(document.activeElement) + step + links.length) % links.length];
    next.focus();
    location.hash = next.getAttribute('href');
    event.preventDefault();
  }

  names() {
    const items = this.pane?.items?.() ?? this.pane?.pages?.items() ?? [];
    const entries = this.pane?.entries ? [...this.pane.entries.keys()].map((name) => ({ id: 'lease:' + name, kind: 'lease' })) : [];
    return items.map((item) => name(item, this.pane)).filter(Boolean).concat(entries);
  }

  paint() {
    const state = groupState(this.group);
    show(this.settle, Boolean(state?.unsettled) && isKnown(this.group) && mayOperate());
    if (state) {
      const known = isKnown(this.group);
      const [word, tone] = known ? mood(state) : ['unknown since ' + asOf(this.group), 'unknown'];
      say(this.word, word);
      attr(this.word, 'data-tone', tone);
      const since = Date.parse(state.resumed_at);
      const what = this.roster ? number(state.members) + ' online' : contents(state);
      say(this.counts, known ? what + (since > 0 && state.settled ? ' · served without a gap since ' + time(since) : '')
        : 'At ' + asOf(this.group) + ': ' + what + '. Nothing newer is known.');
    } else if (NAME.test(this.group)) say(this.counts, trouble(this.group)?.message);
    this.pane?.paint();
    if (this.pane !== this.timeline && !this.aside.hidden) this.timeline.paint();
  }

  tick() {
    this.pane?.tick();
  }

  /** Whether the content is current. Without its mirror a roster is read from the ledger. */
  isNow() {
    return this.pane?.isNow?.() ?? isKnown(this.group);
  }

  freshen() {
    const isListed = world.status?.groups.some(({ group }) => group === this.group);
    if (!isListed || !isKnown(this.group)) lookAt(this.group, this.stop.signal).catch(() => changed());
    return this.pane?.freshen?.();
  }
}

function name(item, pane) {
  if (item.member) return { id: item.member, kind: 'member' };
  if (item.session) return { id: 'session:' + item.session, kind: 'session' };
  if (item.provider) return { id: item.provider, kind: 'provider' };
  return item.key ? { id: pane.chosen + '/' + item.key, kind: 'key' } : null;
}
