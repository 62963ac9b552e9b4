// Every topic with its lag, expandable to partitions: searched, filtered by verdict, sorted. The address keeps all of it.

import { attribute, fill, h, text } from "./dom.js";
import { column, state } from "./state.js";
import { badge, chosen, codeChip, flowChoice, spark, sparkPoints, turn } from "./parts.js";
import { longTable } from "./longtable.js";
import { TRENDS, VERDICTS, amount, bytes, count, duration, kind, plural, sign } from "./words.js";

const COLUMNS = [
  { title: "Topic", class: "name", sort: "name" },
  { title: "Verdict", class: "verdict", sort: "verdict" },
  { title: "Lag", class: "number", sort: "lag" },
  { title: "Bytes", class: "number wide", sort: "bytes" },
  { title: "Waits", class: "number waits", sort: "seconds" },
  { title: "Trend", class: "trend wide" },
  { title: "Records/s", class: "number wide", sort: "rate" },
  { title: "ETA", class: "number wide", sort: "eta" },
  { title: "Position", class: "number widest" },
];

export function topics(view, query) {
  let asked = query;
  const open = new Set();
  const search = h("input", { type: "search", id: "search", placeholder: "name of a topic", value: query.get("q") ?? "",
    oninput: () => turn("topics", asked, { q: search.value.trim() }) });
  const filter = h("select", { id: "filter", onchange: () => turn("topics", asked, { verdict: filter.value }) });
  const flows = h("div");
  const found = h("p", { class: "quiet", role: "status" });
  const all = h("button", { type: "button", onclick: toggleAll }, "Show partitions");
  const grid = longTable("Topics and partitions", COLUMNS, () => entryRow(toggle), sorted);
  let listed = [];
  fill(view, h("section", { class: "panel", "aria-labelledby": "topics-title" },
    h("h1", { id: "topics-title" }, "Topics"),
    h("div", { class: "controls" }, flows,
      h("div", { class: "field grow" }, h("label", { for: "search" }, "Search"), search),
      h("div", { class: "field" }, h("label", { for: "filter" }, "Verdict"), filter), all),
    found, grid.box));

  function toggle(name) {
    open.has(name) ? open.delete(name) : open.add(name);
    draw(state);
  }

  function toggleAll() {
    const any = listed.some((topic) => open.has(topic.name));
    open.clear();
    if (!any) for (const topic of listed) open.add(topic.name);
    draw(state);
  }

  function sorted(by) {
    const now = sorting(asked);
    const down = now.by === by ? !now.down : by !== "name";
    turn("topics", asked, { sort: `${down ? "-" : ""}${by}` });
  }

  function draw(now) {
    const flow = now.flows.find((each) => each.flow === chosen(asked));
    if (!flow) {
      listed = [];
      text(found, "This flow cannot be seen at the moment.");
      grid.show([], sorting(asked));
      return;
    }
    options(filter, flow, asked.get("verdict") ?? "");
    const sort = sorting(asked);
    const wanted = (asked.get("q") ?? "").toLowerCase();
    const verdict = asked.get("verdict") ?? "";
    const at = column("verdict");
    listed = flow.byTopic.filter((topic) => topic.name.toLowerCase().includes(wanted)
      && (!verdict || topic.rows.some((row) => row[at] === verdict))).sort(order(sort));
    const entries = [];
    let partitions = 0;
    for (const topic of listed) {
      const rows = verdict ? topic.rows.filter((row) => row[at] === verdict) : topic.rows;
      partitions += rows.length;
      entries.push({ topic, open: open.has(topic.name) });
      if (open.has(topic.name)) for (const row of rows) entries.push({ topic, row });
    }
    text(found, `${plural(listed.length, "topic")}, ${plural(partitions, "partition")}`);
    text(all, listed.some((topic) => open.has(topic.name)) ? "Hide partitions" : "Show partitions");
    grid.show(entries, sort);
  }

  function turned(next) {
    asked = next;
    fill(flows, flowChoice("topics", chosen(asked), asked));
    if (document.activeElement !== search) search.value = asked.get("q") ?? "";
    draw(state);
  }

  fill(flows, flowChoice("topics", chosen(asked), asked));
  if (query.get("topic")) open.add(query.get("topic"));
  return { draw, turn: turned };
}

function sorting(query) {
  const wanted = query.get("sort") ?? "-verdict";
  return { by: wanted.replace("-", ""), down: wanted.startsWith("-") };
}

