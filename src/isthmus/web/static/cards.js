// One card for each flow: its verdict and figures, where it runs, and, where that is allowed, its buttons.

import { attribute, fill, h, text } from "./dom.js";
import { state } from "./state.js";
import { post } from "./server.js";
import { badge, dialog, fault, spark, sparkPoints } from "./parts.js";
import { amount, bytes, count, duration, milliseconds, plural, told } from "./words.js";

const FIGURES = {
  rate: ["records/s", (flow) => amount(flow.records_per_s)],
  bytes: ["bytes/s", (flow) => bytes(flow.bytes_per_s)],
  lag: ["lag", (flow) => `${amount(flow.lag)} · ${bytes(flow.lag_bytes)}`],
  waits: ["oldest waits", (flow) => duration(flow.lag_seconds)],
  latency: ["latency p50 / p99", (flow) => `${latency(flow, flow.p50_ms)} / ${latency(flow, flow.p99_ms)}`],
  total: ["copied", (flow) => amount(flow.totals.records)],
};

const latency = (flow, value) => (value === null && flow.beyond_ms ? `> ${milliseconds(flow.beyond_ms)}` : milliseconds(value));

export function cards(place) {
  const deck = h("div", { class: "cards" });
  place.append(deck);
  let shown = new Map();

  function draw(now) {
    const names = now.flows.map((flow) => flow.flow);
    if (JSON.stringify(names) !== JSON.stringify([...shown.keys()])) {
      shown = new Map(now.flows.map((flow) => [flow.flow, card(flow)]));
      fill(deck, [...shown.values()].map((one) => one.box));
    }
    for (const flow of now.flows) shown.get(flow.flow).update(flow);
  }

  return { draw };
}

function card(flow) {
  const verdict = h("span", { class: "verdict-place" });
  const figures = Object.fromEntries(Object.keys(FIGURES).map((name) => [name, h("dd")]));
  const facts = h("ul", { class: "facts" });
  const line = spark([], "records per second of late");
  const buttons = state.hello.changes ? deeds(flow.flow) : null;
  const box = h("article", { class: "card", "data-flow": flow.flow, "aria-label": `Flow ${flow.flow}` },
    h("div", { class: "row" }, h("h3", null, flow.flow), verdict),
    h("p", { class: "quiet" }, flow.replicator), line,
    h("dl", { class: "figures" }, Object.entries(FIGURES).map(([name, [title]]) => h("div", null, h("dt", null, title), figures[name]))),
    facts, buttons?.box);
  let said = "";

  function update(now) {
    const word = told(now);
    if (verdict.dataset.word !== word) {
      verdict.dataset.word = word;
      fill(verdict, badge(word));
    }
    for (const [name, [, tell]] of Object.entries(FIGURES)) text(figures[name], tell(now));
    attribute(line.firstChild, "points", sparkPoints(now.points.slice(-60).map((one) => one[1])));
    const lines = factsOf(now);
    if (JSON.stringify(lines) !== said) {
      said = JSON.stringify(lines);
      fill(facts, lines.map((one) => h("li", null, one)), sparkPage(now));
    }
    buttons?.update(now);
  }

  return { box, update };
}

function factsOf(flow) {
  const lines = [];
  const counts = Object.entries(flow.counts).sort().map(([word, number]) => `${count(number)} ${word}`).join(", ");
  lines.push(`partitions: ${counts || "none"}`);
  if (flow.driver) lines.push(`${["running", "paused"].includes(flow.state) ? "driven" : "last driven"} by ${flow.driver}`);
  const hosts = new Map();
  for (const lane of flow.lanes) if (lane.host) hosts.set(lane.host, [...(hosts.get(lane.host) ?? []), lane.lane]);
  if (flow.state === "running" && hosts.size) {
    lines.push(`${plural(flow.lanes.length, "lane")}: ${[...hosts].map(([host, lanes]) => `${lanes.join(", ")} on ${host}`).join("; ")}`);
  }
  for (const lane of flow.lanes) if (lane.error && lane.state === "recovering") lines.push(`lane ${lane.lane} recovers: ${lane.error}`);
  for (const [side, name] of [[flow.source, "source"], [flow.target, "target"]]) {
    if (side.tunnel) lines.push(`${name} ${side.alias} through the tunnel at ${side.tunnel}`);
  }
  if (flow.groups.kept) lines.push(`${plural(flow.groups.groups, "consumer group")} taken along${flow.groups.error ? `: ${flow.groups.error}` : ""}`);
  if (flow.throttle) lines.push(`throttled to ${bytes(flow.throttle)}/s`);
  if (flow.paused_topics.length) lines.push(`paused topics: ${flow.paused_topics.join(", ")}`);
  if (flow.totals.dead_letters) lines.push(`${count(flow.totals.dead_letters)} dead letters`);
  return lines;
}

function sparkPage(flow) {
  const place = flow.spark_page ?? "";
  return /^https?:\/\//.test(place) ? h("li", null, h("a", { href: place, rel: "noreferrer" }, "Spark's own page")) : null;
}

function deeds(flow) {
  const answer = h("div", { class: "quiet answer", role: "status" });
  const toggle = h("button", { type: "button", onclick: () => wish(toggle.dataset.deed, {}) });
  const slow = h("button", { type: "button", onclick: () => throttle(flow, wish) }, "Throttle…");
  const box = h("div", { class: "deeds" }, toggle, slow, answer);

  async function wish(deed, body) {
    for (const one of [toggle, slow]) one.disabled = true;
    text(answer, "asking…");
    try {
      const found = await post(`/api/${deed}`, { flow, ...body });
      text(answer, found.heard_by ? `${deed}: heard by ${found.heard_by}` : `${deed}: nobody runs it now; holds when it starts`);
    } catch (error) {
      fill(answer, fault(error));
    } finally {
      for (const one of [toggle, slow]) one.disabled = false;
    }
  }

  function update(now) {
    const paused = now.state === "paused" || now.paused_topics.length > 0;
    toggle.dataset.deed = paused ? "resume" : "pause";
    text(toggle, paused ? "Resume" : "Pause");
  }

  return { box, update };
}

function throttle(flow, wish) {
  const field = h("input", { id: "rate", required: true, placeholder: "20MB", autocomplete: "off" });
  const box = dialog(`Throttle ${flow}`, h("form", { onsubmit: submit },
    h("p", null, "Bytes per second that the flow reads at most: 20MB, none, or file (what its file says)."),
    h("label", { for: "rate" }, "Rate"), field, h("div", { class: "row" }, h("button", { class: "primary", type: "submit" }, "Throttle"))));
  field.focus();
  function submit(event) {
    event.preventDefault();
    box.close();
    wish("throttle", { rate: field.value.trim() });
  }
}
