// The picture of who replicates to whom: clusters as boxes, flows as arrows with what passes on them, tunnels as tubes.

import { attribute, fill, h, s, text } from "./dom.js";
import { amount, kind, sign, told } from "./words.js";

const BOX = { width: 148, height: 58 };
const LABEL = { width: 148, height: 60 };
const SAMPLES = 240;

export function topology(place) {
  let drawn = { key: "", edges: [] };
  let last = null;
  const frame = h("div", { class: "topology" });
  place.append(frame);
  const watcher = new ResizeObserver(() => last && draw(last));
  watcher.observe(frame);

  function draw(state) {
    last = state;
    const width = Math.max(280, Math.floor(frame.clientWidth));
    const key = JSON.stringify([width, state.flows.map((flow) => [flow.flow, flow.source.alias, flow.source.tunnel,
      flow.target.alias, flow.target.tunnel])]);
    if (key !== drawn.key) drawn = { key, ...build(frame, state, width) };
    state.flows.forEach((flow, number) => update(drawn.edges[number], flow));
    for (const [alias, node] of drawn.nodes) updateNode(node, alias, state);
  }

  // A few steps a second, by hand: as a CSS animation this would keep the reader's processor busy at every frame.
  let step = 0;
  const travelling = matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : setInterval(() => {
    step = (step + 2) % 15;
    for (const edge of drawn.edges) if (edge.moves) edge.path.setAttribute("stroke-dashoffset", -step);
  }, 120);

  function leave() {
    watcher.disconnect();
    clearInterval(travelling);
  }

  return { draw, leave };
}

function build(frame, state, width) {
  const aliases = [...new Set(state.flows.flatMap((flow) => [flow.source.alias, flow.target.alias]))];
  const layout = places(aliases, width, state.flows.length);
  const pairs = new Set(state.flows.map((flow) => `${flow.source.alias} ${flow.target.alias}`));
  const edges = state.flows.map((flow) => edge(flow, layout, pairs.has(`${flow.target.alias} ${flow.source.alias}`)));
  const nodes = new Map(aliases.map((alias) => [alias, node(alias, layout.at.get(alias))]));
  const words = state.flows.map((flow) => `${flow.source.alias} to ${flow.target.alias}`).join(", ");
  fill(frame, s("svg", { viewBox: `0 0 ${width} ${layout.height}`, width, height: layout.height, role: "img",
    "aria-label": `Flows: ${words}. The cards below tell the same.` },
  arrowHeads(), edges.map((one) => one.tubes), edges.map((one) => one.path), [...nodes.values()].map((one) => one.group),
  edges.map((one) => one.label)));
  return { edges, nodes };
}

// Two side by side (or one above the other where it is narrow), more on an ellipse.
function places(aliases, width, flows) {
  const narrow = width < 560;
  const at = new Map();
  if (aliases.length <= 2) {
    const height = narrow ? (flows > 1 ? 330 : 290) : flows > 1 ? 220 : 124;
    aliases.forEach((alias, number) => at.set(alias, narrow
      ? { x: width / 2, y: number === 0 ? 40 : height - 40 }
      : { x: number === 0 ? 92 : width - 92, y: height / 2 }));
    return { at, height, bend: narrow ? 100 : 118 };
  }
  const height = narrow ? 130 * aliases.length : Math.min(560, 300 + 40 * (aliases.length - 3));
  aliases.forEach((alias, number) => {
    const angle = (2 * Math.PI * number) / aliases.length - Math.PI / 2;
    at.set(alias, { x: width / 2 + Math.cos(angle) * (width / 2 - 86), y: height / 2 + Math.sin(angle) * (height / 2 - 44) });
  });
  return { at, height, bend: narrow ? 60 : 90 };
}

function edge(flow, layout, twoWay) {
  const from = layout.at.get(flow.source.alias);
  const to = layout.at.get(flow.target.alias);
  const points = visible(curve(from, to, twoWay ? layout.bend : 0), from, to);
  const line = (some) => `M${some.map((one) => `${one.x.toFixed(1)} ${one.y.toFixed(1)}`).join("L")}`;
  const path = s("path", { class: "edge", d: line(points), fill: "none" });
  const third = Math.max(2, Math.floor(points.length * 0.3));
  const tubes = [[flow.source.tunnel, points.slice(1, third)], [flow.target.tunnel, points.slice(-third, -2)]]
    .filter(([way, some]) => way && some.length > 1)
    .map(([way, some]) => s("g", { class: "tube" }, s("title", null, `tunnel ${way}`), s("path", { class: "tube-wall", d: line(some) }),
      s("path", { class: "tube-inside", d: line(some) }),
      tubeName(some)));
  const middle = points[points.length >> 1] ?? from;
  return { path, tubes, ...label(middle) };
}

