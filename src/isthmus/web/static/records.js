// What stands still, what was lost, what was decided about it, and what happened lately.

import { fill, h, table } from "./dom.js";
import { state } from "./state.js";
import { ask } from "./server.js";
import { chosen, codeChip, flowChoice, onDemand } from "./parts.js";
import { count, day } from "./words.js";

export function records(view, query) {
  let asked = query;
  const place = h("div", { "aria-live": "polite" });
  const head = h("div", { class: "controls" });
  const events = h("ol", { class: "events" });
  let shownEvents = "";
  const look = onDemand(place, async () => shown(await ask(`/api/gaps?flow=${encodeURIComponent(chosen(asked))}`)));
  fill(view,
    h("section", { class: "panel", "aria-labelledby": "gaps-title" }, h("h1", { id: "gaps-title" }, "Stops, gaps, decisions"), head, place),
    h("section", { class: "panel", "aria-labelledby": "events-title" }, h("h2", { id: "events-title" }, "Events"),
      h("p", { class: "quiet" }, "What the flow's driver has told lately, the newest first, in its machine's time."), events));

  function draw(now) {
    const flow = now.flows.find((each) => each.flow === chosen(asked));
    const words = JSON.stringify(flow?.events ?? []);
    if (words === shownEvents) return;
    shownEvents = words;
    const lines = [...(flow?.events ?? [])].reverse();
    fill(events, lines.length ? lines.map((line) => h("li", { class: line.includes("STOPPED") ? "bad" : null }, line)) : h("li", { class: "quiet" }, "nothing yet"));
  }

  function turned(next) {
    asked = next;
    fill(head, flowChoice("records", chosen(asked), asked), h("button", { type: "button", onclick: look }, "Look again"));
    look();
    draw(state);
  }

  turned(query);
  return { draw, turn: turned };
}

const offsets = (one) => (one.first < 0 ? "–" : one.past < 0 ? `from ${count(one.first)} on` : `${count(one.first)} to ${count(one.past - 1)}`);

function shown(found) {
  const stops = found.stops.map((one) => [`${one.topic}-${one.partition}`, codeChip(one.code), one.error, one.hint || `isthmus resolve FILE --topic ${one.topic}`]);
  const gaps = found.gaps.map((one) => [`${one.topic}-${one.partition}`, codeChip(one.code), offsets(one), one.accepted || "nobody yet", day(one.at)]);
  const decisions = found.decisions.map((one) => [one.partition < 0 ? one.topic : `${one.topic}-${one.partition}`, codeChip(one.code), one.choice, `${one.user} on ${one.host}`, day(one.at)]);
  const names = (...titles) => titles.map((title) => [title, "name"]);
  return [
    stops.length ? [h("h2", null, "Standing still"), table("Partitions that stand still", names("Partition", "Code", "Why", "What to do"), stops)] : null,
    gaps.length ? [h("h2", null, "Gaps on record"), table("Gaps on record", names("Partition", "Code", "Offsets", "Accepted by", "When"), gaps)] : null,
    decisions.length ? [h("h2", null, "Decisions"), table("Decisions", names("What", "Code", "Choice", "By", "When"), decisions)] : null,
    stops.length || gaps.length || decisions.length ? null : h("p", { class: "calm good" }, h("span", { class: "sign", "aria-hidden": "true" }, "✓"), " No stops, no gaps, no decisions."),
  ];
}
