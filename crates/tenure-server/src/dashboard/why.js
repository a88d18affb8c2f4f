// The why page: the state and history of a member, tenure, key, lease, session or provider.

import { expel, release } from './acts.js';
import { find, get, path, storeTime } from './api.js';
import { at, attr, command, exact, h, keyed, many, NAME, number, say, show, span, time } from './dom.js';
import { List } from './list.js';
import { held } from './members.js';
import { standing } from './roster.js';
import { concerns, ending, isWide, memberOf, subject, tell } from './story.js';
import { row, write } from './timeline.js';
import { changed, groupState, isKnown, link, lookAt, mayOperate, rosterOf, trouble } from './world.js';

const PAGE = 1000;
/** Pages that are read without the button. */
const PAGES = 20;
/** How long an answer counts as current; it is refreshed every 3 s. */
const OLD = 8000;
const AGAIN = 3000;
const ENDS = new Set(['left', 'lapsed', 'superseded', 'expelled', 'no_progress']);
/** The characters of an id. None is special to a shell: the address may come from another page. */
const ID = /^[A-Za-z0-9._:@/-]+$/;

export class Why {
  constructor(group, id) {
    Object.assign(this, { group, id, asked: subject(id), found: [], rows: [], lowest: null, newest: 0, atBegin: false, scanned: 0 });
    this.stop = new AbortController();
    this.roster = rosterOf(group);
    this.kind = h('p', { class: 'kicker' });
    this.facts = h('dl', { class: 'facts' });
    this.also = h('p', { class: 'also' });
    this.progress = h('p', { class: 'fine', role: 'status' });
    this.older = h('button', { type: 'button', class: 'plain older', onclick: () => this.scan(PAGES) }, 'Look further back');
    this.list = new List({
      label: 'What happened to ' + id, make: row,
      fill: (element, index) => this.fill(element, index),
      open: (index) => this.open(index),
      empty: this.nothing = h('p', { class: 'quiet' }),
    });
    this.expel = h('button', { type: 'button', class: 'plain act', hidden: true, onclick: () => expel(group, this.now.member.member) }, 'Expel …');
    this.release = h('button', { type: 'button', class: 'plain act', hidden: true, onclick: () => this.releaseGrant(this.now.lease) }, 'Release …');
    this.grants = h('div', { class: 'grants' });
    this.root = h(
      'div', { class: 'why scrolls' },
      h('div', { class: 'head' }, h('a', { class: 'back', href: this.home() }, '← ' + (this.roster ?? group)), this.kind, h('h2', { class: 'id' }, id), this.also),
      h('div', { class: 'columns' },
        h('section', { class: 'now', 'aria-label': 'Now' }, h('h3', {}, 'Now', this.expel, this.release), this.facts, this.grants,
          NAME.test(group) && ID.test(id)
            ? [h('p', { class: 'fine' }, 'The same in a terminal:'), command('tenure why --store ' + location.origin + ' --group ' + group + ' ' + id)] : null),
        h('section', { class: 'then', 'aria-label': 'What happened' }, h('h3', {}, 'What happened'), this.progress, this.list.root, this.older)),
    );
  }

  title() {
    return 'why ' + this.id;
  }

  home() {
    return this.roster ? at('r', this.roster) : at('g', this.group);
  }

  async attach() {
    this.list.attach();
    if (!NAME.test(this.group)) {
      say(this.kind, 'No group can have this name.');
      return;
    }
    say(this.kind, 'Looking …');
    while (!this.ready && !this.stop.signal.aborted) {
      try {
        await this.begin();
      } catch (error) {
        if (this.stop.signal.aborted) return;
        this.error = error;
        changed();
        await new Promise((resolve) => setTimeout(resolve, AGAIN));
      }
    }
    await this.scan(PAGES);
  }

  async begin() {
    const state = await lookAt(this.group, this.stop.signal);
    this.newest = state?.last_event ?? 0;
    this.lowest = this.newest + 1;
    await this.look(true);
    this.ready = true;
    this.error = null;
  }

  /** Whether the content is current. */
  isNow() {
    if (!this.now || Date.now() - this.read > OLD) return false;
    return this.now.provider?.source === 'ledger' ? link() !== 'daemon' : isKnown(this.group);
  }

