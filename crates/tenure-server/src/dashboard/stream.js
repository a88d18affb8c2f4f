// Follows the events of a group: server-sent events over fetch, so that the token is sent in a header. Resumes after the last
// event when the connection breaks.

import { ask, cost, Refused } from './api.js';

const FIRST_WAIT = 500;
const LONGEST_WAIT = 15_000;
/** A stream without data for this long is dead: the daemon sends a keep-alive every 15 s. */
const SILENCE = 40_000;
/** The longest accepted line, far above an event. */
const LONGEST = 4 << 20;

/** Parses an event stream (WHATWG HTML, 9.2.6). */
export class Parser {
  constructor() {
    this.rest = '';
    this.id = null;
    this.begin();
  }

  begin() {
    this.kind = '';
    this.data = null;
  }

  /** Adds a piece; returns the events that it completes. */
  feed(piece) {
    const lines = (this.rest + piece).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop();
    if (this.rest.length > LONGEST) throw new Error('a line without an end');
    const events = [];
    for (const line of lines) {
      if (line === '') {
        if (this.data !== null) events.push({ id: this.id, kind: this.kind, data: this.data });
        this.begin();
        continue;
      }
      const colon = line.indexOf(':');
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
      if (field === 'data') this.data = this.data === null ? value : this.data + '\n' + value;
      else if (field === 'event') this.kind = value;
      else if (field === 'id' && !value.includes('\0')) this.id = value;
    }
    return events;
  }
}

export class Stream {
  /** `heard` receives batches of events; `turned` the state: `live`, or `waiting` with the error. */
  constructor(path, after, heard, turned) {
    Object.assign(this, { path, last: String(after), heard, turned });
    this.stopping = new AbortController();
    this.hurried = () => this.hurry?.();
    addEventListener('online', this.hurried);
    this.run();
  }

  stop() {
    removeEventListener('online', this.hurried);
    this.stopping.abort();
    this.hurry?.();
  }

  async run() {
    let wait = FIRST_WAIT;
    while (!this.stopping.signal.aborted) {
      let after = 0;
      try {
        await this.follow(() => { wait = FIRST_WAIT; });
        this.turned('waiting', null);
      } catch (error) {
        if (this.stopping.signal.aborted) return;
        this.turned('waiting', error);
        // A permanent error is retried less often.
        if (error instanceof Refused) after = error.status < 500 ? LONGEST_WAIT : error.after;
      }
      await this.pause(Math.max(after, wait * (0.5 + Math.random())));
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
  }

  pause(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.hurry = () => { clearTimeout(timer); resolve(); };
    });
  }

  /** Reads one connection until it ends. */
  async follow(works) {
    const silence = new AbortController();
    let alarm = setTimeout(() => silence.abort(new Error('the stream fell silent')), SILENCE);
    const signal = AbortSignal.any([this.stopping.signal, silence.signal]);
    try {
      const headers = { accept: 'text/event-stream', 'last-event-id': this.last };
      const response = await ask(this.path, { headers, signal, patience: 0 });
      const reader = response.body.getReader();
      const text = new TextDecoder();
      const parser = new Parser();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(alarm);
        alarm = setTimeout(() => silence.abort(new Error('the stream fell silent')), SILENCE);
        cost.streamed += value.byteLength;
        works();
        this.turned('live', null);
        this.take(parser, parser.feed(text.decode(value, { stream: true })));
      }
    } finally {
      clearTimeout(alarm);
    }
  }

  take(parser, pieces) {
    const events = [];
    for (const { kind, data } of pieces) {
      try {
        const event = JSON.parse(data);
        events.push(kind === 'gap' ? gap(event) : event);
      } catch {
        // An unknown event is skipped.
      }
    }
    if (parser.id) this.last = parser.id;
    if (events.length) this.heard(events);
  }
}

/** A stretch that is missing, as an event among the others. Its number is that of the last that is missing. How many there
    were nobody can tell: a store that lost its data counts from another number. */
function gap({ resumes_after: end }) {
  return { id: end, at: null, type: 'gap' };
}
