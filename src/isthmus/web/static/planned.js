// What a run would do now: created, grown, altered, skipped. Found out without changing anything.

import { fill, h, table } from "./dom.js";
import { ask } from "./server.js";
import { chosen, codeChip, flowChoice, onDemand } from "./parts.js";
import { count, plural } from "./words.js";

const MOST = 200;

export function planned(view, query) {
  let asked = query;
  const place = h("div", { "aria-live": "polite" });
  const head = h("div", { class: "controls" });
  const look = onDemand(place, async () => shown(await ask(`/api/plan?flow=${encodeURIComponent(chosen(asked))}`)));
  fill(view, h("section", { class: "panel", "aria-labelledby": "plan-title" }, h("h1", { id: "plan-title" }, "Plan"),
    h("p", { class: "quiet" }, "What isthmus run would do at its start, by what both clusters say now. Nothing is changed by looking."), head, place));

  function turned(next) {
    asked = next;
    fill(head, flowChoice("plan", chosen(asked), asked), h("button", { type: "button", onclick: look }, "Plan again"));
    look();
  }

  turned(query);
  return { turn: turned };
}

const settings = (topic) => Object.entries(topic.settings).map(([name, value]) => `${name}=${value}`).join(", ") || "none";
const factor = (topic) => (topic.replication_factor < 0 ? "default" : String(topic.replication_factor));
const unset = (value) => (value === null ? "not set" : value);

function shown(plan) {
  const parts = [
    part("+ create", "good", ["Topic", "Partitions", "Replicas", "Settings"], plan.create, (topic) => [topic.topic, String(topic.partitions), factor(topic), settings(topic)]),
    part("+ create for the flow itself", "good", ["Cluster", "Topic", "Partitions", "Replicas"], plan.internal, (topic) => [topic.cluster, topic.topic, String(topic.partitions), factor(topic)]),
    part("~ grow", "busy", ["Topic", "From", "To"], plan.grow, (one) => [one.topic, String(one.from), String(one.to)]),
    part("~ alter", "busy", ["Topic", "Setting", "From", "To"], plan.alter, (one) => [one.topic, one.setting, unset(one.from), unset(one.to)]),
    part("+ access rules", "good", ["Rule"], plan.access, (one) => [one]),
    part("✕ would not go on", "bad", ["Topic", "Code", "Why"], plan.stopped, (one) => [one.topic, codeChip(one.code), one.error]),
    part("✕ rights that are missing", "bad", ["Cluster", "Who", "Right", "Keeps back"], plan.rights, (one) => [one.cluster, one.principal, `${one.operation} on ${one.resource} ${one.name}`, one.keeps_back]),
    part("▲ problems", "warn", ["What"], plan.problems, (one) => [one]),
    part("▲ what clusters lack", "warn", ["Cluster", "Severity", "What"], plan.lacks, (one) => [one.cluster, one.severity, `${one.text} ${one.hint}`]),
    part("where topics begin", "still", ["Topic", "Partitions", "Begins"], plan.begin, begins),
  ];
  const skipped = Object.entries(plan.skipped);
  return [h("p", { class: "summary" }, plan.summary), parts, skipped.length ? h("details", null, h("summary", null, "skipped"),
    h("ul", { class: "facts" }, skipped.map(([reason, names]) => h("li", null, `${reason}: ${names.slice(0, 50).join(", ")}${names.length > 50 ? `, … (${count(names.length)} in all)` : ""}`)))) : null];
}

function begins(one) {
  const known = Object.values(one.positions);
  const rest = one.partitions - known.length;
  const words = known.length ? `goes on at ${known.slice(0, 5).map(count).join(", ")}${known.length > 5 ? ", …" : ""}${rest > 0 ? `; ${rest} new at earliest` : ""}` : one.otherwise;
  return [one.topic, String(one.partitions), words];
}

function part(title, kind, names, rows, tell) {
  if (!rows.length) return null;
  return h("section", { class: `plan-part ${kind}` }, h("h2", null, title, h("span", { class: "quiet" }, ` · ${plural(rows.length, "row")}`)),
    table(title, names.map((name) => [name, "name"]), rows.slice(0, MOST).map(tell)),
    rows.length > MOST ? h("p", { class: "quiet" }, `and ${count(rows.length - MOST)} more: isthmus plan FILE -o json lists all`) : null);
}
