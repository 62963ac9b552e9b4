// Changing sides: choose, look at the plan and what would be lost, type the flow's name, watch the steps, keep the report.

import { fill, h, table } from "./dom.js";
import { state } from "./state.js";
import { post } from "./server.js";
import { chosen, fault, flowChoice } from "./parts.js";
import { clock, count, day, plural } from "./words.js";

const KINDS = {
  switchover: ["Switchover", "Planned. Waits until writers have stopped and everything is across: nothing is lost.",
    { fence_writers: "shut writers out of the source by access rules", move_active: "do not wait until consumers have left" }],
  failover: ["Failover", "The source is gone. Clients go on with what has arrived; the plan says what has not.",
    { source_is_lost: "the source still answers, but is to be given up" }],
  failback: ["Failback", "After one of the two: brings clients back to the source, with everything that is new.",
    { move_active: "do not wait until consumers have left", rebuilt: "the source was built anew and is empty" }],
};

export function sides(view, query) {
  let asked = query;
  const over = (name) => state.flows.some((flow) => flow.flow === name && flow.state === "failed over");
  let kind = over(chosen(query)) ? "failback" : "switchover";
  let shownCourse = "";
  const stage = h("div", { "aria-live": "polite" });
  const course = h("div");
  const flows = h("div");
  fill(view, h("section", { class: "panel", "aria-labelledby": "sides-title" },
    h("h1", { id: "sides-title" }, "Change sides"),
    h("p", { class: "quiet" }, "Clients move from one cluster of a flow to the other. Nothing is changed before you have seen the plan and typed the flow's name."),
    flows, course, stage));

  const finished = () => !state.course || state.course.over;

  function choose() {
    const extras = h("fieldset", { class: "extras" });
    const crossed = h("select", { id: "never-crossed" }, [["", "refuse if there are any"], ["keep", "keep them in side topics"], ["discard", "discard them"]]
      .map(([value, words]) => h("option", { value }, words)));
    const boxes = Object.entries(KINDS).map(([name, [title, words]]) => h("label", { class: "option" },
      h("input", { type: "radio", name: "kind", value: name, checked: name === kind, onchange: () => pick(name) }),
      h("span", null, h("b", null, title), h("br"), words)));
    const form = h("form", { onsubmit: submit }, h("fieldset", null, h("legend", null, "1. What is wanted"), boxes), extras,
      h("button", { class: "primary", type: "submit" }, "Show the plan"));
    const told = h("div");
    fill(stage, form, told);
    pick(kind);

    function pick(name) {
      kind = name;
      fill(extras, h("legend", null, "Besides"), Object.entries(KINDS[name][2]).map(([option, words]) =>
        h("label", { class: "option" }, h("input", { type: "checkbox", name: option }), words)),
      name === "failback" ? h("div", { class: "field" }, h("label", { for: "never-crossed" }, "Records that never crossed"), crossed) : null);
    }

    async function submit(event) {
      event.preventDefault();
      const options = Object.fromEntries([...form.querySelectorAll("input[type=checkbox]")].map((box) => [box.name, box.checked]));
      const wanted = { flow: chosen(asked), kind, ...options, never_crossed: kind === "failback" ? crossed.value : "" };
      const button = form.querySelector("button");
      button.disabled = true;
      fill(told, h("p", { class: "quiet working" }, "Looking at both clusters…"));
      try {
        confirm(await post("/api/sides/plan", wanted));
      } catch (error) {
        fill(told, fault(error));
      } finally {
        button.disabled = false;
      }
    }
  }

  function confirm(plan) {
    const name = h("input", { id: "typed-name", autocomplete: "off", spellcheck: false, "aria-describedby": "typed-why" });
    const go = h("button", { class: "danger", type: "submit", disabled: true }, `Begin the ${plan.kind}`);
    const told = h("div");
    name.addEventListener("input", () => { go.disabled = name.value !== plan.flow; });
    fill(stage, h("div", { class: "plan-of-sides" }, h("h2", null, `2. The plan: ${plan.kind} of ${plan.flow}`), estimate(plan), topics(plan),
      h("ol", { class: "steps" }, plan.steps.map((step) => h("li", null, step)))),
    h("form", { class: "confirm", onsubmit: submit }, h("h2", null, "3. Confirm"),
      h("p", { id: "typed-why" }, "Type the flow's name, ", h("code", null, plan.flow), ", to go on."),
      h("label", { for: "typed-name" }, "Name of the flow"), name,
      h("div", { class: "row" }, go, h("button", { type: "button", onclick: choose }, "Back"))), told);
    stage.querySelector("h2").setAttribute("tabindex", "-1");
    stage.querySelector("h2").focus();

    async function submit(event) {
      event.preventDefault();
      go.disabled = true;
      try {
        const answer = await post("/api/sides/start", { flow: plan.flow, key: plan.key, confirm: name.value });
        state.course = answer.course;
        fill(stage);
        draw(state);
      } catch (error) {
        fill(told, fault(error), h("button", { type: "button", onclick: choose }, "Begin again"));
      }
    }
  }

  function draw(now) {
    const words = JSON.stringify(now.course);
    if (words === shownCourse) return;
    const before = shownCourse ? JSON.parse(shownCourse) : null;
    shownCourse = words;
    fill(course, now.course ? going(now.course) : null);
    if (finished() && before && !before.over) {
      kind = now.course.report && kind !== "failback" ? "failback" : "switchover";
      choose();
    }
    else if (finished() && !stage.firstChild) choose();
    else if (!finished()) fill(stage);
  }

  function turned(next) {
    asked = next;
    fill(flows, flowChoice("failover", chosen(asked), asked));
    if (finished()) choose();
  }

  turned(query);
  return { draw, turn: turned };
}

