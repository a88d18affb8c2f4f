// The overview: a summary, recent ends, rates of ends and beats, groups, rosters, the store, and failing loops.

import { get, isLocked, storeTime } from './api.js';
import { at, attr, h, keyed, many, nothing, number, say, show, span, time } from './dom.js';
import { Ends, paintRecent, Rates, WINDOW } from './ends.js';
import { asOf, groups, isKnown, isLive, link, moment, rosterOf, rosters, world } from './world.js';

const MOST = 200;
/** The number of listed ends. */
const ENDS = 8;
/** The window of "recent" in the summary. */
const LATELY = 5 * 60_000;

export class Overview {
  constructor() {
    this.stop = new AbortController();
    this.ends = new Ends();
    this.rates = new Rates(this.ends);
    this.sentence = h('h2', { class: 'sentence' }, h('span', {}), h('span', {}));
    this.under = h('p', { class: 'under' });
    this.recent = h('div', { class: 'table' });
    this.quiet = h('p', { class: 'fine' });
    this.groups = h('div', { class: 'table' });
    this.empty = nothing(
      'No member has joined yet.', 'Whatever runs under this command is a member for as long as it lives. Kill it, and see here what happens:',
      'tenure join --store ' + location.origin + ' --group demo -- sleep 600',
    );
    this.more = h('p', { class: 'fine' });
    this.rosters = h('div', { class: 'table' });
    this.rosterPart = h('section', { 'aria-label': 'Rosters' }, h('h3', {}, 'Rosters'), this.rosters);
    this.loops = h('div', { class: 'table small' });
    this.well = h('p', { class: 'fine' });
    this.stores = h('div', { class: 'table small' });
    this.findings = h('div', { class: 'table small', 'aria-live': 'polite' });
    this.doctor = h('button', { type: 'button', class: 'plain', onclick: () => this.examine() }, 'Examine');
    this.endPart = h('section', { 'aria-label': 'Ended lately' }, h('h3', {}, 'Ended lately'), this.recent, this.quiet);
    this.groupPart = h('section', { 'aria-label': 'Groups' }, h('h3', {}, 'Groups'), this.groups, this.more, this.empty);
    this.parts = h(
      'div', { class: 'columns', hidden: true },
      h('div', {}, this.endPart, this.groupPart, this.rosterPart),
      h('div', {}, this.rates.root, h('section', { 'aria-label': 'Stores' }, h('h3', {}, 'Stores', this.doctor), this.stores, this.findings),
        h('section', { 'aria-label': 'Loops' }, h('h3', {}, 'Loops'), this.loops, this.well)),
    );
    this.root = h('div', { class: 'overview scrolls' }, h('div', { class: 'head' }, this.sentence, this.under), this.parts);
  }

  title() {
    return '';
  }

  attach() {
    this.freshen();
  }

  detach() {
    this.stop.abort();
  }

  tick() {
    this.paintLoops();
    if (world.status) this.rates.paint();
  }

  freshen() {
    if (!isLive()) return;
    this.ends.look(this.stop.signal);
    this.rates.beats.look(this.stop.signal);
  }

  names() {
    return groups().map(({ group }) => ({ id: group, kind: 'group' }));
  }

  paint() {
    const { status } = world;
    show(this.parts, Boolean(status));
    if (!status) {
      say(this.sentence.firstChild, isLocked() ? 'A token is needed.' : world.error ? 'The daemon does not answer.' : 'Asking the daemon …');
      say(this.sentence.lastChild, '');
      return;
    }
    if (!this.asked) {
      this.asked = true;
      this.freshen();
    }
    const listed = groups();
    const own = listed.filter(({ group }) => !rosterOf(group));
    const [who, how, tone] = this.tell(listed);
    say(this.sentence.firstChild, who);
    say(this.sentence.lastChild, how);
    attr(this.sentence.lastChild, 'data-tone', tone);
    say(this.under, 'Tenure ' + status.version + (link() === 'daemon' ? '.' : ', up for ' + span(status.uptime_ms) + (status.streams ? ', followed by ' + many(status.streams, 'event stream') : '') + '.'));
    this.paintEnds(listed);
    show(this.empty, own.length === 0 && isLive());
    keyed(this.groups, own.slice(0, MOST), ({ group }) => group, makeGroup, updateGroup);
    show(this.more, status.groups_total > MOST || own.length > MOST);
    say(this.more, 'Of ' + many(status.groups_total, 'group') + ' the first ' + number(Math.min(MOST, own.length)) + ' are shown; the search finds ' + (listed.length < status.groups_total ? 'the first ' + number(listed.length) : 'all') + ' by their names.');
    show(this.rosterPart, rosters().length > 0);
    keyed(this.rosters, rosters().slice(0, MOST), ({ roster }) => roster, makeRoster, updateRoster);
    keyed(this.stores, stores(status), ({ name }) => name, makeLine, updateLine);
    this.rates.paint();
    this.paintLoops();
  }

