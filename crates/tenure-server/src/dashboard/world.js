// The state of the daemon, refreshed by one poll, with its age; and the drawing loop. Content that the store has not confirmed
// within seconds is shown with the time of its last confirmation, never as current.

import { cost, find, get, isLocked, learn, now, path, proof, storeTime } from './api.js';
import { time } from './dom.js';

const EVERY = 2000;
/** The interval for a daemon with many groups, whose status is large. In between, the store's time is read. */
const EVERY_WITH_MANY = 6000;
/** How long an answer counts as current: one poll plus its time limit. */
const LIVE = 3500;
/** The same for a group, which the daemon reads every 5 s. */
const LIVE_GROUP = 12_000;
const PATIENCE = 4000;

export const world = {
  /** The last answer of `/v1/status`. */
  status: null,
  /** When it was requested, by the browser's clock. */
  at: 0,
  /** The error of the last poll. */
  error: null,
  /** Newer states of single groups, by name. */
  groups: new Map(),
  /** The stream of the current group: `live`, `waiting`, or none. */
  stream: null,
  streamError: null,
  /** Gaps in the events that this page has seen, newest last. */
  gaps: [],
};

let draw = () => {};
let frame = 0;
let timer = 0;
let asking = null;
/** When the store last answered. */
let heard = 0;

/** Schedules one drawing. */
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

/** The time of the content, by the browser's clock: now, or the last answer of the store. */
export function moment() {
  return isLive() ? Date.now() : heardAt();
}

/** When a group was last read, by the browser's clock. */
function readAt(name) {
  const listed = listedGroup(name);
  return Math.max(proof.said.get(name) ?? 0, listed?.read ?? 0);
}

/** Whether the state of a group is current. */
export function isKnown(name) {
  const read = readAt(name);
  return isLive() && Date.now() - read < LIVE_GROUP && (proof.refused.get(name) ?? 0) <= read;
}

/** The time of a group's state. */
export function momentOf(name) {
  return isKnown(name) ? Date.now() : Math.min(heardAt(), readAt(name));
}

/** The same, by the store's clock. */
export function storeMomentOf(name) {
  return storeTime(momentOf(name));
}

/** The time of day of a group's state. */
export function asOf(name) {
  const at = momentOf(name);
  return at > 0 ? time(storeTime(at)) : '';
}

/** Why the store cannot be asked about a group now, or what else was in the way; `null` when nothing is. */
export function trouble(name, error = null) {
  const isRefusal = error?.status && error.code !== 'store_unavailable';
  if (isRefusal || isKnown(name) || !world.status) return error;
  const who = { daemon: 'the daemon does not answer', store: 'the store does not answer' }[link()];
  // A group that was not read yet is not an error.
  if (!who && !((proof.refused.get(name) ?? 0) > readAt(name))) return error;
  return new Error('Cannot ask now: ' + (who ?? 'the store does not answer for this group') + '. Asked again every 3 s.');
}

function listedGroup(name) {
  return world.status?.groups.find((group) => group.group === name);
}

/** The newest state of a group. */
export function groupState(name) {
  const single = world.groups.get(name);
  const listed = listedGroup(name);
  if (!single || !listed) return single ?? listed ?? null;
  return single.as_of > listed.as_of ? { ...listed, ...single } : listed;
}

export function groups() {
  return (world.status?.groups ?? []).map((group) => groupState(group.group));
}

/** The roster that a group mirrors, if any. */
export function rosterOf(group) {
  const name = group.startsWith('roster.') ? group.slice('roster.'.length) : null;
  return name && rosters().some((roster) => roster.roster === name) ? name : null;
}

export function rosters() {
  return world.status?.rosters?.rosters ?? [];
}

/** Whether the caller may expel and settle. Without tokens, every caller may. */
export function mayOperate() {
  const { access } = world.status ?? {};
  return access?.scopes ? access.scopes.includes('operate') : Boolean(access) && access.tokens === undefined;
}

/** Polls now. */
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
  const before = new Map(world.status?.groups.map((group) => [group.group, group]));
  for (const group of status.groups) {
    // The same reading keeps its time, whatever the delay of this answer.
    const [known, read] = [before.get(group.group), sent - group.age_ms];
    group.read = known?.as_of === group.as_of && read - known.read < EVERY ? known.read : read;
  }
  world.status = status;
  world.at = sent;
  // Time plus age is the store's current time, since the age is measured by the daemon.
  const newest = status.groups.reduce((last, group) => (!last || group.age_ms < last.age_ms ? group : last), null);
  heard = Math.max(heard, status.store.up ? sent : newest?.read ?? 0);
  if (newest && Math.abs(Date.parse(newest.as_of) + newest.age_ms - now()) > 2000) learn(newest.as_of, sent, newest.age_ms);
}

/** Reads one group from the store. */
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
