// Recent ends in all groups, and ends and beats per minute. Ends come from the events of the groups. Beats create no events:
// they are counted by the metrics of this daemon.

import { ask, get, path, storeTime } from './api.js';
import { Folded, lines } from './bursts.js';
import { attr, h, keyed, number, say, show, svg, time } from './dom.js';
import { tellMany } from './timeline.js';
import { tell } from './story.js';
import { changed, groups, isLive, moment } from './world.js';

/** The window that is shown. */
export const WINDOW = 30 * 60_000;
const MINUTE = 60_000;
const TYPES = 'left,lapsed,superseded,expelled,no_progress';
const PAGE = 1000;
/** Pages read per group, and groups read per round. */
const MOST_PAGES = 12;
const MOST_GROUPS = 8;
/** The most ends of a group that are kept individually. */
const KEPT = 1000;
/** The interval of reading the metrics, which are large. */
const COUNTED = 10_000;

export class Ends {
  constructor() {
    this.groups = new Map();
    this.times = [];
    this.error = null;
  }

  /** Reads new events. Events are numbered by time, so a group whose newest event is older than the window is skipped. */
  async look(signal) {
    if (this.busy) return;
    this.busy = true;
    const since = storeTime(moment()) - WINDOW;
    const due = groups().filter(({ group, last_event: last }) => last / 1000 > since && last > (this.groups.get(group)?.last ?? 0));
    due.sort((a, b) => b.last_event - a.last_event);
    this.waiting = Math.max(0, due.length - MOST_GROUPS);
    try {
      await Promise.all(due.slice(0, MOST_GROUPS).map((group) => this.read(group, since, signal)));
      this.error = null;
      this.looked = true;
    } catch (error) {
      this.error = error;
    }
    this.busy = false;
    this.prune(since);
    changed();
  }

  async read({ group, last_event: newest }, since, signal) {
    const known = this.groups.get(group) ?? { last: 0, events: [], folded: new Folded() };
    const { fresh, last } = known.last ? await this.forwards(group, known.last, newest, signal) : { fresh: await this.backwards(group, newest, since, signal), last: newest };
    for (const event of fresh) this.times.push(Date.parse(event.at));
    known.events.push(...fresh);
    for (const event of known.events.slice(0, -KEPT)) known.folded.drop(event);
    known.events = known.events.slice(-KEPT);
    known.last = last;
    this.groups.set(group, known);
  }

  async forwards(group, last, newest, signal) {
    const fresh = [];
    let after = last;
    for (let pages = 0; pages < MOST_PAGES && after < newest; pages += 1) {
      const page = await get(path`v1/groups/${group}/events?after=${after}&types=${TYPES}&limit=${PAGE}`, { signal });
      fresh.push(...page.events);
      if (Number(page.next) === after) break;
      after = Number(page.next);
    }
    // The rest is read in the next round, unless the store lost its data.
    return { fresh, last: fresh.length ? after : Math.max(after, newest) };
  }

  async backwards(group, newest, since, signal) {
    let events = [];
    for (let before = newest + 1, pages = 0; pages < MOST_PAGES; pages += 1) {
      const page = await get(path`v1/groups/${group}/events?before=${before}&types=${TYPES}&limit=${PAGE}`, { signal });
      events = page.events.concat(events);
      if (Number(page.next) === Number(before) || Number(page.next) / 1000 < since) return events;
      before = page.next;
    }
    this.cut = true;
    return events;
  }

  prune(since) {
    this.times = this.times.filter((at) => at >= since);
    for (const [group, known] of this.groups) {
      known.events = known.events.filter((event) => Date.parse(event.at) >= since);
      if (!groups().some((one) => one.group === group)) this.groups.delete(group);
    }
  }

  /** The newest ends of all groups, each `{key, group, event, told, at}`, bursts as one. */
  recent(most) {
    const all = [];
    for (const [group, { events, folded }] of this.groups) {
      for (const { event, burst } of lines(events, folded, new Set(), null).slice(0, most)) {
        const last = event ?? burst.last;
        all.push({ key: group + ' ' + (event ?? burst.events[0]).id, group, event: last, told: event ? tell(event) : tellMany(burst), id: event && tell(event).id, at: Date.parse(last.at) });
      }
    }
    return all.sort((a, b) => b.at - a.at).slice(0, most);
  }

  /** How many ended within so long before a moment of the store's clock. */
  count(now, within) {
    return this.times.filter((at) => at > now - within && at <= now).length;
  }

  /** How many ended in each minute before a moment, the oldest first. */
  minutes(now) {
    const bars = new Array(WINDOW / MINUTE).fill(0);
    for (const at of this.times) {
      const ago = Math.floor((now - at) / MINUTE);
      if (ago >= 0 && ago < bars.length) bars[bars.length - 1 - ago] += 1;
    }
    return bars;
  }
}

/** The beats that the daemon has counted since the page was opened. */
export class Beats {
  constructor() {
    this.samples = [];
    this.why = null;
  }

  async look(signal) {
    if (this.busy || this.why || Date.now() - (this.asked ?? 0) < COUNTED) return;
    this.busy = true;
    this.asked = Date.now();
    try {
      const text = await (await ask('metrics', { signal })).text();
      const total = Number(/^tenure_beats_total\{outcome="renewed"\} (\d+)/m.exec(text)?.[1] ?? 0);
      // A restarted daemon counts from 0.
      if (total < (this.samples.at(-1)?.total ?? 0)) this.samples = [];
      this.samples.push({ at: this.asked, total });
      this.samples = this.samples.filter(({ at }) => at >= this.asked - WINDOW - MINUTE);
    } catch (error) {
      if (error.status === 403 || error.status === 501) this.why = error.message;
    }
    this.busy = false;
    changed();
  }