  /** The time of the content, by the browser's clock. */
  moment() {
    return this.isNow() ? Date.now() : this.read;
  }

  detach() {
    this.list.detach();
    this.stop.abort();
  }

  find(address) {
    return find(address, { signal: this.stop.signal });
  }

  /** Reads the state. A bare name is a member, else a lease, a session or a key. */
  async look(resolve) {
    const { kind, name } = this.asked;
    const group = this.group;
    const now = {};
    const sent = Date.now();
    if (kind === 'member' || kind === 'tenure') {
      now.member = await this.find(path`v1/groups/${group}/members/${this.asked.member ?? name}`);
      if (this.roster) now.provider = await this.find(path`v1/rosters/${this.roster}/providers/${this.asked.member ?? name}`);
      if (kind === 'member' && !now.member && !now.provider && resolve) await this.others(name);
    }
    if (this.asked.kind === 'lease') {
      [now.lease, now.target] = await Promise.all([
        this.find(path`v1/groups/${group}/leases/${this.asked.name}`), this.find(path`v1/groups/${group}/targets/${this.asked.name}`),
      ]);
    }
    if (this.asked.kind === 'session') now.session = await this.find(path`v1/groups/${group}/sessions/${this.asked.name}`);
    if (this.asked.kind === 'key') now.claim = await this.find(path`v1/groups/${group}/registries/${this.asked.registry}/claims/${this.asked.name}`);
    this.now = now;
    this.read = sent;
    this.present = this.asked.kind === 'tenure' ? this.asked.name : (now.member ?? now.lease ?? now.claim)?.tenure;
    this.log = this.roster && now.provider ? await this.readLog() : [];
    changed();
  }

  async others(name) {
    const meant = await matches(this.group, name, this.stop.signal);
    const one = meant.filter((match) => match.id !== name);
    if (one.length === 1) {
      this.asked = subject(one[0].id);
      this.id = one[0].id;
    } else if (one.length > 1) this.alike = one;
    else this.anything = true;
  }

  /** The provider's log from the ledger, as events. */
  async readLog() {
    const query = new URLSearchParams({ provider: this.now.provider.provider, limit: 1000 });
    const page = await this.find(path`v1/rosters/${this.roster}/log?` + query);
    return (page?.entries ?? []).map((entry) => ({
      at: entry.at, log: { who: entry.provider, what: 'became ' + entry.change, detail: 'in the ledger: ' + entry.reason, tone: LOG_TONES[entry.change] ?? 'plain' },
    }));
  }

  belongs(event) {
    if (!this.anything) return concerns(event, this.asked, this.present);
    const name = this.id;
    return isWide(event) || memberOf(event.tenure) === name || memberOf(event.from) === name || event.to === name || event.lease === name
      || event.session === name || event.alias === name || (event.keys ?? []).some((key) => key.endsWith('/' + name));
  }

  /** Reads events backwards. */
  async scan(pages) {
    if (this.busy || this.atBegin || !this.ready) return;
    this.busy = true;
    this.isCut = false;
    for (let page = 0; page < pages && !this.atBegin && !this.stop.signal.aborted; page += 1) {
      let read;
      try {
        read = await get(path`v1/groups/${this.group}/events?before=${this.lowest}&limit=${PAGE}`, { signal: this.stop.signal });
      } catch {
        this.isCut = true;
        break;
      }
      const fresh = read.events;
      this.scanned += fresh.length;
      this.found = fresh.filter((event) => this.belongs(event)).concat(this.found);
      this.since = fresh[0]?.at ?? this.since;
      this.atBegin = fresh.length < PAGE;
      this.lowest = Number(read.next);
      this.told = null;
      changed();
    }
    this.busy = false;
    changed();
  }

  /** Reads newer events and the state. */
  async freshen() {
    if (!this.ready || this.again) return;
    this.again = true;
    try {
      const read = await get(path`v1/groups/${this.group}/events?after=${this.newest}&limit=${PAGE}`, { signal: this.stop.signal });
      this.newest = Number(read.next);
      this.found.push(...read.events.filter((event) => this.belongs(event)));
      await this.look(false);
    } catch {
      // A banner shows the error.
    }
    this.told = null;
    this.again = false;
    if (this.isCut) this.scan(PAGES);
    changed();
  }