function estimate(plan) {
  const risk = plan.records_at_risk;
  const back = plan.kind === "failback";
  const rows = [
    [back ? "new on the target" : "not copied yet", count(risk)],
    ["lost if it begins now", plan.kind === "failover" ? (risk ? `${count(risk)} offsets, and what was written since` : "what was written since the source was last heard of") : "nothing: it waits"],
    ["source", plan.source_alive ? "answers" : `does not answer${plan.heard_ms ? `, last heard of ${day(plan.heard_ms / 1000)}` : ""}`],
    ["the flow is run by", plan.driven_by || "nobody"],
    ["consumers at work", Object.keys(plan.groups).join(", ") || "none that can be seen"],
    ["state so far", plan.phase || "none"],
    ["never crossed", plan.never_crossed.length ? `${count(plan.never_crossed.reduce((sum, one) => sum + one.records, 0))} records` : "none"],
  ];
  return h("dl", { class: `figures estimate ${plan.kind === "failover" && risk ? "warn" : ""}` }, rows.map(([title, value]) => h("div", null, h("dt", null, title), h("dd", null, value))));
}

function topics(plan) {
  const sums = new Map();
  for (const row of plan.rows) {
    const one = sums.get(row.topic) ?? { other: row.target_topic, partitions: 0, missing: 0 };
    one.partitions += 1;
    one.missing += row.missing;
    sums.set(row.topic, one);
  }
  const rows = [...sums].sort((one, other) => other[1].missing - one[1].missing).slice(0, 50)
    .map(([name, one]) => [name, one.other, String(one.partitions), count(one.missing)]);
  return [table("Topics", [["Topic", "name"], ["On the other side", "name"], ["Partitions", "number"], [plan.kind === "failback" ? "New" : "Not copied yet", "number"]], rows),
    sums.size > 50 ? h("p", { class: "quiet" }, `and ${plural(sums.size - 50, "topic")} more`) : null];
}

const MARKS = { begun: "…", waits: "⏳", done: "✓" };

function going(course) {
  const steps = new Map();
  for (const step of course.steps) steps.set(step.name, { ...steps.get(step.name), ...step, text: step.text || steps.get(step.name)?.text || "" });
  return h("section", { class: "course", "aria-labelledby": "course-title" },
    h("h2", { id: "course-title" }, `${course.kind} of ${course.flow}: ${course.error ? "ended by an error" : course.report ? "done" : "under way"}`),
    h("ol", { class: "live-steps" }, [...steps.values()].map((step) => h("li", { class: step.state },
      h("span", { class: "sign", "aria-hidden": "true" }, MARKS[step.state] ?? ""), h("b", null, step.name), ` ${step.state === "waits" ? "waits: " : ""}${step.text} `,
      h("span", { class: "quiet" }, clock(step.at))))),
    course.error ? fault({ told: course.error }) : null,
    course.report ? report(course.report) : null);
}

function report(found) {
  const loss = found.kind === "switchover" ? (found.rpo_records ? `${count(found.rpo_records)} offsets were left behind` : "nothing was left behind (RPO 0)")
    : found.kind === "failover" ? `${count(found.rpo_records)} offsets known to be on the source alone; up to ${found.rpo_seconds.toFixed(1)} s before the decision may be, too` : "everything new is back";
  return h("div", { class: "report" }, h("p", null, h("b", null, `Done in ${found.rto_seconds.toFixed(1)} s. `), loss),
    h("h3", null, "What clients need"), h("ul", { class: "checklist" }, found.checklist.map((line) => h("li", null, line))),
    found.notes.map((note) => h("p", { class: "quiet" }, note)),
    h("p", null, h("a", { class: "button", href: "/api/sides/report", download: "isthmus-report.json" }, "Download the report")));
}

