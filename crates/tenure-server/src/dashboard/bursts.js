// Bursts: many events of one kind as one line. Ten thousand members that lapse together are one line with their number, even
// when there are too many events to keep.

/** The longest pause between two events of a burst, by the store's clock. */
const WITHIN = 2000;
/** The least number of events that make a burst. */
const BURST = 4;
/** The most bursts that are kept without their events. */
const KEPT = 200;

const keyOf = ({ type, reason }) => type + ' ' + (reason ?? '');
const begun = (at) => ({ count: 0, from: at, to: at, tenures: new Set(), events: [] });

/** Bursts that begin before the oldest kept event. Some of their events are kept as examples. */
export class Folded {
  constructor() {
    this.byKey = new Map();
    this.closed = [];
  }

  /** Adds the oldest kept event, which is being dropped. */
  drop(event) {
    const at = Date.parse(event.at);
    const key = keyOf(event);
    const known = this.byKey.get(key);
    if (known && at - known.to <= WITHIN) {
      add(known, event, at);
      return;
    }
    if (known) this.closed = [...this.closed.slice(1 - KEPT), known];
    this.byKey.set(key, add(begun(at), event, at));
  }

  /** Adds an event older than all `kept` ones. */
  before(event, kept) {
    const at = Date.parse(event.at);
    const key = keyOf(event);
    let known = this.byKey.get(key);
    if (!known) {
      const first = kept.find((other) => keyOf(other) === key);
      this.byKey.set(key, known = { ...begun(first ? Date.parse(first.at) : NaN), isClosed: !first });
    }
    if (known.from - at > WITHIN) known.isClosed = true;
    if (known.isClosed) return;
    add(known, event, known.to);
    known.from = at;
  }
}

function add(burst, event, to) {
  burst.count += 1;
  burst.to = to;
  if (burst.events.length < BURST) burst.events.push(event);
  // The holdings of one member may be evicted in several batches.
  if (event.type === 'evicted') burst.tenures.add(event.tenure);
  return burst;
}

/** The lines that the `wanted` of some events make, the newest first: `{event}`, or `{burst}` with `isMore` when events
    before `since` are unknown and may belong to it. Bursts in `opened` are listed event by event. */
export function lines(events, folded, opened, since, wanted = () => true) {
  const running = new Map();
  for (const [key, burst] of folded.byKey) if (burst.count) running.set(key, { ...burst, tenures: new Set(burst.tenures), events: [...burst.events], own: [], index: -1 });
  const bursts = [...folded.closed.map((burst) => ({ ...burst, own: [], index: -1 })), ...running.values()].sort((a, b) => a.to - b.to);
  events.forEach((event, index) => {
    if (!wanted(event)) return;
    const at = Date.parse(event.at);
    const key = keyOf(event);
    let burst = running.get(key);
    if (!burst || !(at - burst.to <= WITHIN)) bursts.push(burst = { ...begun(at), own: [] });
    running.set(key, add(burst, event, at));
    burst.own.push([event, index]);
    burst.last = event;
    burst.index = index;
  });
  const told = [];
  for (const burst of bursts) {
    const { own, events: some, count, index } = burst;
    if (!wanted(some[0])) continue;
    burst.isMore = since !== null && burst.from - since <= WITHIN;
    burst.last ??= some.at(-1);
    if (count >= BURST && !opened.has(some[0].id)) told.push({ burst, index });
    else if (own.length) for (const [event, at] of own) told.push({ event, index: at });
    else for (const event of some) told.push({ event, index });
  }
  return told.reverse().sort((a, b) => b.index - a.index);
}
