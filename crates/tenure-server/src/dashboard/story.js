// Events in words: the same words as those of `tenure why`.

import { many, number } from './dom.js';

const ENDINGS = new Set([
  'left', 'lapsed', 'superseded', 'expelled', 'no_progress', 'evicted', 'lease_taken_over', 'lease_revoked', 'session_reaped', 'session_deleted',
  'sessions_repaired', 'provider_deactivated', 'sweep_braked', 'sweep_unbraked', 'group_unsettled', 'group_settled', 'gap',
]);

/** Whether an event is an end, its clean-up, or a pause of the clean-up. */
export function isEnding({ type, reason }) {
  if (type === 'lease_released') return reason !== 'released' && reason !== 'handed_off';
  return ENDINGS.has(type);
}

const memberOf = (tenure) => tenure?.slice(0, tenure.lastIndexOf('@')) ?? '';
const listed = (counts) => Object.entries(counts ?? {}).map(([name, count]) => name + ' ' + number(count)).join(', ');
const about = (...words) => words.filter(Boolean).join(' · ');

/** Why a tenure ended, in words. */
export function ending(reason) {
  return {
    lapsed: 'its end time passed without a beat',
    left: 'it ended its own tenure',
    superseded: 'the same member joined again',
    expelled: 'an operator ended it',
    no_progress: 'its work made no progress',
  }[reason] ?? reason ?? 'unknown reason';
}

/** An event as text: `who`, `what`, `detail` and `tone`; `id` is the subject for the why page. */
export function tell(event) {
  const teller = TELLERS[event.type];
  const told = teller ? teller(event) : { who: memberOf(event.tenure), what: event.type.replaceAll('_', ' ') };
  return { tone: 'plain', detail: '', id: '', ...told };
}

const end = (what) => (event) => {
  const who = memberOf(event.tenure);
  return { who, what, detail: ending(event.type), tone: 'ended', id: event.tenure };
};

const session = (what, tone) => (event) => ({
  who: event.session, what: what(event), tone, id: 'session:' + event.session, detail: sessionDetail(event),
});

function sessionDetail(event) {
  const alias = event.alias && 'alias ' + event.alias;
  if (event.type === 'session_disconnected') {
    const why = {
      detached: 'it was detached', max_age: 'it had been attached for too long', ghost: 'its tenure was unknown to the store',
    }[event.reason] ?? 'that tenure had ended (' + (event.reason ?? 'unknown') + ')';
    return about('its last connection went: ' + why, alias);
  }
  if (event.type === 'session_reaped') {
    return about('its grace was over' + (event.pass ? '' : ', and a late attach met it'), alias);
  }
  return about(event.connection && 'connection ' + event.connection, alias);
}

function lease(event, what, detail, tone = 'plain') {
  return { who: event.lease ?? '', what, detail, tone, id: 'lease:' + (event.lease ?? '') };
}

/** The place of a grant of a lease with several holders. */
function inPlace(event) {
  return event.place === undefined ? '' : ', place ' + event.place;
}

function released(event) {
  const from = memberOf(event.tenure);
  const token = 'token ' + event.token + inPlace(event);
  if (event.reason === 'released') return lease(event, 'was released by ' + from, token);
  if (event.reason === 'handed_off') return lease(event, 'was handed to ' + event.to, about('by ' + from, token));
  if (event.reason === 'revoked') return lease(event, 'was freed', about(from + ' has noticed that an operator released it', token));
  return lease(event, 'was freed', about('its holder ' + from + ' had ended (' + (event.reason ?? 'unknown') + ')', token), 'ended');
}

function evicted(event) {
  const total = Object.values(event.counts ?? {}).reduce((sum, count) => sum + count, 0);
  const removed = [total && many(total, 'claim'), event.connections && many(event.connections, 'connection')];
  return {
    who: memberOf(event.tenure), what: 'was cleaned up', tone: 'ended', id: event.tenure,
    detail: about(removed.filter(Boolean).join(', ') + (total ? ' (' + listed(event.counts) + ')' : ''), 'it had ' + (event.reason ?? 'ended')),
  };
}

const CAUSES = {
  silent: 'it was silent', clock_back: 'its clock fell back', data_loss: 'its data is gone', tail_loss: 'the end of its data is gone',
  new: 'it is new, or was emptied',
};

/** Why a group is not settled, in words. */
export function cause(name) {
  return CAUSES[name] ?? name ?? 'unknown';
}

const LIFTED = { time: 'the brake had held for as long as it may', recovered: 'enough members are back', forced: 'an operator lifted the brake' };