// Above a tube that lies, beside one that stands.
function tubeName(points) {
  const [first, middle, last] = [points[0], points[points.length >> 1], points.at(-1)];
  const stands = Math.abs(last.y - first.y) > Math.abs(last.x - first.x);
  return s("text", { class: "tube-name", x: middle.x + (stands ? 16 : 0), y: middle.y + (stands ? 4 : -15),
    "text-anchor": stands ? "start" : "middle" }, "tunnel");
}

function label(at) {
  const verdict = s("text", { class: "edge-verdict", x: 0, y: -11, "text-anchor": "middle" });
  const rate = s("text", { class: "edge-figure", x: 0, y: 6, "text-anchor": "middle" });
  const lag = s("text", { class: "edge-figure", x: 0, y: 21, "text-anchor": "middle" });
  const box = s("rect", { class: "edge-box", x: -LABEL.width / 2, y: -LABEL.height / 2, width: LABEL.width, height: LABEL.height, rx: 10 });
  return { label: s("g", { class: "edge-label", transform: `translate(${at.x.toFixed(1)} ${at.y.toFixed(1)})` }, box, verdict, rate, lag),
    verdict, rate, lag };
}

function curve(from, to, bend) {
  const far = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const control = { x: (from.x + to.x) / 2 + ((to.y - from.y) / far) * bend, y: (from.y + to.y) / 2 - ((to.x - from.x) / far) * bend };
  return Array.from({ length: SAMPLES + 1 }, (_, number) => {
    const t = number / SAMPLES;
    const [a, b, c] = [(1 - t) ** 2, 2 * (1 - t) * t, t ** 2];
    return { x: a * from.x + b * control.x + c * to.x, y: a * from.y + b * control.y + c * to.y };
  });
}

function visible(points, from, to) {
  const inside = (one, center, gap) =>
    Math.abs(one.x - center.x) < BOX.width / 2 + gap && Math.abs(one.y - center.y) < BOX.height / 2 + gap;
  return points.filter((one) => !inside(one, from, 4) && !inside(one, to, 6));
}

function arrowHeads() {
  return s("defs", null, ["good", "busy", "still", "warn", "bad"].map((one) =>
    s("marker", { id: `head-${one}`, class: `head ${one}`, viewBox: "0 0 10 10", refX: 8, refY: 5, markerWidth: 16, markerHeight: 14,
      orient: "auto-start-reverse", markerUnits: "userSpaceOnUse" }, s("path", { d: "M0 0L10 5L0 10z" }))));
}

function node(alias, at) {
  const name = s("text", { class: "node-name", x: 0, y: -3, "text-anchor": "middle" }, alias.length > 17 ? `${alias.slice(0, 16)}…` : alias);
  const line = s("text", { class: "node-line", x: 0, y: 15, "text-anchor": "middle" });
  const box = s("rect", { x: -BOX.width / 2, y: -BOX.height / 2, width: BOX.width, height: BOX.height, rx: 12 });
  return { group: s("g", { class: "node", transform: `translate(${at.x.toFixed(1)} ${at.y.toFixed(1)})` }, s("title", null, alias), box, name, line), line };
}

function update(edge, flow) {
  const word = told(flow);
  const colour = flow.exit_status && kind(word) === "good" ? "warn" : kind(word);
  edge.moves = flow.records_per_s > 0;
  attribute(edge.path, "class", `edge ${colour}${edge.moves ? " moving" : ""}`);
  attribute(edge.path, "marker-end", `url(#head-${colour})`);
  attribute(edge.label, "class", `edge-label ${colour}`);
  text(edge.verdict, `${sign(word)} ${word}`);
  text(edge.rate, `${amount(flow.records_per_s)} records/s`);
  text(edge.lag, `lag ${amount(flow.lag)}`);
}

function updateNode(node, alias, state) {
  const sides = state.flows.flatMap((flow) => [flow.source, flow.target]).filter((side) => side.alias === alias);
  const gone = sides.some((side) => !side.answers);
  attribute(node.group, "class", `node ${gone ? "bad" : ""}`);
  text(node.line, gone ? "does not answer" : "answers");
}