  lines() {
    if (!this.told) {
      // Events of the whole group are shown only beside events of the subject.
      const own = this.found.some((event) => !isWide(event)) ? this.found : [];
      this.told = own.concat(this.log ?? []).sort((a, b) => (a.at < b.at ? 1 : a.at > b.at ? -1 : (b.id ?? 0) - (a.id ?? 0)));
    }
    return this.told;
  }

  paint() {
    show(this.expel, Boolean(this.now?.member?.alive) && this.isNow() && mayOperate() && !this.roster);
    this.paintGrants();
    if (!this.now) {
      const why = trouble(this.group, this.error);
      say(this.kind, why ? why.message : 'Looking …');
      if (why) keyed(this.facts, [['State', 'cannot ask now', 'unknown']], ([name]) => name, fact, writeFact);
      this.list.draw(0, false);
      say(this.progress, why ? 'Its events cannot be read now.' : '');
      show(this.older, false);
      return;
    }
    say(this.kind, this.kindInWords());
    say(this.root.querySelector('.id'), this.asked.kind === 'lease' || this.asked.kind === 'session' ? this.asked.name : this.id);
    this.paintFacts();
    keyed(this.also, this.alike ?? [], (match) => match.id, (match) => h('a', { href: at('why', this.group, match.id) }, match.kind + ' ' + match.id), null);
    this.list.draw(this.lines().length, !this.busy);
    const isRead = this.atBegin && isKnown(this.group);
    say(this.nothing, isRead ? 'Nothing is recorded about it.' : !isKnown(this.group) || this.isCut ? 'Its events cannot be read now.' : 'Nothing about it in the events that were read.');
    const back = this.since ? ' back to ' + time(Date.parse(this.since)) : '';
    say(this.progress, (this.busy ? 'Reading events: ' : 'Of ') + many(this.scanned, 'event') + back + (this.atBegin && !this.busy ? '; none is older' : '') + (isKnown(this.group) ? '' : '. What happened since cannot be asked now'));
    show(this.older, !this.atBegin && !this.busy);
  }

  releaseGrant({ token }) {
    release(this.group, this.asked.name, token);
  }

  /** The holders of a lease with several places, each with its button. */
  paintGrants() {
    const lease = this.asked.kind === 'lease' ? this.now?.lease : null;
    const may = this.isNow() && mayOperate();
    const isOne = lease?.holders?.length === 1;
    show(this.release, Boolean(isOne && lease.alive && !lease.holders[0].revoked && may));
    keyed(this.grants, isOne ? [] : lease?.holders ?? [], (holder) => String(holder.token), (holder) => h(
      'p', { class: 'grant' }, h('a', { href: at('why', this.group, holder.holder) }), h('span', { class: 'sub' }),
      h('button', { type: 'button', class: 'plain', onclick: () => this.releaseGrant(holder) }, 'Release …'),
    ), (element, holder) => {
      const [name, state, button] = element.children;
      say(name, holder.holder);
      say(state, ' place ' + holder.place + ', token ' + holder.token + (holder.revoked ? ', released by an operator' : holder.alive ? '' : ', has ended') + ' ');
      show(button, may && holder.alive && !holder.revoked);
    });
  }

  kindInWords() {
    if (this.anything) return (this.wasMember() ? 'a member that is not here any more' : 'nothing of this name is here now') + ', in group ' + this.group;
    const kind = this.now.provider ? 'provider' : this.asked.kind === 'lease' && this.now.target ? 'target and lease' : this.asked.kind;
    return kind + (this.roster ? ' of roster ' + this.roster : ' in group ' + this.group);
  }

  paintFacts() {
    const facts = this.factsNow();
    if (!this.isNow()) {
      // An end is final; whether the member has rejoined is unknown.
      const why = link() === 'live' ? 'the store does not answer for this group' : link() === 'daemon' ? 'the daemon does not answer' : 'the store does not answer';
      facts.unshift(['As of', time(storeTime(this.read)) + '; cannot ask now: ' + why, 'unknown']);
    }
    keyed(this.facts, facts, ([name]) => name, fact, writeFact);
  }

