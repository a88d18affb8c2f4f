// The page: routing, keyboard, theme and timer.

import { begin as beginAsking, cost, isLocked, storeTime } from './api.js';
import { Banners } from './banners.js';
import { attr, say, time } from './dom.js';
import { GroupPage } from './group.js';
import { Overview } from './overview.js';
import { Search } from './search.js';
import { Why } from './why.js';
import { begin, changed, isLive, link, moment, rosterOf, world } from './world.js';

const KEPT = 'tenure.theme';
const THEMES = ['system', 'light', 'dark'];
const SIGNS = { system: '◐', light: '○', dark: '●' };
/** The interval of fetching visible rows again, in seconds: beats create no events. */
const FRESHEN = 3;

const main = document.getElementById('main');
const banners = new Banners();
const search = new Search(() => ({ group: view?.group ?? null, names: view?.names?.() ?? [] }));
let view = null;
let seconds = 0;

/** The view of an address. */
function route() {
  const parts = location.hash.replace(/^#\/?/, '').split('/').filter(Boolean).map(decode);
  const [kind, name, third] = parts;
  if (kind === 'g' && name && rosterOf(name)) return [`r/${rosterOf(name)}`, () => new GroupPage(name, third, rosterOf(name)), third];
  if (kind === 'g' && name) return [`g/${name}`, () => new GroupPage(name, third), third];
  if (kind === 'r' && name) return [`r/${name}`, () => new GroupPage('roster.' + name, third, name), third];
  if (kind === 'why' && name && third) return [`why/${name}/${third}`, () => new Why(name, third)];
  return ['', () => new Overview()];
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function navigate() {
  const [key, make, tab] = route();
  if (view && view.key === key) {
    view.go?.(tab);
  } else {
    const before = view;
    before?.detach();
    view = make();
    view.key = key;
    main.replaceChildren(view.root);
    scrollTo(0, 0);
    view.attach();
    // A new part scrolls to its start; a new page to its top, where the skip link is.
    if (before && document.activeElement === document.body) main.focus({ preventScroll: true });
  }
  const title = view.title();
  document.title = title ? title + ' · Tenure' : 'Tenure';
  changed();
}

function paint() {
  view?.paint();
  view?.root.classList.toggle('frozen', !(view.isNow?.() ?? isLive()));
  banners.paint();
  paintLink();
}

/** Whether the content is live; otherwise its age. */
function paintLink() {
  const element = document.getElementById('link');
  const since = moment() ? ' since ' + time(storeTime(moment())) : '';
  const [text, tone] = isLocked() ? ['locked', 'uncertain'] : world.error?.status === 403 ? ['no access', 'uncertain'] : {
    asking: ['asking', 'plain'], daemon: ['no answer' + since, 'braked'], store: ['store away' + since, 'braked'],
    live: world.stream === 'waiting' ? ['reconnecting', 'uncertain'] : ['live', 'alive'],
  }[link()];
  say(element, text);
  attr(element, 'data-tone', tone);
  document.body.classList.toggle('frozen', !isLive());
}

function tick() {
  seconds += 1;
  view?.tick();
  banners.tick();
  if (!isLive()) changed();
  // A daemon that does not answer gets only one request at a time.
  if (seconds % FRESHEN === 0 && !isLocked() && link() !== 'daemon') view?.freshen?.();
}

/** The theme: the system's, unless one was selected. */
function theme(next) {
  const root = document.documentElement;
  const now = next ?? read();
  attr(root, 'data-theme', now === 'system' ? null : now);
  const button = document.getElementById('theme');
  say(button, SIGNS[now]);
  const label = 'Theme: ' + (now === 'system' ? 'as the system' : now) + '. Change it';
  attr(button, 'aria-label', label);
  attr(button, 'title', label);
  try {
    if (next) localStorage.setItem(KEPT, next);
  } catch {
    // Storage is disabled in this browser.
  }
  theme.now = now;
}

function read() {
  try {
    const kept = localStorage.getItem(KEPT);
    return THEMES.includes(kept) ? kept : 'system';
  } catch {
    return 'system';
  }
}

const another = () => theme(THEMES[(THEMES.indexOf(theme.now) + 1) % THEMES.length]);

function press(event) {
  const isTyping = event.target.closest?.('input, textarea, dialog');
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === '/') search.focus();
  else if (event.key === 't') another();
  else if (event.key === '?') document.getElementById('keys').showModal();
  else if (event.key === 'Escape' && location.hash.length > 2) {
    if (view instanceof Why) location.hash = view.home();
    else location.hash = '#/';
  } else return;
  event.preventDefault();
}

beginAsking();
theme();
document.getElementById('theme').addEventListener('click', another);
document.querySelector('.skip').addEventListener('click', (event) => { event.preventDefault(); main.focus(); });
addEventListener('keydown', press);
addEventListener('hashchange', navigate);
// For measurements and tests.
globalThis.tenure = { cost, world, get view() { return view; } };
// Wait briefly for the status: it says whether a group is the mirror of a roster, which is shown differently.
Promise.race([begin(paint, tick), new Promise((resolve) => setTimeout(resolve, 700))]).finally(navigate);
