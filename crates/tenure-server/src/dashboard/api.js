// Asking the daemon. One way for everything: addresses relative to the page, a token only in a header, a time limit, and
// the store's clock learnt from every answer.

import { say } from './dom.js';

const KEPT = 'tenure.token';
const PATIENCE = 8000;

let token = sessionStorage.getItem(KEPT);
let locked = null;
let offset = 0;

/** How much was asked for, for who measures the page. */
export const cost = { requests: 0, streamed: 0, painted: 0, paints: 0 };

/** What the daemon refused, in its words. */
export class Refused extends Error {
  constructor(status, problem, after) {
    super(problem.detail || problem.title || 'The daemon answered ' + status);
    this.status = status;
    this.code = problem.code ?? '';
    this.title = problem.title ?? '';
    this.after = after;
  }
}

/** The store's time now, as far as it is known, in ms. */
export function now() {
  return Date.now() + offset;
}

export function learn(text) {
  const at = Date.parse(text ?? '');
  if (!Number.isNaN(at)) offset = at - Date.now();
}

/** A path of the daemon with its names escaped: path`v1/groups/${group}`. */
export function path(strings, ...names) {
  return strings.reduce((all, part, at) => all + encodeURIComponent(names[at - 1]) + part);
}

/** Asks, and answers the response when it is a good one. `again` is for the one try after a token was shown. */
export async function ask(path, { headers = {}, signal, patience = PATIENCE } = {}, again = true) {
  if (locked) await locked.opened(signal);
  cost.requests += 1;
  const used = token;
  const limit = patience ? [AbortSignal.timeout(patience)] : [];
  const response = await fetch(new URL(path, document.baseURI), {
    headers: used ? { ...headers, authorization: 'Bearer ' + used } : headers,
    signal: AbortSignal.any([...limit, ...(signal ? [signal] : [])]),
    cache: 'no-store',
    credentials: 'omit',
    redirect: 'error',
  });
  learn(response.headers.get('tenure-store-time'));
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  const refused = new Refused(response.status, problem, Number(response.headers.get('retry-after')) * 1000 || 0);
  if (response.status === 401 && again) {
    if (token === used) lock(refused, Boolean(used));
    return ask(path, { headers, signal, patience }, again);
  }
  throw refused;
}

/** Asks for JSON. */
export async function get(path, options) {
  return (await ask(path, options)).json();
}

/** Asks for JSON; `null` where there is none. */
export async function find(path, options) {
  try {
    return await get(path, options);
  } catch (error) {
    if (error instanceof Refused && (error.status === 404 || error.status === 422)) return null;
    throw error;
  }
}

/** Whether everything waits for a token. */
export function isLocked() {
  return locked !== null;
}

/** Everybody who asks waits until a token was shown. It is kept for this tab alone, and in no address. */
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

/** Asks for the token, once more if the question was closed. */
export function unlock() {
  const dialog = document.getElementById('token');
  if (locked && !dialog.open) dialog.showModal();
}

export function begin() {
  const dialog = document.getElementById('token');
  const field = document.getElementById('token-field');
  dialog.addEventListener('close', () => {
    // The event comes after the dialog has closed: it may be open again, with text in its field.
    if (dialog.open) return;
    const shown = field.value.trim();
    field.value = '';
    if (dialog.returnValue === 'use' && shown && locked) locked.open(shown);
    dialog.returnValue = '';
    document.dispatchEvent(new Event('tenure:changed'));
  });
}