  /** Recent ends; if there are none, how far back was read. */
  paintEnds(listed) {
    const { ends } = this;
    show(this.endPart, listed.some(({ last_event: last }) => last));
    const recent = ends.recent(ENDS);
    paintRecent(this.recent, recent, ({ group, id }) => (id ? at('why', group, id) : at('g', group)));
    const isAll = ends.looked && !ends.error && !ends.waiting && isLive();
    const minutes = WINDOW / 60_000;
    say(this.quiet, !isLive() ? 'As of ' + time(storeTime(moment())) + '; what ended since cannot be asked now.'
      : ends.error ? ends.error.message : !isAll ? 'Reading events …' : recent.length ? '' : 'Nothing has ended in the last ' + minutes + ' min.');
  }

  paintLoops() {
    const { status } = world;
    if (!status) return;
    const since = link() === 'daemon' ? 0 : Date.now() - world.at;
    const bad = status.loops.filter((loop) => loop.bad_in_a_row > 0);
    keyed(this.loops, bad.map((loop) => lineOf(loop, since)), ({ name }) => name, makeLine, updateLine);
    const then = link() === 'daemon' ? ', as of ' + time(storeTime(moment())) : '';
    say(this.well, (bad.length ? many(status.loops.length - bad.length, 'other') + ' did not fail' : 'None of the ' + number(status.loops.length) + ' fails') + then + '.');
  }

  /** The summary: members, state and tone. */
  tell(listed) {
    const sum = (of) => listed.reduce((total, state) => total + of(state), 0);
    const own = listed.filter(({ group }) => !rosterOf(group)).length;
    const who = listed.length ? many(sum(({ members }) => members), 'member') + ' in ' + many(own || listed.length, 'group') : 'No member';
    if (!isLive()) {
      const away = link() === 'daemon' ? 'The daemon does not answer' : 'The store does not answer';
      return [moment() ? who + ' at ' + time(storeTime(moment())) + '.' : 'Nothing is known yet.', away + (moment() ? '; nothing newer is known.' : '.'), 'unknown'];
    }
    if (!listed.length) return ['All quiet:', 'no member has joined.', 'ended'];
    const braked = listed.filter(({ brake }) => brake);
    const unknown = listed.filter(({ group }) => !isKnown(group)).length;
    const unsettled = listed.filter(({ settled }) => !settled).length;
    const releasing = sum((state) => state.releasing);
    const ended = this.ends.count(storeTime(moment()), LATELY);
    if (braked.length) {
      const lapsed = braked.reduce((total, { brake }) => total + brake.lapsed, 0);
      return [who + '.', many(lapsed, 'member') + ' lapsed together; removal is paused in ' + many(braked.length, 'group') + '.', 'braked'];
    }
    if (unknown) return [who + '.', 'The store does not answer for ' + many(unknown, 'group') + '.', 'unknown'];
    if (unsettled) return [who + '.', many(unsettled, 'group') + (unsettled === 1 ? ' is' : ' are') + ' settling.', 'uncertain'];
    if (releasing) return [who + '.', many(releasing, 'ended tenure') + (releasing === 1 ? ' is' : ' are') + ' being cleaned up.', 'uncertain'];
    if (ended) return [who + '.', number(ended) + ' ended in the last 5 min, all cleaned up.', 'alive'];
    return [who + '.', 'All settled, nothing left behind.', 'alive'];
  }

  /** Runs the doctor of the daemon. */
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

/** The state of a group as a word, and its tone. */
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
  const [word, tone] = isKnown(state.group) ? mood(state) : ['unknown since ' + asOf(state.group), 'unknown'];
  const [, , counts, name] = element.children;
  attr(element, 'data-tone', tone);
  say(counts, contents(state));
  say(name, word);
}

/** The counts of a group. */
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
  attr(element, 'data-tone', link() === 'daemon' ? 'unknown' : isMirror ? 'alive' : 'uncertain');
  say(counts, number(online) + ' online' + (roster.dirty ? ' · ' + many(roster.dirty, 'row') + ' not mirrored' : ''));
  say(name, isMirror ? 'mirror' : roster.answers_from === 'seeding' ? 'seeding' : 'ledger');
}

function stores({ store, rosters, groups_age_ms: age }) {
  const isAsked = link() !== 'daemon';
  const state = (up) => (isAsked ? { tone: up ? 'alive' : 'braked', mood: up ? 'up' : 'away' } : { tone: 'unknown', mood: moment() ? 'unknown since ' + time(storeTime(moment())) : 'unknown' });
  const lines = [{ name: 'store', text: store.place, ...state(link() === 'live') }];
  if (isAsked && age > 15_000) lines[0].mood += ', groups listed ' + span(age) + ' ago';
  if (rosters) {
    lines.push({ name: 'ledger', text: rosters.ledger.place, ...state(rosters.ledger.up) });
    if (rosters.breaker !== 'closed') lines.push({ name: 'breaker', text: 'reads of the ledger', tone: 'uncertain', mood: rosters.breaker });
  }
  return lines;
}

function lineOf(loop, since) {
  const age = loop.last_success_age_ms;
  return {
    name: loop.name, text: 'failed ' + many(loop.bad_in_a_row, 'time') + ' in a row: ' + (loop.last_error ?? 'it panicked'),
    tone: 'braked', mood: age === undefined ? 'never done' : 'last done ' + span(age + since) + ' ago',
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
