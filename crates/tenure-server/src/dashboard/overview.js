// The overview: all groups, rosters, sweeps and stores of this daemon, and the whole in one sentence.

import { get } from './api.js';
import { at, attr, h, keyed, many, nothing, number, say, show, span } from './dom.js';
import { groups, isStale, rosterOf, rosters, world } from './world.js';

const MOST = 200;

export class Overview {
  constructor() {
    this.sentence = h('h2', { class: 'sentence' }, h('span', {}), h('span', {}));
    this.under = h('p', { class: 'under' });
    this.groups = h('div', { class: 'table' });
    this.empty = nothing(
      'Nobody has joined yet.', 'Whatever runs under this command is a member for as long as it lives. Kill it, and see here what happens:',
      'tenure join --store ' + location.origin + ' --group demo -- sleep 600',
    );
    this.more = h('p', { class: 'fine' });
    this.rosters = h('div', { class: 'table' });
    this.rosterPart = h('section', { 'aria-label': 'Rosters' }, h('h3', {}, 'Rosters'), this.rosters);
    this.loops = h('div', { class: 'table small' });
    this.stores = h('div', { class: 'table small' });
    this.findings = h('div', { class: 'table small', 'aria-live': 'polite' });
    this.doctor = h('button', { type: 'button', class: 'plain', onclick: () => this.examine() }, 'Examine');
    this.root = h(
      'div', { class: 'overview scrolls' },
      h('div', { class: 'head' }, this.sentence, this.under),
      h('div', { class: 'columns' },
        h('div', {}, h('section', { 'aria-label': 'Groups' }, h('h3', {}, 'Groups'), this.groups, this.more, this.empty), this.rosterPart),
        h('div', {}, h('section', { 'aria-label': 'Stores' }, h('h3', {}, 'Stores', this.doctor), this.stores, this.findings),
          h('section', { 'aria-label': 'Sweeps' }, h('h3', {}, 'Sweeps'), this.loops))),
    );
  }

  title() {
    return '';
  }

  attach() {}
  detach() {}
  tick() {
    this.paintLoops();
  }

  names() {
    return groups().map(({ group }) => ({ id: group, kind: 'group' }));
  }

  paint() {
    const { status } = world;
    if (!status) return;
    const listed = groups();
    const own = listed.filter(({ group }) => !rosterOf(group));
    const [who, how, tone] = sentence(listed);
    say(this.sentence.firstChild, who);
    say(this.sentence.lastChild, how);
    attr(this.sentence.lastChild, 'data-tone', tone);
    say(this.under, 'Tenure ' + status.version + ', up for ' + span(status.uptime_ms) + (status.streams ? ', followed by ' + many(status.streams, 'event stream') : '') + '.');
    show(this.empty, own.length === 0);
    keyed(this.groups, own.slice(0, MOST), ({ group }) => group, makeGroup, updateGroup);
    show(this.more, status.groups_total > MOST || own.length > MOST);
    say(this.more, 'Of ' + many(status.groups_total, 'group') + ' the first ' + number(Math.min(MOST, own.length)) + ' are shown; the search finds ' + (listed.length < status.groups_total ? 'the first ' + number(listed.length) : 'all') + ' by their names.');
    show(this.rosterPart, rosters().length > 0);
    keyed(this.rosters, rosters().slice(0, MOST), ({ roster }) => roster, makeRoster, updateRoster);
    keyed(this.stores, stores(status), ({ name }) => name, makeLine, updateLine);
    this.paintLoops();
  }

  paintLoops() {
    const { status } = world;
    if (!status) return;
    const since = Date.now() - world.at;
    keyed(this.loops, status.loops.map((loop) => lineOf(loop, since)), ({ name }) => name, makeLine, updateLine);
  }

  /** Asks the daemon to look at what could hurt. */
  async examine() {
    this.doctor.disabled = true;
    try {
      const { findings } = await get('v1/doctor', { patience: 15_000 });
      const lines = findings.map(({ check, severity, detail }) => ({ name: check, text: detail, tone: { ok: 'alive', warning: 'uncertain', error: 'braked' }[severity] }));
      keyed(this.findings, lines, ({ name, text }) => name + ' ' + text, makeLine, updateLine);
    } catch (error) {
      keyed(this.findings, [{ name: 'doctor', text: error.message, tone: 'uncertain' }], ({ text }) => text, makeLine, updateLine);
    }
    this.doctor.disabled = false;
  }
}

