// Requests to the daemon: addresses relative to the page, the token only in a header, a time limit, and
// the store's clock learned from every answer.

import { say } from './dom.js';

const KEPT = 'tenure.token';
const PATIENCE = 8000;

let token = sessionStorage.getItem(KEPT);
let locked = null;
let offset = 0;
let isLearned = false;

/** What answers have proved: when the newest request was sent that the store answered, and the same for each group, with
    the newest that it could not answer for it. By the browser's clock. */
export const proof = { store: 0, said: new Map(), refused: new Map() };
const GROUP = /^v1\/groups\/([^/?]+)/;

/** The number of requests, for measurements. */
export const cost = { requests: 0, streamed: 0, painted: 0, paints: 0 };

/** An error answer of the daemon. */
export class Refused extends Error {
  constructor(status, problem, after) {
    super(problem.detail || problem.title || 'The daemon answered ' + status);
    this.status = status;
    this.code = problem.code ?? '';
    this.outcome = problem.outcome ?? '';
    this.title = problem.title ?? '';
    this.after = after;
  }
}

/** The estimated time of the store, in ms. */
export function now() {
  return Date.now() + offset;
}

/** Learns the store's time from an answer, which showed it at some instant between the request and now. The estimate moves only
    as far as the answer contradicts it: a slow answer does not move it. */
export function learn(text, sent, age = 0) {
  const at = Date.parse(text ?? '') + age;
  if (Number.isNaN(at)) return;
  offset = Math.min(Math.max(offset, at - Date.now()), at - sent);
  isLearned = true;
}

/** Converts a time of the browser's clock to the store's. */
export function storeTime(ms) {
  return ms + offset;
}

/** Whether the answer comes from the store itself: reads of a group and of the clock do. */
function isOfStore(path) {
  return GROUP.test(path) || path === 'v1/now';
}

/** Records what an answer proves about the store. */
function note(path, sent, outcome) {
  const name = GROUP.exec(path)?.[1];
  const group = name && decodeURIComponent(name);
  if (outcome === 'said' && isOfStore(path)) proof.store = Math.max(proof.store, sent);
  if (!group) return;
  if (outcome === 'said') proof.said.set(group, Math.max(proof.said.get(group) ?? 0, sent));
  else proof.refused.set(group, sent);
  for (const map of [proof.said, proof.refused]) if (map.size > 100) map.delete(map.keys().next().value);
}

/** A path of the daemon with its names escaped: path`v1/groups/${group}`. */
export function path(strings, ...names) {
  return strings.reduce((all, part, at) => all + encodeURIComponent(names[at - 1]) + part);
}

/** Sends a request; returns the response if it is a success. `again` marks the one retry with a new token. */
export async function ask(path, { headers = {}, signal, patience = PATIENCE, method, body } = {}, again = true) {
  if (locked) await locked.opened(signal);
  cost.requests += 1;
  const used = token;
  const sent = Date.now();
  const limit = patience ? [AbortSignal.timeout(patience)] : [];
  const response = await fetch(new URL(path, document.baseURI), {
    method, body, headers: used ? { ...headers, authorization: 'Bearer ' + used } : headers,
    signal: AbortSignal.any([...limit, ...(signal ? [signal] : [])]),
    cache: 'no-store',
    credentials: 'omit',
    redirect: 'error',
  });
  // While the store is away, the daemon continues its own estimate for a while. It must not move what the page shows.
  if (!isLearned || (response.ok && isOfStore(path))) learn(response.headers.get('tenure-store-time'), sent);
  if (response.ok) {
    note(path, sent, 'said');
    return response;
  }
  const problem = await response.json().catch(() => ({}));
  const refused = new Refused(response.status, problem, Number(response.headers.get('retry-after')) * 1000 || 0);
  if (response.status === 401 && again) {
    if (token === used) lock(refused, Boolean(used));
    return ask(path, { headers, signal, patience, method, body }, again);
  }
  if (refused.code === 'store_unavailable') {
    note(path, sent, 'refused');
    document.dispatchEvent(new Event('tenure:away'));
  }
  throw refused;
}

/** Requests JSON. */
export async function get(path, options) {
  return (await ask(path, options)).json();
}

/** Requests JSON; `null` for a 404. */
export async function find(path, options) {
  try {
    return await get(path, options);
  } catch (error) {
    if (error instanceof Refused && (error.status === 404 || error.status === 422)) return null;
    throw error;
  }
}

/** Whether requests wait for a token. */
export function isLocked() {
  return locked !== null;
}

/** Requests wait here until a token is entered. It is kept for this tab only, and never in an address. */
function lock(refused, wasUsed) {
  if (locked) return;
  token = null;
  sessionStorage.removeItem(KEPT);
  let open;
  const opening = new Promise((resolve) => { open = resolve; });
  locked = {
    async opened(signal) {
      signal?.throwIfAborted();
      let leave;
      const left = new Promise((_, reject) => { leave = () => reject(signal.reason); });
      signal?.addEventListener('abort', leave);
      await Promise.race([opening, left]).finally(() => signal?.removeEventListener('abort', leave));
    },
    open(shown) {
      token = shown;
      sessionStorage.setItem(KEPT, shown);
      locked = null;
      open();
    },
  };
  say(document.getElementById('token-why'), wasUsed ? 'The one you gave was refused: ' + refused.message : refused.message);
  unlock();
}

/** Shows the token dialog, again if it was closed. */
export function unlock() {
  const dialog = document.getElementById('token');
  if (locked && !dialog.open) dialog.showModal();
}

export function begin() {
  const dialog = document.getElementById('token');
  const field = document.getElementById('token-field');
  dialog.addEventListener('close', () => {
    // The event fires after the dialog has closed: it may be open again, with text in its field.
    if (dialog.open) return;
    const shown = field.value.trim();
    field.value = '';
    if (dialog.returnValue === 'use' && shown && locked) locked.open(shown);
    dialog.returnValue = '';
    document.dispatchEvent(new Event('tenure:changed'));
  });
}