  /** How many beats there were up to a moment, between two samples in proportion; `null` before the first. */
  total(at) {
    const { samples } = this;
    const next = samples.findIndex((sample) => sample.at >= at);
    if (next === 0) return samples[0].at === at ? samples[0].total : null;
    if (next < 0) return samples.at(-1)?.total ?? null;
    const [a, b] = [samples[next - 1], samples[next]];
    return a.total + (b.total - a.total) * (at - a.at) / (b.at - a.at);
  }

  /** Beats in each minute up to the last sample, the oldest first; `null` where they were not counted. */
  minutes() {
    const end = this.samples.at(-1)?.at ?? 0;
    return Array.from({ length: WINDOW / MINUTE }, (_, index) => {
      const to = this.total(end - (WINDOW / MINUTE - 1 - index) * MINUTE);
      const from = this.total(end - (WINDOW / MINUTE - index) * MINUTE);
      return to === null || from === null ? null : Math.round(to - from);
    });
  }

  /** What was counted lately: `{count, over}`, over a minute at most. */
  lately() {
    const last = this.samples.at(-1);
    const first = this.samples.find(({ at }) => at >= (last?.at ?? 0) - MINUTE - 1000);
    return last && first !== last ? { count: last.total - first.total, over: last.at - first.at, at: last.at } : null;
  }
}

/** A small graph: a bar for each minute. */
export class Graph {
  constructor(title, tone) {
    this.bars = svg('path', {});
    this.title = h('b', {}, title);
    this.now = h('span', { class: 'sub' });
    this.drawing = svg('svg', { class: 'graph', role: 'img', viewBox: '0 0 300 40', preserveAspectRatio: 'none', 'data-tone': tone }, svg('path', { class: 'ground', d: 'M0 39.5h300' }), this.bars);
    this.root = h('div', { class: 'rate' }, h('p', {}, this.title, ' ', this.now), this.drawing);
  }

  paint(values, now, words) {
    const most = Math.max(1, ...values);
    const wide = 300 / values.length;
    const line = values.map((value, index) => {
      const tall = value ? Math.max(2, 38 * value / most) : 0;
      return tall ? 'M' + (index * wide + 1).toFixed(1) + ' ' + (39 - tall).toFixed(1) + 'h' + (wide - 2).toFixed(1) + 'v' + tall.toFixed(1) + 'h-' + (wide - 2).toFixed(1) + 'z' : '';
    });
    attr(this.bars, 'd', line.join(''));
    attr(this.drawing, 'aria-label', words);
    say(this.now, now);
  }
}

/** Both graphs. */
export class Rates {
  constructor(ends) {
    Object.assign(this, { ends, beats: new Beats(), opened: Date.now() });
    this.endGraph = new Graph('Ends a minute', 'ended');
    this.beatGraph = new Graph('Beats a minute', 'alive');
    this.note = h('p', { class: 'fine' });
    this.root = h('section', { 'aria-label': 'Rates' }, h('h3', {}, 'The last 30 minutes'), this.endGraph.root, this.beatGraph.root, this.note);
  }

  paint() {
    const { ends, beats } = this;
    const now = storeTime(moment());
    const asOf = isLive() ? '' : ', as of ' + time(now);
    show(this.endGraph.root, Boolean(ends.looked));
    const bars = ends.minutes(now);
    this.endGraph.paint(bars, number(bars.at(-1)) + ' in the last minute' + asOf, 'Ends in each of the last 30 minutes: ' + bars.join(', '));
    const lately = beats.lately();
    show(this.beatGraph.root, Boolean(lately));
    if (lately) {
      const old = isLive() ? '' : ', as of ' + time(storeTime(lately.at));
      const all = beats.minutes();
      this.beatGraph.paint(all, number(lately.count) + ' in ' + Math.round(lately.over / 1000) + ' s' + old, 'Beats in each minute since the page was opened: ' + all.filter((one) => one !== null).join(', '));
    }
    say(this.note, beats.why ? 'Beats are not shown: ' + beats.why : 'Ends are those of all groups, from their events. Beats are those through this daemon, since ' + time(storeTime(this.opened)) + ', when this page was opened.'
      + (ends.cut ? ' Ends before the newest ' + number(MOST_PAGES * PAGE) + ' of a group are not counted.' : ''));
  }
}

/** The newest ends, as lines of a table. */
export function paintRecent(table, list, address) {
  keyed(table, list, ({ key }) => key, () => h(
    'a', { class: 'entry ended' }, h('span', { class: 'dot' }), h('span', { class: 'name' }), h('span', { class: 'counts' }), h('time', { class: 'mood' }),
  ), (element, item) => {
    const [, name, counts, at] = element.children;
    attr(element, 'href', address(item));
    attr(element, 'data-tone', item.told.tone);
    say(name, item.told.who);
    say(counts, item.told.what + ' in ' + item.group + ' · ' + item.told.detail);
    say(at, time(item.at));
    attr(at, 'datetime', item.event.at);
  });
}

