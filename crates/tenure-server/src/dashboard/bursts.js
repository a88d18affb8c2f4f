// Many events of one kind as one: ten thousand members that lapse at once are one line with their number, also where the
// events themselves are too many to keep.

/** Events of one kind belong together when none comes later than this after the one before, by the store's clock. */
const WITHIN = 2000;
/** As many of one kind at once are told in one line. */
const BURST = 4;
/** So many bursts are kept whose events are not. */
const KEPT = 200;

const keyOf = ({ type, reason }) => type + ' ' + (reason ?? '');
const begun = (at) => ({ count: 0, from: at, to: at, tenures: new Set(), events: [] });

/** The bursts that begin before the first event that is kept. Of their events some are kept, to tell which they were. */
export class Folded {
  constructor() {
    this.byKey = new Map();
    this.closed = [];
  }

  /** Takes the oldest event that is kept, which is kept no more. */
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

  /** Takes an event that is older than all that are known; `kept` are these. */
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
  // What one of them held may go in several batches.
  if (event.type === 'evicted') burst.tenures.add(event.tenure);
  return burst;
}

/** The lines that the `wanted` of some events make, the newest first: `{event}`, or `{burst}` with `isMore` when events
    before `since` are not known and may belong to it. Those in `opened` are told one by one. */
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