const TELLERS = {
  joined: (event) => ({ who: memberOf(event.tenure), what: 'joined', detail: event.tenure, tone: 'alive', id: event.tenure }),
  left: end('left'),
  lapsed: end('lapsed'),
  superseded: end('was superseded'),
  expelled: end('was expelled'),
  no_progress: end('made no progress'),
  evicted,
  lease_granted: (event) => lease(event, 'was granted to ' + memberOf(event.tenure), about(event.request === undefined ? '' : 'after a wait', 'token ' + event.token + inPlace(event))),
  lease_released: released,
  lease_taken_over: (event) => lease(
    event, 'was taken over by ' + memberOf(event.tenure),
    about('from ' + memberOf(event.from) + ', which had ended (' + event.reason + ')', 'token ' + event.token + inPlace(event)), 'ended',
  ),
  lease_revoked: (event) => lease(
    event, 'was released by an operator', about('free when its holder ' + memberOf(event.tenure) + ' has noticed', 'token ' + event.token + inPlace(event)), 'uncertain',
  ),
  target_changed: (event) => ({ who: event.lease, what: 'was ' + event.reason, detail: 'target', id: 'lease:' + event.lease }),
  session_created: session((event) => 'was made by ' + memberOf(event.tenure), 'alive'),
  session_resumed: session((event) => 'was resumed by ' + memberOf(event.tenure), 'alive'),
  session_disconnected: session(() => 'is disconnected', 'uncertain'),
  session_reaped: session(() => 'was reaped', 'ended'),
  session_deleted: session(() => 'was deleted', 'ended'),
  provider_activated: (event) => ({ who: event.to, what: 'was activated', detail: 'by an operator', tone: 'alive', id: event.to }),
  provider_deactivated: (event) => ({ who: event.to, what: 'was deactivated', detail: 'by an operator', tone: 'ended', id: event.to }),
  sessions_repaired: (event) => ({ who: 'Sessions', what: 'were repaired', detail: listed(event.counts), tone: 'uncertain' }),
  sweep_braked: ({ counts }) => ({
    who: 'Removal', what: 'was paused', tone: 'braked',
    detail: number(counts?.lapsed) + ' lapsed at once, ' + number(counts?.present) + ' were present',
  }),
  sweep_unbraked: (event) => ({ who: 'Removal', what: 'went on', detail: LIFTED[event.reason] ?? event.reason ?? '', tone: 'alive' }),
  group_unsettled: (event) => event.reason === 'new' ? {
    who: 'The group', what: 'waits', tone: 'uncertain',
    detail: 'the store is new or was emptied: no lease is granted while a holder may trust one that it has forgotten',
  } : ({
    who: 'The store', what: 'did not serve', tone: 'uncertain',
    detail: about(
      cause(event.reason) + (event.counts?.silent_ms ? ' for ' + number(event.counts.silent_ms) + ' ms' : ''),
      'everyone got one full ttl',
    ),
  }),
  group_settled: (event) => ({
    who: 'The group', what: 'was settled', tone: 'alive',
    detail: event.reason === 'operator' ? 'an operator said that nothing was held' : 'the grace after the last gap is over',
  }),
  gap: () => ({
    who: 'Events', what: 'are missing here',
    detail: 'they were trimmed, or lost with the data of the store', tone: 'uncertain',
  }),
};

/** The subject of a why page: a member, a tenure, a key, a lease or a session. */
export function subject(id) {
  const slash = id.indexOf('/');
  if (slash >= 0) return { kind: 'key', registry: id.slice(0, slash), name: id.slice(slash + 1) };
  if (id.includes('@')) return { kind: 'tenure', name: id, member: memberOf(id) };
  if (id.startsWith('lease:')) return { kind: 'lease', name: id.slice('lease:'.length) };
  if (id.startsWith('session:')) return { kind: 'session', name: id.slice('session:'.length) };
  return { kind: 'member', name: id };
}

const WIDE = new Set(['group_unsettled', 'group_settled', 'sweep_braked', 'sweep_unbraked', 'gap']);

/** Whether an event belongs to the story of a subject. `present` is the tenure that explains the state now. */
export function concerns(event, subject, present) {
  // Events of the whole group explain why no member lapsed, or nothing was removed, for a while.
  if (WIDE.has(event.type)) return true;
  if (subject.kind === 'session') return event.session === subject.name || event.type === 'sessions_repaired';
  if (event.session) return false;
  const isLife = !event.lease && event.tenure && event.tenure === present;
  switch (subject.kind) {
    case 'member':
      return memberOf(event.tenure) === subject.name || memberOf(event.from) === subject.name || event.to === subject.name;
    case 'tenure':
      return event.tenure === subject.name || event.from === subject.name;
    case 'lease':
      return event.lease === subject.name || isLife;
    case 'key':
      return isLife || (event.keys ?? []).includes(subject.registry + '/' + subject.name);
    default:
      return false;
  }
}

/** Whether an event is of the whole group. */
export function isWide(event) {
  return WIDE.has(event.type);
}

export { memberOf };
