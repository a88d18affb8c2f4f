// Operator actions: expel a member, release a lease, settle a group. Each shows its effect with fresh numbers, asks for confirmation, and shows
// the result.

import { ask, find, now, path, Refused } from './api.js';
import { h, many, say, show, span, time } from './dom.js';
import { cause } from './story.js';
import { changed, lookAt, poll } from './world.js';

/** The time limit of an action, which it also carries as its not-after. */
const PATIENCE = 8000;

/** Confirms the expulsion of a member. */
export function expel(group, member) {
  return confirm('Expel ' + member + '?', 'Expel it', async () => {
    const known = await find(path`v1/groups/${group}/members/${member}`, { patience: PATIENCE });
    if (!known) return { lines: [member + ' has no current tenure in ' + group + ': there is nothing to end.'] };
    return {
      lines: consequences(known),
      order: async () => {
        const answer = await order('DELETE', path`v1/groups/${group}/tenures/${known.tenure}?expel=true`);
        const reason = answer.headers.get('tenure-end-reason');
        return reason === 'expelled' ? known.tenure + ' was expelled.' : known.tenure + ' had ended before: ' + (reason ?? 'the reason is not known') + '.';
      },
    };
  });
}

function consequences({ member, tenure, holdings, expires_in_ms: left }) {
  const { claims, leases, connections } = holdings;
  const removed = [claims && many(claims, 'claim'), connections && many(connections, 'connection')].filter(Boolean).join(' and ');
  return [
    'The tenure ' + tenure + ' ends now and never comes back.',
    removed && 'It holds ' + removed + ', which the janitor removes within about a second.',
    leases && 'It holds ' + many(leases, 'lease') + ', which can be acquired by others from ' + time(now() + left) + ' on (in ' + span(left)
      + '), its last deadline: until then its process may still trust them.',
    !removed && !leases && 'It holds nothing.',
    'A Tenure client learns of it with its next beat, stops, and does not rejoin. Any other program can join as ' + member + ' again.',
  ].filter(Boolean);
}

/** Confirms the release of a grant, which is named by its token: a successor is not affected. */
export function release(group, lease, token) {
  return confirm('Release ' + lease + '?', 'Release it', async () => {
    const known = await find(path`v1/groups/${group}/leases/${lease}`, { patience: PATIENCE });
    const grant = known?.holders.find((holder) => holder.token === token);
    if (!grant) return { lines: [lease + ' is not held with token ' + token + ' any more: there is nothing to release.'] };
    return {
      lines: [
        'The lease ' + lease + ' is taken from ' + grant.tenure + ' (token ' + token + ').',
        'It stays taken until its holder has noticed: a Tenure client does so at its next beat, and stops its work under the lease. The member stays.',
        'A program whose beats name no revision cannot notice. It keeps the lease until its tenure ends; expelling it is the quick way.',
      ],
      order: async () => {
        const address = path`v1/groups/${group}/leases/${lease}?` + new URLSearchParams({ token });
        const answer = await (await order('DELETE', address)).json();
        const left = span(answer.free_in_ms);
        return lease + ' was released. ' + (answer.free_when === 'noticed'
          ? 'It is free when its holder has noticed, in ' + left + ' at the latest.'
          : 'Its holder cannot notice: it is free when its tenure ends, in ' + left + ' without another beat.');
      },
    };
  });
}

/** Confirms ending the wait of a group. */
export function settle(group) {
  return confirm('Settle ' + group + '?', 'Settle it', async () => {
    const state = await lookAt(group);
    if (!state?.unsettled) return { lines: [group + ' is settled: there is no wait to end.'] };
    const { cause: why, until } = state.unsettled;
    const left = Math.max(0, Date.parse(until) - now());
    return {
      lines: [
        'No lease is granted in ' + group + ' until ' + time(Date.parse(until)) + ', for another ' + span(left) + ', because of the store: ' + cause(why) + '.',
        'Settling it grants free leases immediately. By settling you assert that no process still relies on a lease granted before.',
        'If one does, two holders work at the same time.',
      ],
      order: async () => {
        const body = JSON.stringify(why === 'new' ? {} : { cause: why });
        const answer = await (await order('POST', path`v1/groups/${group}/settle`, body)).json();
        const kept = answer.left.map((one) => cause(one.cause)).join(', ');
        return answer.settled ? group + ' is settled: leases are granted immediately.' : kept ? group + ' keeps waiting: ' + kept + '.' : group + ' was settled before.';
      },
    };
  });
}

function order(method, address, body) {
  const headers = { 'tenure-not-after': new Date(now() + PATIENCE).toISOString(), ...(body ? { 'content-type': 'application/json' } : {}) };
  return ask(address, { method, body, headers, patience: PATIENCE });
}

/** Shows the confirmation once `prepare` has read its facts: `{lines, order?}`. Without an order there is nothing to confirm. */
async function confirm(title, word, prepare) {
  const dialog = document.getElementById('act');
  if (dialog.open) return;
  const text = document.getElementById('act-text');
  const outcome = document.getElementById('act-outcome');
  const go = document.getElementById('act-do');
  const close = document.getElementById('act-close');
  const tell = (lines) => text.replaceChildren(...lines.map((line) => h('p', {}, line)));
  say(document.getElementById('act-title'), title);
  say(go, word);
  say(close, 'Cancel');
  say(outcome, '');
  show(go, false);
  tell(['Asking the store …']);
  dialog.showModal();
  try {
    const { lines, order } = await prepare();
    tell(lines);
    show(go, Boolean(order));
    go.disabled = false;
    go.onclick = async () => {
      go.disabled = true;
      say(outcome, 'Asking the daemon …');
      say(outcome, await order().catch(failed));
      show(go, false);
      say(close, 'Close');
      changed();
      poll();
    };
  } catch (error) {
    tell(['Cannot ask now what it would do: ' + (error.message ?? 'the store does not answer') + '. Nothing was changed.']);
  }
  close.focus();
}

/** The outcome as far as it is known after an error. */
function failed(error) {
  if (error instanceof Refused && error.status < 500) return 'Refused, nothing was changed: ' + error.message;
  if (error instanceof Refused && error.outcome === 'unchanged') return 'Nothing was changed: ' + error.message;
  return 'No answer: whether it was done is not known. The page shows it when the store answers; it cannot take effect later than ' + PATIENCE / 1000 + ' s after it was asked for.';
}
