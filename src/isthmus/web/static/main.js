// The page: begins, shows the section that the address names, keeps head and title true.

import { byId, fill, h, text } from "./dom.js";
import { state, watch } from "./state.js";
import { follow, hello, post } from "./server.js";
import { kind, plural, sign } from "./words.js";
import { overview } from "./overview.js";
import { topics } from "./topics.js";
import { groups } from "./groups.js";
import { planned } from "./planned.js";
import { records } from "./records.js";
import { sides } from "./sides.js";
import { mood, troubles } from "./troubles.js";

const SECTIONS = {
  overview: ["Overview", overview],
  topics: ["Topics", topics],
  groups: ["Groups", groups],
  plan: ["Plan", planned],
  records: ["Gaps and events", records],
  failover: ["Failover", sides],
};

let shown = { name: "", leave: () => {} };

const allowed = (name) => name in SECTIONS && (name !== "failover" || state.hello.changes);

function route() {
  const [, name = "", query = ""] = location.hash.match(/^#\/([a-z]+)(?:\?(.*))?$/) ?? [];
  const wanted = allowed(name) ? name : "overview";
  if (wanted === shown.name && shown.turn) {
    shown.turn(new URLSearchParams(query));
    return;
  }
  shown.leave();
  const view = byId("view");
  const part = SECTIONS[wanted][1](view, new URLSearchParams(query));
  shown = { name: wanted, leave: part.leave ?? (() => {}), turn: part.turn, draw: part.draw };
  tabs();
  text(document.querySelector("title"), `${SECTIONS[wanted][0]} · Isthmus`);
  if (state.number) part.draw?.(state);
}

function tabs() {
  fill(byId("tabs"), Object.keys(SECTIONS).filter(allowed).map((name) =>
    h("li", null, h("a", { href: `#/${name}`, "aria-current": name === shown.name ? "page" : null }, SECTIONS[name][0]))));
}

function headline() {
  const found = troubles(state);
  const worst = found[0];
  const verdict = byId("verdict");
  const partitions = state.flows.reduce((sum, flow) => sum + flow.rows.length, 0);
  const words = worst
    ? `${worst.title}${found.length > 1 ? `, and ${found.length - 1} more` : ""}`
    : `${mood(state).title}: ${plural(state.flows.length, "flow")}, ${plural(partitions, "partition")}`;
  const worded = worst ? worst.word : mood(state).word;
  verdict.className = `headline ${kind(worded)}`;
  if (verdict.dataset.words !== words) {
    verdict.dataset.words = words;
    fill(verdict, h("span", { class: "sign", "aria-hidden": "true" }, sign(worded)), h("span", null, words));
  }
}

const LINKS = { live: "live", away: "connection lost, trying again", connecting: "connecting" };

function liveness() {
  const old = state.time ? Math.max(0, Date.now() / 1000 - state.time) : 0;
  const late = state.link === "live" && old > 20;
  byId("live").dataset.link = late ? "late" : state.link;
  text(byId("live-text"), late ? `last look ${Math.round(old)} s ago` : LINKS[state.link]);
}

function draw() {
  liveness();
  if (state.number) {
    headline();
    shown.draw?.(state);
  }
}

function enter() {
  const field = h("input", { type: "password", id: "token", autocomplete: "current-password", required: true, minlength: "16" });
  const told = h("p", { class: "error", role: "alert" });
  const form = h("form", { class: "panel narrow", onsubmit: submit },
    h("h1", null, "Who is there?"),
    h("p", null, "This page is open to other machines, so it asks for the token that was given when it was started."),
    h("label", { for: "token" }, "Token"), field, told,
    h("button", { class: "primary", type: "submit" }, "Look"));
  async function submit(event) {
    event.preventDefault();
    try {
      await post("/api/session", { token: field.value });
      location.reload();
    } catch (error) {
      text(told, error.message);
      field.select();
    }
  }
  fill(byId("view"), form);
  text(byId("verdict"), "A token is needed");
  text(byId("live-text"), "closed");
  field.focus();
}

async function leave() {
  await post("/api/session/end", {});
  location.reload();
}

async function begin() {
  let found;
  try {
    found = await hello();
  } catch {
    text(byId("live-text"), "the server does not answer, trying again");
    setTimeout(begin, 2000);
    return;
  }
  if (!found.admitted) {
    enter();
    return;
  }
  fill(byId("about"), `Isthmus ${found.version} · ${found.changes ? "changes are allowed" : "read-only"}`,
    found.closes ? [" · ", h("button", { class: "link", onclick: leave }, "sign out")] : null);
  watch(draw);
  addEventListener("hashchange", route);
  setInterval(liveness, 5000);
  route();
  follow();
}

begin();
