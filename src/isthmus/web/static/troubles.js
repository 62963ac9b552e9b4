// What is not well, the gravest first: what it is, and what to do. Everything else is well.

import { column } from "./state.js";
import { count, duration, plural, told } from "./words.js";

const STATES = {
  "never ran": ["has never run", "start it: isthmus run FILE"],
  "not running": ["is not running", "start it: isthmus run FILE"],
  "no driver": ["has lost its driver", "it stopped without a word: look at the machine that ran it, then start it again"],
  paused: ["is paused", "isthmus resume FILE lets it go on"],
  "failed over": ["was failed over: clients work on the target", "isthmus failback FILE brings them back"],
  "changing sides": ["is changing sides", "isthmus failover FILE goes on with it"],
};
const ORDER = { 9: 0, 8: 1, 5: 2, 7: 3, 6: 4, 4: 5 };

export function troubles(state) {
  const lost = state.lost.map((one) => ({ flow: one.flow, word: "stalled", status: 7, code: one.code,
    title: `${one.target} does not answer`, text: one.error, todo: one.hint }));
  return [...lost, ...state.flows.flatMap(ofFlow)].sort((one, other) => ORDER[one.status] - ORDER[other.status]);
}

// Where nothing is wrong: still not known, on the way there, or well.
export function mood(state) {
  const words = state.flows.map(told);
  if (words.includes("unknown")) return { word: "unknown", title: "Too early to tell" };
  if (words.includes("catching up")) return { word: "catching up", title: "Catching up" };
  return state.flows.length ? { word: "ok", title: "All is well" } : { word: "unknown", title: "No flow to be seen" };
}

function ofFlow(flow) {
  const found = stops(flow);
  const status = flow.exit_status;
  if (flow.state in STATES) {
    const [what, todo] = STATES[flow.state];
    const why = flow.error ? `ended by: ${flow.error}` : flow.driver ? `last driven by ${flow.driver}` : "";
    found.push({ flow: flow.flow, word: told(flow), status: flow.state === "failed over" || flow.state === "changing sides" ? 8 : 5,
      code: flow.code || (status === 9 ? "" : flow.cause), title: `${flow.flow} ${what}`, text: why, todo });
  }
  if (!flow.source.answers) {
    found.push({ flow: flow.flow, word: "stalled", status: 6, code: flow.source.code,
      title: `${flow.source.alias} does not answer`, text: flow.source.error, todo: "" });
  }
  if (status === 4) found.push(slow(flow));
  return found;
}

function stops(flow) {
  const at = { verdict: column("verdict"), code: column("code"), error: column("error"), hint: column("hint") };
  const stopped = flow.rows.filter((row) => row[at.verdict] === "stopped");
  const codes = new Map();
  for (const row of stopped) codes.set(row[at.code], [...(codes.get(row[at.code]) ?? []), row]);
  return [...codes].map(([code, rows]) => ({
    flow: flow.flow, word: "stopped", status: 9, code,
    title: rows.length === 1 ? `${flow.topics[rows[0][0]]}-${rows[0][1]} stopped` : `${count(rows.length)} partitions stopped`,
    text: rows[0][at.error], todo: rows[0][at.hint] || `isthmus resolve FILE --topic ${flow.topics[rows[0][0]]}`,
  }));
}

function slow(flow) {
  const number = flow.counts[flow.verdict] ?? 0;
  const words = { stalled: "stalled", "falling behind": "falling behind" };
  const waits = flow.lag_seconds ? `; the oldest record waits for ${duration(flow.lag_seconds)}` : "";
  return { flow: flow.flow, word: flow.verdict, status: 4, code: flow.cause,
    title: `${plural(number, "partition")} ${words[flow.verdict] ?? flow.verdict}`,
    text: `${flow.flow}: ${count(flow.lag)} records behind${waits}`, todo: "" };
}
