// The same program as program.py in another language: old, dual or native.
// Arguments: what it keeps, the mode, its name, the port of the server, the URL of the daemon.
import { createConnection } from "node:net";
import { setTimeout as rest } from "node:timers/promises";

const [kind, mode, name, port, daemon] = process.argv.slice(2);
const isOld = mode !== "native";
const isNative = mode !== "old";

const socket = createConnection(Number(port), "127.0.0.1");
const waiting = [];
let buffer = "";
socket.on("data", (data) => {
  buffer += data;
  for (;;) {
    const end = buffer.indexOf("\r\n");
    if (end < 0) return;
    const [type, text] = [buffer[0], buffer.slice(1, end)];
    let rest = end + 2;
    let value = text;
    if (type === "$" && Number(text) >= 0) {
      if (buffer.length < rest + Number(text) + 2) return;
      value = buffer.slice(rest, rest + Number(text));
      rest += Number(text) + 2;
    } else if (type === "$") value = null;
    buffer = buffer.slice(rest);
    waiting.shift()(value);
  }
});
const redis = (...args) =>
  new Promise((resolve) => {
    waiting.push(resolve);
    socket.write(`*${args.length}\r\n${args.map((arg) => `$${Buffer.byteLength(`${arg}`)}\r\n${arg}\r\n`).join("")}`);
  });

const call = async (method, path, body) => {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(`${daemon}/v1/groups/moving${path}`, { method, headers, body: body && JSON.stringify(body) });
  const text = await answer.text();
  return [answer.status, text ? JSON.parse(text) : null];
};

let stopping = false;
let tenure;
const held = new Set();
process.on("SIGTERM", () => {
  stopping = true;
});

const beat = async () => {
  if (tenure && (await call("PUT", `/tenures/${tenure}/beat`))[0] === 200) return;
  tenure = (await call("POST", "/members", { member: name, ttl_ms: 60_000 }))[1].tenure;
};

const work = {
  async registry() {
    if (isOld) await redis("SET", `instance:heartbeat:${name}`, 1, "PX", 3_000);
    for (let n = 0; n < 20; n++) {
      const key = `${name}-device-${n}`;
      if (isNative) await call("PUT", `/registries/connections/claims/${key}`, { tenure });
      if (isOld) await redis("HSET", "connections:registry", key, name);
    }
  },
  async sessions() {
    for (let n = 0; n < 10; n++) {
      const session = `${name}-session-${n}`;
      const isAway = n % 2 === 1;
      if (isNative) {
        const body = { tenure, connection: `${name}-${n}`, grace_ms: 600_000, data: { room: "lobby" } };
        await call("PUT", `/sessions/${session}`, body);
        if (isAway) await call("DELETE", `/sessions/${session}/connections/${name}-${n}?tenure=${tenure}`);
      }
      const since = isAway ? Math.floor(Date.now() / 1000) : 0;
      if (isOld) await redis("HSET", `session:${session}`, "room", "lobby", "last_disconnect", since);
    }
  },
  async leases() {
    for (let n = 0; n < 6; n++) {
      const target = `target-${n}`;
      const key = `poll:lease:${target}`;
      if (isNative && ![200, 201].includes((await call("POST", `/leases/${target}/acquire`, { tenure }))[0])) continue;
      if (isOld) {
        if ((await redis("GET", key)) === name) await redis("PEXPIRE", key, 10_000);
        else if ((await redis("SET", key, name, "NX", "PX", 10_000)) !== "OK") continue;
      }
      held.add(target);
      if ((await redis("SET", `at:${target}`, name, "NX")) === "OK") {
        await redis("HINCRBY", "polls", `${target} ${name} ${mode}`, 1);
        await redis("DEL", `at:${target}`);
      } else await redis("INCR", "overlaps");
    }
  },
};

while (!stopping) {
  if (isNative) await beat();
  await work[kind]();
  console.log("round");
  await rest(20);
}
for (const target of isOld ? held : [])
  if ((await redis("GET", `poll:lease:${target}`)) === name) await redis("DEL", `poll:lease:${target}`);
if (isNative) await call("DELETE", `/tenures/${tenure}`);
socket.end();
