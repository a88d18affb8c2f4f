// The search: every id leads to its why page.

import { at, attr, h, keyed, say } from './dom.js';
import { subject } from './story.js';
import { matches } from './why.js';
import { groups, isLive, world } from './world.js';

const PAUSE = 250;
/** The most groups that are searched for a name that the current one does not have. */
const MOST_GROUPS = 8;
const MOST_FOUND = 12;

export class Search {
  /** `context` has the current group, if any, and the names on the page. */
  constructor(context) {
    this.context = context;
    this.field = document.getElementById('search');
    this.box = document.getElementById('found');
    this.found = [];
    this.active = -1;
    this.field.form.addEventListener('submit', (event) => { event.preventDefault(); this.enter(); });
    this.field.addEventListener('input', () => this.type());
    this.field.addEventListener('keydown', (event) => this.press(event));
    this.field.addEventListener('blur', () => setTimeout(() => document.activeElement === this.field || this.close(), 150));
    this.field.addEventListener('focus', () => { if (this.field.value) this.type(); });
  }

  focus() {
    this.field.focus();
    this.field.select();
  }

  close() {
    this.stop?.abort();
    clearTimeout(this.timer);
    this.put([]);
  }

  /** Shows matches on the page immediately, and matches of the daemon soon after. */
  type() {
    clearTimeout(this.timer);
    this.stop?.abort();
    const text = this.field.value.trim();
    if (!text) {
      this.put([]);
      return;
    }
    const { group, names } = this.context();
    const near = this.near = names.filter(({ id }) => id.includes(text)).slice(0, MOST_FOUND).map((match) => ({ group, ...match }));
    this.put(near);
    this.timer = setTimeout(() => this.ask(text).then((found) => {
      if (found?.[0]?.note && near.length) return;
      if (found) this.put((found[0]?.isGuess ? merge(near, found) : merge(found, near)).slice(0, MOST_FOUND));
    }), PAUSE);
  }

  /** Exact matches of the daemon; `null` if the text has changed since. */
  async ask(text) {
    this.stop?.abort();
    const stop = this.stop = new AbortController();
    const { group } = this.context();
    try {
      const direct = subject(text);
      const own = group ? [group] : [];
      const others = groups().map((one) => one.group).filter((name) => name !== group).slice(0, MOST_GROUPS);
      if (direct.kind !== 'member') {
        return [...own, ...others].slice(0, MOST_FOUND).map((name) => ({ group: name, kind: direct.kind, id: text }));
      }
      let found = (await Promise.all(own.map((name) => matches(name, text, stop.signal)))).flat();
      if (!found.length) found = (await Promise.all(others.map((name) => matches(name, text, stop.signal)))).flat();
      if (stop.signal.aborted) return null;
      if (found.length) return found;
      // It may have existed before: search the events of the group, which must be selected first if there are several.
      const [only, ...more] = own.length ? own : others;
      if (!more.length) return only ? [{ group: only, kind: 'not found; search the events', id: text, isGuess: true }] : [];
      return [{ note: 'Not found in ' + (groups().length > MOST_GROUPS ? 'the first ' + MOST_GROUPS : more.length + 1) + ' groups. Open a group to search its events.', id: text }];
    } catch (error) {
      return stop.signal.aborted ? null : [{ note: isLive() ? error.message : 'Cannot ask now: ' + (world.status?.store.up ? 'the daemon' : 'the store') + ' does not answer.', id: text }];
    }
  }

  async enter() {
    const text = this.field.value.trim();
    if (!text) return;
    const chosen = this.found[this.active];
    if (chosen) {
      this.go(chosen);
      return;
    }
    clearTimeout(this.timer);
    const found = await this.ask(text);
    if (found?.[0]?.note && !this.near?.length) this.put(found);
    else if (found?.length) this.go(found[0].note ? this.near[0] : found[0].isGuess && this.near?.length ? this.near[0] : found[0]);
    else if (found && world.status) this.put([]);
  }

  go(match) {
    if (match.note) return;
    location.hash = match.kind === 'group' ? at('g', match.id) : at('why', match.group, match.id);
    this.field.value = '';
    this.field.blur();
    this.close();
  }

  press(event) {
    if (event.key === 'Escape') {
      this.field.value = '';
      this.close();
      this.field.blur();
    } else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      const step = event.key === 'ArrowDown' ? 1 : -1;
      this.active = this.found.length ? (this.active + step + this.found.length) % this.found.length : -1;
      this.mark();
      event.preventDefault();
    }
  }

  put(found) {
    this.found = found;
    this.active = -1;
    this.box.hidden = found.length === 0;
    attr(this.field, 'aria-expanded', found.length > 0 ? 'true' : 'false');
    keyed(this.box, found.map((match, index) => ({ ...match, index })), (match) => match.group + ' ' + match.kind + ' ' + match.id, () => h(
      'div', { role: 'option', onmousedown: (event) => event.preventDefault(), onclick: (event) => this.go(event.currentTarget.match) },
      h('b', {}), h('span', { class: 'sub' }),
    ), (element, match) => {
      element.match = match;
      element.id = 'found-' + match.index;
      say(element.firstChild, match.id);
      say(element.lastChild, match.note ?? (match.kind === 'group' ? 'group' : match.kind + ' in ' + match.group));
      attr(element, 'aria-disabled', Boolean(match.note) && 'true');
    });
    this.mark();
  }

  mark() {
    [...this.box.children].forEach((child, index) => attr(child, 'aria-selected', index === this.active ? 'true' : 'false'));
    attr(this.field, 'aria-activedescendant', this.active >= 0 ? 'found-' + this.active : null);
  }
}

function merge(first, second) {
  const key = (match) => match.group + ' ' + match.id;
  const known = new Set(first.map(key));
  return first.concat(second.filter((match) => !known.has(key(match))));
}
