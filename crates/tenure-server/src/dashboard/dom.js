// Elements, numbers and times. Strings become text nodes, never markup.

const SVG = 'http://www.w3.org/2000/svg';
const count = new Intl.NumberFormat('en');
const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const day = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric' });

/** The characters of names. */
export const NAME = /^[A-Za-z0-9._:-]{1,200}$/;

/** Creates an element. `on…` are listeners, `true` is an attribute without a value, `null` and `false` omit it. */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** The same for SVG. */
export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else attr(element, name, value);
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Sets an attribute if it differs; `null`, `undefined` and `false` remove it. */
export function attr(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else {
    const text = value === true ? '' : String(value);
    if (element.getAttribute(name) !== text) element.setAttribute(name, text);
  }
}

/** Sets the text of an element if it differs, to avoid layout. */
export function say(element, text) {
  const written = String(text ?? '');
  if (element.said !== written) {
    element.said = written;
    element.textContent = written;
  }
}

/** Shows or hides. */
export function show(element, visible) {
  if (element.hidden === Boolean(visible)) element.hidden = !visible;
}

/** Reconciles the children of `parent` with `items`, in order. Elements are reused by key. */
export function keyed(parent, items, key, make, update) {
  const old = parent.byKey ?? new Map();
  const now = new Map();
  let place = parent.firstChild;
  for (const item of items) {
    const name = key(item);
    if (now.has(name)) continue;
    let element = old.get(name);
    if (!element) element = make(item);
    now.set(name, element);
    if (element === place) place = place.nextSibling;
    else parent.insertBefore(element, place);
    update?.(element, item);
  }
  for (const [name, element] of old) if (!now.has(name)) element.remove();
  parent.byKey = now;
}

/** The address of a view of the page. */
export function at(...parts) {
  return '#/' + parts.map(encodeURIComponent).join('/');
}

export function number(value) {
  return count.format(value ?? 0);
}

/** `1 lease`, `2 leases`. */
export function many(value, one, more = one + 's') {
  return number(value) + ' ' + (value === 1 ? one : more);
}

const UNITS = [['d', 86_400], ['h', 3600], ['min', 60], ['s', 1]];

/** An elapsed or remaining time: whole seconds up to an hour, then minutes, then hours. */
export function span(ms) {
  return units(Math.max(0, Math.floor(ms / 1000))).slice(0, 2).join(' ');
}

/** A configured duration such as a ttl, in full. */
export function exact(ms) {
  const seconds = Math.floor(ms / 1000);
  const rest = (ms - seconds * 1000) / 1000;
  if (!rest) return units(seconds).join(' ');
  return [...(seconds >= 60 ? units(seconds - seconds % 60) : []), Number((seconds % 60 + rest).toFixed(3)) + ' s'].join(' ');
}

/** `1 min`, `50 s`: the units of so many seconds that are not 0, the largest first. */
function units(seconds) {
  const parts = [];
  let left = seconds;
  for (const [unit, long] of UNITS) {
    const count = Math.floor(left / long);
    left -= count * long;
    if (count) parts.push(count + ' ' + unit);
  }
  return parts.length ? parts : ['0 s'];
}

/** A time of day, with the date unless it is today. */
export function time(ms) {
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return '';
  const today = at.toDateString() === new Date().toDateString();
  return today ? clock.format(at) : day.format(at) + ', ' + clock.format(at);
}

/** A command to copy. */
export function command(text) {
  const button = h('button', { type: 'button', class: 'plain copy', 'aria-label': 'Copy the command' }, 'Copy');
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(text);
      say(button, 'Copied');
    } catch {
      say(button, 'Select it');
    }
    setTimeout(() => say(button, 'Copy'), 1500);
  });
  return h('div', { class: 'command' }, h('code', {}, text), button);
}

/** The placeholder of an empty view: what it will show, and how to get there. */
export function nothing(title, text, ...commands) {
  return h('div', { class: 'empty' }, h('p', { class: 'lead' }, title), text && h('p', {}, text), commands.map(command));
}

/** A field that filters while typing. */
export function field(label, placeholder, typed) {
  const input = h('input', { type: 'search', class: 'filter', 'aria-label': label, placeholder, spellcheck: 'false', autocapitalize: 'off', maxlength: 200 });
  input.addEventListener('input', () => typed(input.value.trim()));
  return input;
}

/** A row of options, one of which is selected. */
export class Choice {
  constructor(label, options, chosen, onchoose) {
    this.root = h('div', { class: 'chips', role: 'group', 'aria-label': label });
    this.onchoose = onchoose;
    this.set(options, chosen);
  }

  /** `options` are `[value, label, tone?]`. */
  set(options, chosen = this.chosen) {
    this.chosen = chosen;
    keyed(this.root, options, ([value]) => value, ([value]) => {
      const button = h('button', { type: 'button', class: 'chip', onclick: () => this.choose(value) });
      return button;
    }, (button, [value, label, tone]) => {
      say(button, label);
      attr(button, 'data-tone', tone);
      attr(button, 'aria-pressed', value === chosen ? 'true' : 'false');
    });
  }

  choose(value) {
    this.chosen = value;
    for (const [name, button] of this.root.byKey) attr(button, 'aria-pressed', name === value ? 'true' : 'false');
    this.onchoose(value);
  }
}

/** A bar in parts, `[label, count, tone]`; with a text alternative. */
export function parts(bar, list) {
  attr(bar, 'role', 'img');
  attr(bar, 'aria-label', list.map(([label, count]) => number(count) + ' ' + label).join(', '));
  keyed(bar, list.filter(([, count]) => count > 0), ([label]) => label, () => h('span', {}), (part, [, count, tone]) => {
    attr(part, 'data-tone', tone);
    part.style.flexGrow = String(count);
  });
}