function order({ by, down }) {
  const value = by === "verdict" ? (topic) => topic.worst : (topic) => topic[by] ?? (by === "name" ? "" : Infinity);
  return (one, other) => {
    const [a, b] = [value(one), value(other)];
    const first = a < b ? -1 : a > b ? 1 : 0;
    return (down ? -first : first) || (by === "verdict" ? other.lag - one.lag : 0) || (one.name < other.name ? -1 : 1);
  };
}

function options(filter, flow, wanted) {
  const known = VERDICTS.filter((word) => flow.counts[word] || word === wanted);
  const words = JSON.stringify([known.map((word) => [word, flow.counts[word]]), wanted]);
  if (filter.dataset.words === words || document.activeElement === filter) return;
  filter.dataset.words = words;
  fill(filter, h("option", { value: "" }, "any"),
    known.map((word) => h("option", { value: word, selected: word === wanted }, `${word} (${count(flow.counts[word] ?? 0)})`)));
}

// One row, which may be a topic now and a partition later: cells are changed, not made anew.
function entryRow(toggle) {
  let entry = null;
  const sprout = h("button", { type: "button", class: "sprout", onclick: () => toggle(entry.topic.name) });
  const label = h("span", { class: "label" });
  const code = h("span");
  const line = spark([], "lag of late");
  const arrow = h("span", { class: "trend-arrow" });
  const word = h("span", { class: "badge" }, h("span", { class: "sign", "aria-hidden": "true" }), h("span"));
  const cells = COLUMNS.map((one, number) => (number === 0 ? h("th", { scope: "row", class: "name" }, sprout, label)
    : number === 1 ? h("td", { class: "verdict" }, word, " ", code)
      : number === 5 ? h("td", { class: one.class }, arrow, line) : h("td", { class: one.class })));
  const row = h("tr", null, cells);

  function update(next) {
    entry = next;
    const told = next.row ? ofPartition(next) : ofTopic(next);
    attribute(row, "class", next.row ? "partition" : "topic");
    sprout.hidden = Boolean(next.row);
    if (!next.row) {
      text(sprout, next.open ? "▾" : "▸");
      attribute(sprout, "aria-expanded", next.open);
      attribute(sprout, "aria-label", `Partitions of ${next.topic.name}`);
    }
    text(label, told.name);
    attribute(label, "title", told.title);
    attribute(word, "class", `badge ${kind(told.verdict)}`);
    text(word.firstChild, sign(told.verdict));
    text(word.lastChild, told.verdict);
    if (code.dataset.code !== told.code) {
      code.dataset.code = told.code;
      fill(code, codeChip(told.code));
    }
    told.cells.forEach((value, number) => value !== null && text(cells[number + 2], value));
    const [mark, meaning] = TRENDS[told.trend];
    text(arrow, told.lag ? mark : "");
    attribute(arrow, "aria-label", told.lag ? meaning : "no lag");
    attribute(arrow, "role", "img");
    line.toggleAttribute("hidden", Boolean(next.row));
    if (!next.row) attribute(line.firstChild, "points", sparkPoints(next.topic.history));
  }

  return { row, update };
}

function ofTopic({ topic }) {
  return { name: topic.name, title: `${topic.name}: ${plural(topic.partitions, "partition")}`, verdict: topic.verdict, code: topic.code,
    trend: topic.trend, lag: topic.lag,
    cells: [amount(topic.lag), bytes(topic.bytes), duration(topic.seconds), null, amount(topic.rate),
      topic.eta === null ? "–" : duration(topic.eta), plural(topic.partitions, "partition")] };
}

function ofPartition({ topic, row }) {
  const value = (name) => row[column(name)];
  const waits = `${value("lag_seconds_at_least") ? "> " : ""}${duration(value("lag_seconds"))}`;
  const eta = value("eta_seconds") === null ? "–" : duration(value("eta_seconds"));
  const error = value("error") ? `: ${value("error")} ${value("hint")}` : "";
  return { name: `${row[1]}`, title: `${topic.name}-${row[1]}${error}`, verdict: value("verdict"), code: value("code"),
    trend: value("trend"), lag: value("lag"),
    cells: [value("lag") === null ? "?" : count(value("lag")), bytes(value("lag_bytes")), waits, null, amount(value("records_per_s")),
      eta, value("position") < 0 ? "–" : `${count(value("position"))} of ${count(value("end"))}`] };
}

