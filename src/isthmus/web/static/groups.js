// Consumer groups: where they stand on the source, and where that is on the target.

import { fill, h, table } from "./dom.js";
import { ask } from "./server.js";
import { badge, chosen, flowChoice, onDemand } from "./parts.js";
import { count, plural } from "./words.js";

const MEANINGS = {
  exact: "the next record is the same on both sides",
  "at least": "some records would be read again, none left out",
  ahead: "what the group wants next is not copied yet",
  expired: "below the start of the source's log",
  beyond: "past the end of the source's log",
  skipped: "before the first record that this flow has copied",
  unknown: "copied, but it cannot be told where it landed",
};
const KINDS = { exact: "ok", "at least": "catching up", ahead: "catching up" };
const MOST = 500;

export function groups(view, query) {
  let asked = query;
  const place = h("div", { "aria-live": "polite" });
  const head = h("div", { class: "controls" });
  const look = onDemand(place, async () => shown(await ask(`/api/groups?flow=${encodeURIComponent(chosen(asked))}`)));
  fill(view, h("section", { class: "panel", "aria-labelledby": "groups-title" }, h("h1", { id: "groups-title" }, "Consumer groups"),
    h("p", { class: "quiet" }, "Offsets on the source, and the same place on the target: where a group goes on after a failover."), head, place));

  function turned(next) {
    asked = next;
    fill(head, flowChoice("groups", chosen(asked), asked), h("button", { type: "button", onclick: look }, "Look again"));
    look();
  }

  turned(query);
  return { turn: turned };
}

const number = (value) => (value < 0 ? "–" : count(value));

function shown(found) {
  const states = [...new Set(found.rows.map((row) => row.state))];
  const columns = [["Group", "name"], ["Topic", "name"], ["Partition", "number"], ["Offset", "number"], ["Lag", "number"],
    ["On the target", "number"], ["Committed there", "number"], ["Lag there", "number"], ["State", ""]];
  const rows = found.rows.slice(0, MOST).map((row) => [row.group, row.topic, String(row.partition), number(row.source_offset), number(row.source_lag),
    number(row.translated), number(row.target_offset), number(row.target_lag), state(row)]);
  return [
    h("p", null, found.rows.length ? `${plural(new Set(found.rows.map((row) => row.group)).size, "group")}, ${plural(found.rows.length, "place")}`
      : "No group of the source has offsets in topics of this flow."),
    rows.length ? table("Consumer groups and their places on both sides", columns, rows) : null,
    found.rows.length > MOST ? h("p", null, `and ${count(found.rows.length - MOST)} more: isthmus groups FILE lists all`) : null,
    h("ul", { class: "facts" }, states.filter((one) => one !== "exact").map((one) => h("li", null, `${one}: ${MEANINGS[one] ?? ""}`)),
      Object.entries(found.elsewhere).map(([group, names]) => h("li", null, `${group} also reads topics that this flow does not carry: ${names.join(", ")}`)),
      found.gone.length ? h("li", null, `gone from the source, checkpoints remain: ${found.gone.join(", ")}`) : null),
  ];
}

function state(row) {
  const mark = badge(KINDS[row.state] ?? "unknown");
  mark.lastChild.textContent = row.active_on_target ? `${row.state}, active there` : row.state;
  return mark;
}
