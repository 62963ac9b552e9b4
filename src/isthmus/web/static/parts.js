// Small parts that several sections use: badges, codes with their explanation, the choice of a flow, sparklines.

import { byId, fill, h, s } from "./dom.js";
import { state } from "./state.js";
import { ask } from "./server.js";
import { kind, sign } from "./words.js";

export function badge(word) {
  return h("span", { class: `badge ${kind(word)}` }, h("span", { class: "sign", "aria-hidden": "true" }, sign(word)), word);
}

export function codeChip(code) {
  return code ? h("button", { class: "chip", type: "button", "data-code": code, title: `What ${code} means`,
    onclick: () => explain(code) }, code) : null;
}

let known = null;

export async function explain(code) {
  known ??= ask("/api/explain");
  let rows = [];
  try {
    rows = (await known).filter((each) => each.code === code);
  } catch {
    known = null;
  }
  const parts = rows.map((row) => h("section", null,
    h("p", { class: "quiet" }, row.about, row.exit_status === null ? "" : `, exit status ${row.exit_status}`),
    h("h3", null, "What happened"), h("p", null, row.happened),
    row.todo ? [h("h3", null, "What to do"), h("p", null, row.todo)] : null,
    row.again ? [h("h3", null, "Tried again by itself"), h("p", null, row.again)] : null));
  dialog(code, parts.length ? parts : h("p", null, "Nothing is written about this code."));
}

// A modal dialog that Esc closes; the focus goes back to where it was.
export function dialog(title, ...content) {
  const box = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => box.remove() },
    h("div", { class: "dialog-head" }, h("h2", { id: "dialog-title" }, title),
      h("button", { class: "plain-button", type: "button", "aria-label": "Close", onclick: () => box.close() }, "✕")),
    h("div", { class: "dialog-body" }, content));
  byId("dialogs").append(box);
  box.showModal();
  return box;
}

// Which flow a section is about; the address remembers it.
export function chosen(query) {
  return state.hello.flows.includes(query.get("flow")) ? query.get("flow") : state.hello.flows[0];
}

export function flowChoice(section, flow, query) {
  if (state.hello.flows.length < 2) return null;
  const id = `flow-of-${section}`;
  return h("div", { class: "field" }, h("label", { for: id }, "Flow"),
    h("select", { id, onchange: (event) => turn(section, query, { flow: event.target.value }) },
      state.hello.flows.map((name) => h("option", { value: name, selected: name === flow }, name))));
}

// Another address of the same section, so that a link leads to what is seen.
export function turn(section, query, changes) {
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(changes)) value ? next.set(name, value) : next.delete(name);
  const text = next.toString();
  location.hash = `#/${section}${text ? `?${text}` : ""}`;
}

export function spark(values, label) {
  const line = s("polyline", { class: "spark-line", points: sparkPoints(values) });
  return s("svg", { class: "spark", viewBox: "0 0 60 18", preserveAspectRatio: "none", role: "img", "aria-label": label }, line);
}

export function sparkPoints(values) {
  const most = Math.max(1, ...values);
  const step = 60 / Math.max(1, values.length - 1);
  return values.map((value, number) => `${(number * step).toFixed(1)},${(17 - (value / most) * 16).toFixed(1)}`).join(" ");
}

export function fault(error) {
  const told = error.told ?? { error: error.message };
  return h("div", { class: "panel fault", role: "alert" },
    h("p", null, h("strong", null, told.error || "It failed"), " ", codeChip(told.code)),
    told.where ? h("p", { class: "quiet" }, `where: ${told.where}`) : null,
    told.hint ? h("p", null, `try: ${told.hint}`) : null);
}

// An answer that is asked for on demand: a button, what is being done, then the answer or why there is none.
export function onDemand(place, work) {
  let turns = 0;
  return async () => {
    turns += 1;
    const mine = turns;
    place.setAttribute("aria-busy", "true");
    fill(place, h("p", { class: "quiet working" }, "Asking the clusters…"));
    let found;
    try {
      found = await work();
    } catch (error) {
      found = fault(error);
    }
    if (mine !== turns) return;
    place.removeAttribute("aria-busy");
    fill(place, found);
  };
}
