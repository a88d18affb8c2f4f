import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { hash, rank, score } from "../src/placement.js";

test("placement is that of all languages", () => {
  const file = new URL("../../../../crates/tenure-core/src/placement/golden.txt", import.meta.url);
  let checked = 0;
  for (const line of readFileSync(file, "utf8").split("\n")) {
    const [kind, ...fields] = line.split(" ");
    const [a = "", b = "", c = "", d = "", e = ""] = fields;
    if (kind === "score") {
      assert.equal(hash(a, b).toString(16).padStart(16, "0"), d, line);
      assert.ok(Math.abs(score(a, b, Number(c)) / Number(e) - 1) < 1e-12, line);
    } else if (kind === "rank") {
      const nodes = new Map(
        b
          .split(",")
          .map((node) => node.split("="))
          .map(([name = "", weight]) => [name, Number(weight)]),
      );
      assert.deepEqual(rank(a, nodes), c.split(","), line);
    } else continue;
    checked++;
  }
  assert.ok(checked > 20);
});