/** The whole in one sentence: who is there, how it stands, and its tone. */
function sentence(listed) {
  const members = listed.reduce((sum, { members }) => sum + members, 0);
  const own = listed.filter(({ group }) => !rosterOf(group)).length;
  const braked = listed.filter(({ brake }) => brake).length;
  const unsettled = listed.filter(({ settled }) => !settled).length;
  const releasing = listed.reduce((sum, { releasing }) => sum + releasing, 0);
  if (!listed.length) return ['All quiet:', 'nobody has joined.', 'ended'];
  const who = many(members, 'member') + ' in ' + many(own || listed.length, 'group') + '.';
  if (isStale()) return [who, 'That was true ' + span(Date.now() - world.at) + ' ago.', 'uncertain'];
  if (braked) return [who, 'Removal is paused in ' + many(braked, 'group') + '.', 'braked'];
  if (unsettled) return [who, many(unsettled, 'group') + (unsettled === 1 ? ' is' : ' are') + ' settling.', 'uncertain'];
  if (releasing) return [who, many(releasing, 'ended tenure') + (releasing === 1 ? ' is' : ' are') + ' being cleaned up.', 'uncertain'];
  return [who, 'All settled, nothing left behind.', 'alive'];
}

/** What a group is like, in a word, and its tone. */
export function mood(state) {
  if (!state) return ['', null];
  if (state.brake) return ['removal paused', 'braked'];
  if (!state.settled) return ['settling', 'uncertain'];
  if (state.releasing) return ['cleaning up ' + number(state.releasing), 'uncertain'];
  return ['settled', state.members ? 'alive' : 'ended'];
}

function makeGroup({ group }) {
  return h(
    'a', { class: 'entry', href: at('g', group) }, h('span', { class: 'dot' }), h('span', { class: 'name' }, group),
    h('span', { class: 'counts' }), h('span', { class: 'mood' }),
  );
}

function updateGroup(element, state) {
  const [word, tone] = mood(state);
  const [, , counts, name] = element.children;
  attr(element, 'data-tone', tone);
  say(counts, contents(state));
  say(name, word);
}

/** What is in a group, counted. */
export function contents({ members, leases, sessions, disconnected }) {
  const waiting = disconnected ? ' (' + number(disconnected) + ' disconnected)' : '';
  return [many(members, 'member'), leases && many(leases, 'lease'), sessions && many(sessions, 'session') + waiting].filter(Boolean).join(' · ');
}

function makeRoster({ roster }) {
  return h('a', { class: 'entry', href: at('r', roster) }, h('span', { class: 'dot' }), h('span', { class: 'name' }, roster), h('span', { class: 'counts' }), h('span', { class: 'mood' }));
}

function updateRoster(element, roster) {
  const [, , counts, name] = element.children;
  const isMirror = roster.answers_from === 'mirror';
  const online = groups().find(({ group }) => group === 'roster.' + roster.roster)?.members ?? 0;
  attr(element, 'data-tone', isMirror ? 'alive' : 'uncertain');
  say(counts, number(online) + ' online' + (roster.dirty ? ' · ' + many(roster.dirty, 'row') + ' not mirrored' : ''));
  say(name, isMirror ? 'mirror' : roster.answers_from === 'seeding' ? 'seeding' : 'ledger');
}

function stores({ store, rosters, groups_age_ms: age }) {
  const lines = [{ name: 'store', text: store.place, tone: store.up ? 'alive' : 'braked', mood: store.up ? 'up' : 'away' }];
  if (age > 15_000) lines[0].mood += ', seen ' + span(age) + ' ago';
  if (rosters) {
    lines.push({ name: 'ledger', text: rosters.ledger.place, tone: rosters.ledger.up ? 'alive' : 'braked', mood: rosters.ledger.up ? 'up' : 'away' });
    if (rosters.breaker !== 'closed') lines.push({ name: 'breaker', text: 'reads of the ledger', tone: 'uncertain', mood: rosters.breaker });
  }
  return lines;
}

function lineOf(loop, since) {
  const age = loop.last_success_age_ms;
  const troubles = [loop.failures && many(loop.failures, 'failure'), loop.panics && many(loop.panics, 'panic')].filter(Boolean).join(', ');
  return {
    name: loop.name, text: [many(loop.runs, 'run'), troubles].filter(Boolean).join(', '), title: loop.last_error,
    tone: age === undefined ? 'uncertain' : loop.bad_in_a_row > 0 ? 'braked' : 'alive', mood: age === undefined ? 'not yet' : span(age + since) + ' ago',
  };
}

function makeLine() {
  return h('div', { class: 'entry' }, h('span', { class: 'dot' }), h('span', { class: 'name' }), h('span', { class: 'counts' }), h('span', { class: 'mood' }));
}

function updateLine(element, { name, text, tone, mood, title }) {
  const [, label, counts, word] = element.children;
  attr(element, 'data-tone', tone);
  attr(element, 'title', title);
  say(label, name);
  say(counts, text);
  say(word, mood ?? '');
}
