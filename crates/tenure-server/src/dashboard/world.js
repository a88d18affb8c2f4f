// What the page knows of the daemon as a whole, kept fresh by one poll; how old that is; and the beat by which everything
// is drawn. Nothing is shown as true now that the store has not said within the last moments: then it is shown as of when
// it was last said.

import { cost, find, get, isLocked, learn, now, path, proof, storeTime } from './api.js';
import { time } from './dom.js';

const EVERY = 2000;
/** A daemon with very many groups is asked less often: each answer tells of all. Its store is asked for the time meanwhile. */
const EVERY_WITH_MANY = 6000;
/** How long what was said is taken for how it is now: a poll, and the time for its answer. */
const LIVE = 3500;
/** The same for a group: the daemon looks at each every 5 s. */
const LIVE_GROUP = 12_000;
const PATIENCE = 4000;

export const world = {
  /** The last answer of `/v1/status`. */
  status: null,
  /** When it was asked for, by the browser's clock. */
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
/** When the store last answered, as far as the page knows. */
let heard = 0;

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

/** Whether the daemon answers, and its store: `asking` before the first answer, then `live`, `store` or `daemon`, whichever
    is away. */
export function link() {
  const at = Date.now();
  if (!world.status) return world.error ? 'daemon' : 'asking';
  if (at - Math.max(world.at, proof.store) > LIVE) return 'daemon';
  if (!world.status.store.up && proof.store <= world.at) return 'store';
  return at - heardAt() > LIVE ? 'store' : 'live';
}

export function isLive() {
  return link() === 'live';
}

function heardAt() {
  return Math.max(heard, proof.store);
}

/** The moment that what is shown is true for, by the browser's clock: now, or when the store last answered. */
export function moment() {
  return isLive() ? Date.now() : heardAt();
}

/** When a group was last read, by the browser's clock. */
function readAt(name) {
  const listed = listedGroup(name);
  return Math.max(proof.said.get(name) ?? 0, listed ? world.at - listed.age_ms : 0);
}

/** Whether what is known of a group is how it is now. */
export function isKnown(name) {
  const read = readAt(name);
  return isLive() && Date.now() - read < LIVE_GROUP && (proof.refused.get(name) ?? 0) <= read;
}

/** The moment that what is shown of a group is true for. */
export function momentOf(name) {
  return isKnown(name) ? Date.now() : Math.min(heardAt(), readAt(name));
}

/** The same by the store's clock. */
export function storeMomentOf(name) {
  return storeTime(momentOf(name));
}

/** The time of day that what is shown of a group is true for. */
export function asOf(name) {
  const at = momentOf(name);
  return at > 0 ? time(storeTime(at)) : '';
}

/** Why the store cannot be asked about a group now, or what else was in the way; `null` when nothing is. */
export function trouble(name, error = null) {
  const isRefusal = error?.status && error.code !== 'store_unavailable';
  if (isRefusal || isKnown(name) || !world.status) return error;
  const who = { daemon: 'the daemon does not answer', store: 'the store does not answer' }[link()];
  // A group that was not read yet is no trouble.
  if (!who && !((proof.refused.get(name) ?? 0) > readAt(name))) return error;
  return new Error('Cannot ask now: ' + (who ?? 'the store does not answer for this group') + '. Asked again every 3 s.');
}

function listedGroup(name) {
  return world.status?.groups.find((group) => group.group === name);
}

/** The state of a group: the freshest there is. */
export function groupState(name) {
  const single = world.groups.get(name);
  const listed = listedGroup(name);
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

/** Whether the caller may act for others: expel, settle. A daemon that asks for no token lets everyone. */
export function mayOperate() {
  const { access } = world.status ?? {};
  return access?.scopes ? access.scopes.includes('operate') : Boolean(access) && access.tokens === undefined;
}

/** Asks now. */
export function poll() {
  clearTimeout(timer);
  asking ??= look().finally(() => {
    asking = null;
    timer = setTimeout(poll, EVERY);
  });
  return asking;
}

async function look() {
  if (document.hidden || (isLocked() && world.status)) return;
  const isMany = (world.status?.groups.length ?? 0) > 100;
  try {
    if (isMany && isLive() && Date.now() - world.at < EVERY_WITH_MANY - EVERY / 2) await get('v1/now', { patience: PATIENCE });
    else await lookAtAll();
    world.error = null;
  } catch (error) {
    world.error = error;
  }
  changed();
}

async function lookAtAll() {
  const sent = Date.now();
  const status = await get('v1/status', { patience: PATIENCE });
  world.status = status;
  world.at = sent;
  // The age goes on by the daemon's clock, so that the sum is the store's time now.
  const newest = status.groups.reduce((last, group) => (!last || group.age_ms < last.age_ms ? group : last), null);
  heard = Math.max(heard, status.store.up ? sent : newest ? sent - newest.age_ms : 0);
  if (newest && Math.abs(Date.parse(newest.as_of) + newest.age_ms - now()) > 2000) learn(newest.as_of, newest.age_ms);
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
  let was = link();
  setInterval(() => {
    if (document.hidden) return;
    tick();
    if (was !== link()) changed();
    was = link();
  }, 1000);
  document.addEventListener('visibilitychange', () => document.hidden || poll());
  for (const name of ['tenure:changed', 'tenure:away']) document.addEventListener(name, () => { changed(); poll(); });
  addEventListener('online', poll);
  get('v1/now').catch(() => {});
  return poll();
}
