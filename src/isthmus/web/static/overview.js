// At a glance: is all well, if not what to do; who replicates to whom; each flow as a card; what passes, over time.

import { fill, h } from "./dom.js";
import { state } from "./state.js";
import { chosen, codeChip, flowChoice } from "./parts.js";
import { topology } from "./topology.js";
import { plot } from "./plot.js";
import { cards } from "./cards.js";
import { mood, troubles } from "./troubles.js";
import { amount, bytes, count, kind, milliseconds, plural, sign } from "./words.js";

export function overview(view, query) {
  const banner = h("section", { class: "banner", "aria-labelledby": "banner-title" });
  const map = h("section", { class: "panel", "aria-labelledby": "map-title" }, h("h2", { id: "map-title" }, "Topology"));
  const flows = h("section", { "aria-labelledby": "flows-title" }, h("h2", { id: "flows-title" }, "Flows"));
  const at = (name) => state.hello.points.indexOf(name);
  const plots = [
    plot("Records per second", [{ name: "committed", class: "one", at: at("records_per_s") }], amount),
    plot("Bytes per second", [{ name: "committed", class: "two", at: at("bytes_per_s") }], bytes),
    plot("Latency", [{ name: "p50 up to", class: "one", at: at("p50_ms") }, { name: "p99 up to", class: "three", at: at("p99_ms") }],
      (value) => milliseconds(Math.round(value))),
    plot("Lag in records", [{ name: "waiting", class: "three", at: at("lag") }], amount),
  ];
  let flow = chosen(query);
  const choice = h("div");
  const live = h("section", { class: "panel", "aria-labelledby": "live-title" },
    h("div", { class: "row" }, h("h2", { id: "live-title" }, "Live"), choice), h("div", { class: "plots" }, plots.map((one) => one.box)));
  fill(choice, flowChoice("overview", flow, query));
  fill(view, h("h1", { class: "unseen" }, "Overview"), banner, map, flows, live);
  const picture = topology(map);
  const deck = cards(flows);
  let words = "";

  function draw(now) {
    const found = troubles(now);
    const told = JSON.stringify([found, found.length ? 0 : [well(now), mood(now)]]);
    if (told !== words) {
      words = told;
      fill(banner, found.length ? found.map(trouble) : calm(now));
    }
    picture.draw(now);
    deck.draw(now);
    const one = now.flows.find((each) => each.flow === flow);
    if (one) for (const each of plots) each.draw(one.points);
  }

  function turned(next) {
    flow = chosen(next);
    fill(choice, flowChoice("overview", flow, next));
    draw(state);
  }

  return { draw, turn: turned, leave: picture.leave };
}

function well(now) {
  const partitions = now.flows.reduce((sum, flow) => sum + flow.rows.length, 0);
  const lag = now.flows.reduce((sum, flow) => sum + flow.lag, 0);
  const waits = lag ? `${amount(lag)} records are on their way` : "nothing waits";
  return `${plural(now.flows.length, "flow")}, ${plural(partitions, "partition")}, ${waits}.`;
}

function calm(now) {
  const { word, title } = mood(now);
  return h("div", { class: `calm ${kind(word)}` }, h("span", { class: "big sign", "aria-hidden": "true" }, sign(word)),
    h("div", null, h("h2", { id: "banner-title" }, title), h("p", null, well(now)), gaps(now)));
}

function gaps(now) {
  const lost = now.flows.reduce((sum, flow) => sum + flow.lost_offsets, 0);
  const number = now.flows.reduce((sum, flow) => sum + flow.gaps.length, 0);
  return number ? h("p", null, h("a", { href: "#/records" }, `${plural(number, "gap")} on record, ${count(lost)} offsets lost`)) : null;
}

function trouble(one, number) {
  return h("article", { class: `trouble ${kind(one.word)}` }, h("span", { class: "big sign", "aria-hidden": "true" }, sign(one.word)),
    h("div", null, h("h2", { id: number === 0 ? "banner-title" : null }, one.title, " ", codeChip(one.code)),
      one.text ? h("p", null, one.text) : null,
      one.todo ? h("p", { class: "todo" }, h("b", null, "What to do: "), one.todo) : null));
}
