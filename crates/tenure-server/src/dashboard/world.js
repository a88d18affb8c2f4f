// What the page knows of the daemon as a whole, kept fresh by one poll; and the beat by which everything is drawn.

import { cost, find, get, isLocked, learn, now, path } from './api.js';

const EVERY = 2000;
/** A daemon with very many groups is asked less often: each answer tells of all. */
const EVERY_WITH_MANY = 6000;

export const world = {
  /** The last answer of `/v1/status`. */
  status: null,
  /** When it came, by the browser's clock. */
  at: 0,
  /** Why there is no newer one. */
  error: null,
  /** Fresher states of single groups, by name. */
  groups: new Map(),
  /** The stream of the group that is shown: `live`, `waiting`, or nothing. */
  stream: null,
  streamError: null,
  /** Stretches of events that this page has missed, the newest last. */
  gaps: [],
};

let draw = () => {};
let frame = 0;
let timer = 0;
let asking = null;

/** Draws soon, once, however often it is asked for. */
export function changed() {
  if (frame) return;
  frame = requestAnimationFrame(() => {
    frame = 0;
    const began = performance.now();
    draw();
    cost.painted += performance.now() - began;
    cost.paints += 1;
  });
}

/** The state of a group: the freshest there is. */
export function groupState(name) {
  const single = world.groups.get(name);
  const listed = world.status?.groups.find((group) => group.group === name);
  if (!single || !listed) return single ?? listed ?? null;
  return single.as_of > listed.as_of ? { ...listed, ...single } : listed;
}

export function groups() {
  return (world.status?.groups ?? []).map((group) => groupState(group.group));
}

/** The roster a group is the hot copy of, if it is one. */
export function rosterOf(group) {
  const name = group.startsWith('roster.') ? group.slice('roster.'.length) : null;
  return name && rosters().some((roster) => roster.roster === name) ? name : null;
}

export function rosters() {
  return world.status?.rosters?.rosters ?? [];
}

/** How long what is shown was not confirmed, in ms. */
export function staleness() {
  return world.at ? Date.now() - world.at : 0;
}

/** Whether what is shown is too old to say of anybody that it is gone. */
export function isStale() {
  return world.error !== null && staleness() > 5000;
}

/** Asks now. */
export function poll() {
  clearTimeout(timer);
  asking ??= look().finally(() => {
    asking = null;
    const groups = world.status?.groups.length ?? 0;
    timer = setTimeout(poll, groups > 100 ? EVERY_WITH_MANY : EVERY);
  });
  return asking;
}

async function look() {
  if (document.hidden || (isLocked() && world.status)) return;
  try {
    world.status = await get('v1/status');
    world.at = Date.now();
    world.error = null;
    const newest = world.status.groups.reduce((last, group) => (group.as_of > last ? group.as_of : last), '');
    if (Math.abs(Date.parse(newest) - now()) > 10_000) learn(newest);
  } catch (error) {
    world.error = error;
  }
  changed();
}

/** Asks for one group alone, which is always as of now. */
export async function lookAt(group, signal) {
  const state = await find(path`v1/groups/${group}`, { signal });
  if (state) world.groups.set(group, state);
  if (world.groups.size > 50) world.groups.delete(world.groups.keys().next().value);
  changed();
  return state;
}

/** Begins: `paint` draws, `tick` is called every second for what counts seconds. */
export function begin(paint, tick) {
  draw = paint;
  setInterval(() => {
    if (!document.hidden) tick();
  }, 1000);
  document.addEventListener('visibilitychange', () => document.hidden || poll());
  document.addEventListener('tenure:changed', () => { changed(); poll(); });
  addEventListener('online', poll);
  get('v1/now').then((answer) => learn(answer.now), () => {});
  return poll();
}