  /** The facts, each `[name, text, tone?, link?]`. */
  factsNow() {
    const { member, lease, target, session, claim, provider } = this.now;
    const why = (id) => at('why', this.group, id);
    if (provider) return ofProvider(provider, why);
    if (member && (this.asked.kind === 'member' || member.tenure === this.id)) return this.ofMember(member);
    if (this.asked.kind === 'tenure') {
      const end = this.lastEnd();
      return [['State', end ? tell(end).what : 'over', 'ended'], ...(end ? [['Why', ending(end.type)], ['When', time(Date.parse(end.at))]] : []), member ? ['The member', 'is here under a later tenure', 'alive', why(member.member)] : ['The member', 'has no current tenure', 'ended']];
    }
    if (this.asked.kind === 'lease') return ofLease(lease, target, why, this.moment() - this.read);
    if (this.asked.kind === 'session') return session ? ofSession(session, this.moment() - this.read) : [['State', 'there is no such session', 'ended']];
    if (this.asked.kind === 'key') {
      if (!claim) return [['Owner', 'none', 'ended']];
      return [['Owner', claim.owner, claim.alive ? 'alive' : 'ended', why(claim.owner)], ['Tenure', claim.tenure, null, why(claim.tenure)],
        ['State', claim.alive ? 'its owner is alive' : 'still listed; its owner has ended, the janitor will remove it', claim.alive ? 'alive' : 'uncertain']];
    }
    const end = this.lastEnd();
    if (!end) return [['State', this.anything ? 'not here' : 'not a member', 'ended']];
    return [['State', tell(end).what, 'ended'], ['Why', ending(end.type)], ['When', time(Date.parse(end.at))], ['Tenure', end.tenure, null, why(end.tenure)]];
  }

  ofMember(member) {
    const moment = this.moment();
    const left = member.expires_in_ms - (moment - this.read);
    const state = !this.isNow() ? ['Then', member.alive ? 'alive, for another ' + span(left) + ' without a beat' : 'past its end', 'unknown']
      : member.alive && left > 0 ? ['State', 'alive, for another ' + span(left) + ' without a beat', 'alive'] : ['State', 'past its end', 'uncertain'];
    const labels = Object.entries(member.labels).map(([name, value]) => ['Label ' + name, value]);
    return [
      state, ['Last beat', span(storeTime(moment) - Date.parse(member.last_beat_at)) + ' ago'], ['Joined', time(Date.parse(member.joined_at))],
      ['Holds', held(member.holdings)], ['ttl', exact(member.ttl_ms)], ['Tenure', member.tenure, null, at('why', this.group, member.tenure)], ...labels,
    ];
  }

  wasMember() {
    return this.found.some((event) => memberOf(event.tenure) === this.id && !event.lease && !event.session);
  }

  /** The event that ended it, if that is known. */
  lastEnd() {
    return this.found.findLast((event) => ENDS.has(event.type) && (event.tenure === this.id || memberOf(event.tenure) === this.id));
  }

  tick() {
    if (this.now) this.paintFacts();
  }

  open(index) {
    const event = this.lines()[index];
    const id = event?.type && tell(event).id;
    if (id && id !== this.id) location.hash = at('why', this.group, id);
  }

  fill(element, index) {
    const event = this.lines()[index];
    if (!event || element.shows === event) return;
    element.shows = event;
    const told = event.log ?? tell(event);
    write(element.parts, event, told);
    attr(element, 'data-tone', told.tone);
    attr(element, 'title', told.who + ' ' + told.what + '. ' + told.detail);
  }
}

const LOG_TONES = { online: 'alive', activated: 'alive', offline: 'ended', deactivated: 'braked' };

function fact([name]) {
  return h('div', {}, h('dt', {}, name), h('dd', {}, h('a', {})));
}

function writeFact(element, [, text, tone, link]) {
  const value = element.lastChild.firstChild;
  say(value, text);
  attr(value, 'href', link);
  attr(element, 'data-tone', tone);
}

function ofProvider(item, why) {
  const { tone, state } = standing(item);
  const when = (name, at) => at && [name, time(Date.parse(at))];
  return [
    ['State', state, tone], item.display_name && ['Name', item.display_name], ['Engagements', item.occupancy + ' of ' + item.capacity],
    when('Last heartbeat', item.last_heartbeat_at), when('Last online', item.last_online_at), when('Last offline', item.last_offline_at),
    item.tenure && ['Tenure', item.tenure, null, why(item.tenure)], item.source && ['Answered from', 'the ' + item.source],
  ].filter(Boolean);
}

