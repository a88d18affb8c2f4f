import { TenureError } from "./error.js";
import { variable } from "./place.js";
import { nodeModule } from "./send.js";

/** The process around this one that began a tenure: `tenure join` or `tenure lock`. */
export interface Wrapper {
  group: string;
  member: string;
  tenure: string;
}

/** From the environment. `TENURE_FILE` names the tenure of now: the wrapper joins again after a lapse. */
export async function findWrapper(): Promise<Wrapper | undefined> {
  const [group, tenure, file] = [variable("TENURE_GROUP"), variable("TENURE_ID"), variable("TENURE_FILE")];
  if (!group || !tenure) return undefined;
  const first = wrapper(group, tenure);
  const current = file ? await named(file) : first;
  // In a wrapper within a wrapper it may be the file of the outer one.
  return current.group === first.group && current.member === first.member ? current : first;
}

const wrapper = (group: string, tenure: string): Wrapper => ({
  group,
  member: tenure.slice(0, tenure.lastIndexOf("@")),
  tenure,
});

async function named(file: string): Promise<Wrapper> {
  const fs = await nodeModule<typeof import("node:fs/promises")>("node:fs/promises");
  try {
    const { group, tenure } = JSON.parse((await fs?.readFile(file, "utf8")) ?? "");
    return wrapper(String(group), String(tenure));
  } catch (cause) {
    throw notYet(`TENURE_FILE cannot be read: ${cause instanceof Error ? cause.message : cause}`);
  }
}

/** It may succeed a little later. */
export const notYet = (detail: string) => new TenureError(0, { code: "unreachable", detail, outcome: "unchanged" });
