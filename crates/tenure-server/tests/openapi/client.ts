// A client against the generated types. It compiles as long as the pinned fields exist with their types.
import type { components, operations, paths } from './types';

type Schemas = components['schemas'];
type Body<Operation extends keyof operations> = operations[Operation] extends {
  requestBody: { content: { 'application/json': infer Json } };
}
  ? Json
  : never;

const join: Body<'members_join'> = { member: 'gw-1', ttl_ms: 30_000 };
const route: keyof paths = '/v1/groups/{g}/leases/{l}/acquire';

export function holder(of: Schemas['Lease'] | Schemas['AcquireAnswer']): [string, string, number] {
  return [of.holder, of.tenure, of.token];
}

export function owner(of: Schemas['Claim'] | Schemas['ClaimAnswer']): [string, string] {
  return [of.owner, of.tenure];
}

export function conflict(problem: Schemas['Problem']): string | null | undefined {
  return problem.holder ?? problem.owner ?? problem.reserved_for;
}

export function subject(event: Schemas['EventAnswer']): [number, string, string | null | undefined] {
  return [event.id, event.type, event.member];
}

// The types are not `any`: the compiler fails unless each of the next lines is an error.
export function mistakes(lease: Schemas['Lease'], event: Schemas['EventAnswer']): void {
  // @ts-expect-error: the field is `holder`
  console.log(lease.held_by);
  // @ts-expect-error: a number
  const id: string = event.id;
  // @ts-expect-error: a join needs a member
  const empty: Body<'members_join'> = {};
  console.log(id, empty);
}

console.log(join.member, route);