function ofLease(lease, target, why, passed) {
  const facts = [];
  if (!lease) facts.push(['Holder', 'none', 'ended']);
  else {
    facts.push(['Holder', lease.holder, lease.alive ? 'alive' : 'uncertain', why(lease.holder)], ['Token', String(lease.token)], ['Tenure', lease.tenure, null, why(lease.tenure)]);
    if (lease.places > 1) facts.push(['Places', number(lease.places - lease.free) + ' of ' + number(lease.places) + ' taken']);
    if (lease.waiting > 0) facts.push(['Waiting', many(lease.waiting, 'request') + ', first come, first served']);
    if (lease.alive && lease.holders?.length === 1 && lease.holders[0].revoked) facts.push(['State', 'released by an operator; free when its holder has noticed or its tenure has ended', 'uncertain']);
    if (!lease.alive) facts.push(['State', lease.expires_in_ms ? 'kept for another ' + span(lease.expires_in_ms - passed) + ': its holder was ended by others and may still run' : 'its holder has ended; the next acquire gets it', 'uncertain']);
  }
  if (target) {
    const isAway = lease && target.preferred && target.preferred !== lease.holder;
    if (target.preferred) facts.push(['Preferred', target.preferred, isAway ? 'uncertain' : 'alive', why(target.preferred)]);
    facts.push(['Target', (target.paused ? 'paused' : 'to be worked on') + (target.weight > 1 ? ', weight ' + target.weight : ''), target.paused ? 'ended' : null]);
  } else facts.push(['Target', 'none of this name']);
  return facts;
}

function ofSession(session, passed) {
  const left = session.reap_in_ms === undefined ? null : Math.max(0, session.reap_in_ms - passed);
  const state = {
    active: ['State', 'active, with ' + many(session.connections, 'connection'), 'alive'],
    disconnected: ['State', left === null ? 'disconnected; its grace begins when the janitor comes' : 'disconnected; can be resumed for another ' + span(left), 'uncertain'],
    orphan: ['State', 'an orphan; the reaper will delete it', 'ended'],
  }[session.state] ?? ['State', session.state];
  const fields = Object.keys(session.data ?? {}).length;
  return [
    state, session.alias && ['Alias', session.alias], ['Epoch', String(session.epoch)], ['Made', time(Date.parse(session.created_at))],
    session.disconnected_at && ['Disconnected', time(Date.parse(session.disconnected_at))], ['Data', fields ? many(fields, 'field') : 'none'],
  ].filter(Boolean);
}

/** Finds what a bare name refers to. */
export async function matches(group, name, signal) {
  if (!NAME.test(name) || !NAME.test(group)) return [];
  const options = { signal };
  const roster = rosterOf(group);
  const names = (groupState(group)?.registries ?? []).slice(0, 8);
  const alias = find(path`v1/groups/${group}/sessions?` + new URLSearchParams({ alias: name }), options);
  const [member, lease, session, target, provider, aliased, ...claims] = await Promise.all([
    find(path`v1/groups/${group}/members/${name}`, options), find(path`v1/groups/${group}/leases/${name}`, options),
    find(path`v1/groups/${group}/sessions/${name}`, options), find(path`v1/groups/${group}/targets/${name}?plain=true`, options),
    roster ? find(path`v1/rosters/${roster}/providers/${name}`, options) : null, alias,
    ...names.map((registry) => find(path`v1/groups/${group}/registries/${registry}/claims/${name}`, options)),
  ]);
  const found = [];
  const add = (kind, id) => found.some((match) => match.id === id) || found.push({ group, kind, id });
  if (provider) add('provider', name);
  else if (member) add('member', name);
  if (lease) add('lease', 'lease:' + name);
  else if (target) add('target', 'lease:' + name);
  if (session) add('session', 'session:' + name);
  for (const one of aliased?.sessions ?? []) add('alias of session', 'session:' + one.session);
  claims.forEach((claim, index) => claim && add('key', names[index] + '/' + name));
  return found;
}

