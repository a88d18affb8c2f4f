// Banners: grace periods, brakes, and what does not answer, with reasons.

import { settle } from './acts.js';
import { isLocked, now, storeTime, unlock } from './api.js';
import { at, attr, h, keyed, many, number, say, show, span, time } from './dom.js';
import { keeps } from './members.js';
import { cause } from './story.js';
import { asOf, groups, isKnown, link, mayOperate, moment, world } from './world.js';

const MOST = 5;

/** The banners, each `{key, tone, title, text, until?, act?, href?}`, the worst first. */
function all() {
  const list = [...ofLink(), ...ofStores()];
  list.push(...groups().flatMap(ofBrake), ...ofGraces(groups().filter((group) => group.unsettled)));
  list.push(...ofStream(), ...ofRosters(), ...ofLoops());
  return list;
}

function ofLink() {
  if (isLocked()) {
    return [{ key: 'token', tone: 'uncertain', title: 'A token is needed.', text: 'Nothing is fetched without one.', act: ['Show a token', unlock] }];
  }
  const { error, status } = world;
  if (link() === 'asking') return [];
  if (error?.status === 403) return [{ key: 'scope', tone: 'uncertain', title: 'The token may not read this.', text: error.message }];
  if (status && link() !== 'daemon') return [];
  const text = (status ? 'What is shown is as of ' + time(storeTime(moment())) + '; nothing newer is known. ' : 'Nothing is known yet. ') + 'Asked again every 2 s.';
  return [{ key: 'link', tone: 'braked', title: 'The daemon does not answer.', text }];
}

function ofStores() {
  const list = [];
  const { store, rosters } = world.status ?? {};
  if (link() === 'store') {
    const since = moment() ? ' What is shown is as of ' + time(storeTime(moment())) + '; nothing newer is known.' : '';
    list.push({
      key: 'store', tone: 'braked', title: 'The store does not answer.',
      text: store.place + ': ' + (store.reason ?? 'no reason is known') + '.' + since + ' No member is marked dead by this: when the store returns, every ttl restarts.',
    });
  }
  if (rosters && !rosters.ledger.up) {
    list.push({ key: 'ledger', tone: 'uncertain', title: 'The ledger does not answer.', text: rosters.ledger.place + ': ' + (rosters.ledger.reason ?? 'no reason is known') + '. Rosters are read from the mirror and cannot be changed.' });
  }
  return list;
}

function ofBrake(state) {
  const { group: name, brake } = state;
  if (!brake) return [];
  const until = Date.parse(brake.until);
  return [{
    key: 'brake ' + name, tone: 'braked', title: 'Removal is paused in ' + name + '.', href: at('g', name), until: isKnown(name) && until,
    text: then(name) + number(brake.lapsed) + ' lapsed together, ' + many(brake.present, 'is', 'are') + ' present. ' + keeps(state)
      + ' If they are really gone: tenure sweep --force --group ' + name + ' --store ' + location.origin,
  }];
}

/** Grace periods of many groups on one store usually coincide: they share a banner. */
function ofGraces(list) {
  if (!list.length) return [];
  const until = Math.max(...list.map(({ unsettled }) => Date.parse(unsettled.until)));
  const names = list.map(({ group }) => group);
  const isOne = list.length === 1;
  const causes = [...new Set(list.map(({ unsettled }) => cause(unsettled.cause)))].join(', ');
  return [{
    key: 'unsettled ' + (isOne ? names[0] : ''), tone: 'uncertain', until: isKnown(names[0]) && until, href: isOne ? at('g', names[0]) : '#/',
    act: isOne && isKnown(names[0]) && mayOperate() ? ['Settle …', () => settle(names[0])] : undefined,
    title: isOne ? names[0] + ' is settling.' : number(list.length) + ' groups are settling.',
    text: then(names[0]) + (list.every(({ unsettled }) => unsettled.cause === 'new')
      ? 'The store is new or was emptied: leases are granted from ' + time(until) + '. If nothing was held in it before: tenure settle --yes --store ' + location.origin
      : 'The store did not serve: ' + causes + '. Until ' + time(until) + ' no member lapses and no lease is granted.'
        + (isOne ? '' : ' ' + names.slice(0, 6).join(', ') + (names.length > 6 ? ', …' : '') + '.')),
  }];
}

/** The age of a state that is not current. */
function then(group) {
  return isKnown(group) ? '' : 'As of ' + asOf(group) + ': ';
}

function ofStream() {
  const list = [];
  if (world.stream === 'waiting' && link() === 'live') {
    list.push({ key: 'stream', tone: 'uncertain', title: 'Events are being reconnected.', text: (world.streamError?.message ?? 'The stream ended') + '. It resumes after the last event that was seen.' });
  }
  const gap = world.gaps.at(-1);
  if (gap && Date.now() - gap.seen < 60_000) {
    list.push({ key: 'gap ' + gap.id, tone: 'uncertain', title: 'Events of ' + gap.group + ' are missing.', text: 'They were trimmed, or lost with the data of the store. The page has read everything again.' });
  }
  return list;
}

function ofRosters() {
  const list = [];
  for (const roster of world.status?.rosters?.rosters ?? []) {
    if (roster.answers_from === 'mirror') continue;
    const text = roster.answers_from === 'seeding' ? 'Its mirror is being filled; it answers from the ledger until then.' : 'Its mirror is away or has not caught up; it answers from the ledger.';
    list.push({ key: 'roster ' + roster.roster, tone: 'uncertain', title: 'Roster ' + roster.roster + '.', text, href: at('r', roster.roster) });
  }
  return list;
}

/** A single failure of a loop that runs every second is over before it can be read, so it is not shown. */
function ofLoops() {
  const isLate = (loop) => (loop.last_success_age_ms ?? Infinity) > 60_000;
  const failing = (world.status?.loops ?? []).filter((loop) => loop.bad_in_a_row > 0 && isLate(loop));
  return failing.map((loop) => ({ key: 'loop ' + loop.name, tone: 'uncertain', title: 'The loop ' + loop.name + ' fails.', text: loop.last_error }));
}

export class Banners {
  constructor() {
    this.root = document.getElementById('banners');
    this.more = h('p', { class: 'more' });
  }

  paint() {
    const list = all();
    this.list = list;
    const shown = list.slice(0, MOST);
    keyed(this.root, list.length > MOST ? [...shown, { key: 'more', more: list.length - MOST }] : shown, (banner) => banner.key, make, update);
  }

  /** Counts down without announcements by screen readers. */
  tick() {
    for (const element of this.root.children) if (element.until) say(element.left, left(element.until));
  }
}

function left(until) {
  const ms = until - now();
  return ms > 0 ? 'another ' + span(ms) : '';
}

function make() {
  const element = h('div', { class: 'banner' }, h('span', { class: 'dot' }), h('p', {}, h('a', {}), ' ', h('span', {})), h('span', { class: 'left', 'aria-hidden': 'true' }), h('button', { type: 'button', class: 'plain' }));
  const [, words, time, button] = element.children;
  Object.assign(element, { title_: words.firstChild, text: words.lastChild, left: time, button });
  button.addEventListener('click', () => element.act?.());
  return element;
}

function update(element, banner) {
  const { tone = 'plain', title, text = '', until, act, href, more } = banner;
  attr(element, 'data-tone', tone);
  say(element.title_, more ? many(more, 'more notice') + '.' : title);
  attr(element.title_, 'href', href);
  say(element.text, text);
  element.until = until;
  say(element.left, until ? left(until) : '');
  show(element.button, Boolean(act));
  element.act = act?.[1];
  say(element.button, act?.[0]);
}
