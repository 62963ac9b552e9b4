// Lines over time, drawn as SVG: a few hundred points, a readable scale, values under the pointer.

import { attribute, fill, h, s, text } from "./dom.js";
import { clock } from "./words.js";

const TALL = 150;
const LEFT = 54;
const BOTTOM = 20;

// `lines`: [{name, class, at}] with `at` the place in a point; `tell` turns a value into words.
export function plot(title, lines, tell) {
  const legend = h("ul", { class: "legend" }, lines.map((line) => h("li", { class: line.class },
    h("span", { class: "key", "aria-hidden": "true" }), `${line.name} `, h("b", { "data-line": line.name }, "–"))));
  const grid = s("g", { class: "grid" });
  const areas = lines.map((line) => s("path", { class: `area ${line.class}` }));
  const paths = lines.map((line) => s("path", { class: `line ${line.class}`, fill: "none" }));
  const cross = s("line", { class: "cross", y1: 4, y2: TALL - BOTTOM, hidden: true });
  const picture = s("svg", { role: "img", height: TALL }, s("title", null, title), grid, areas, paths, cross);
  const box = h("figure", { class: "plot" }, h("figcaption", null, h("span", null, title), legend), picture);
  let points = [];
  let pointed = null;
  let width = 0;

  picture.addEventListener("pointermove", (event) => point(event.offsetX));
  picture.addEventListener("pointerleave", () => point(null));

  function point(x) {
    pointed = x === null || points.length < 2 ? null
      : Math.max(0, Math.min(points.length - 1, Math.round(((x - LEFT) / (width - LEFT - 4)) * (points.length - 1))));
    values();
  }

  function values() {
    const shown = points[pointed ?? points.length - 1];
    cross.toggleAttribute("hidden", pointed === null);
    if (pointed !== null) {
      attribute(cross, "x1", across(pointed));
      attribute(cross, "x2", across(pointed));
    }
    lines.forEach((line, number) => {
      const value = shown?.[line.at];
      text(legend.children[number].lastChild, value === null || value === undefined ? "–" : tell(value));
    });
    text(box.querySelector("figcaption span"), pointed === null ? title : `${title} at ${clock(shown[0])}`);
  }

  const across = (number) => LEFT + (number / Math.max(1, points.length - 1)) * (width - LEFT - 4);

  function draw(found) {
    points = found;
    width = Math.max(240, box.clientWidth - 24);
    attribute(picture, "width", width);
    attribute(picture, "viewBox", `0 0 ${width} ${TALL}`);
    const top = scale(Math.max(0, ...points.flatMap((one) => lines.map((line) => one[line.at] ?? 0))));
    const down = (value) => TALL - BOTTOM - (value / top) * (TALL - BOTTOM - 8);
    ticks(grid, top, down, width, points, tell);
    lines.forEach((line, number) => {
      const shape = path(points, line.at, across, down);
      attribute(paths[number], "d", shape.line);
      attribute(areas[number], "d", shape.area);
    });
    attribute(picture, "aria-label", `${title}: ${lines.map((line) => `${line.name} ${tell(points.at(-1)?.[line.at] ?? 0)}`).join(", ")} now`);
    values();
  }

  return { box, draw };
}

function path(points, at, across, down) {
  let line = "";
  let area = "";
  let open = -1;
  points.forEach((one, number) => {
    const value = one[at];
    if (value === null || value === undefined) {
      if (open >= 0) area += `L${across(number - 1).toFixed(1)} ${down(0).toFixed(1)}Z`;
      open = -1;
      return;
    }
    const place = `${across(number).toFixed(1)} ${down(value).toFixed(1)}`;
    line += `${open < 0 ? "M" : "L"}${place}`;
    area += open < 0 ? `M${across(number).toFixed(1)} ${down(0).toFixed(1)}L${place}` : `L${place}`;
    open = number;
  });
  if (open >= 0) area += `L${across(points.length - 1).toFixed(1)} ${down(0).toFixed(1)}Z`;
  return { line, area };
}

// A round number at or above the largest.
function scale(most) {
  if (most <= 0) return 1;
  const unit = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 2.5, 5, 10].map((one) => one * unit).find((one) => one >= most * 1.02) ?? 10 * unit;
}

function ticks(grid, top, down, width, points, tell) {
  const heights = [0, top / 2, top];
  const began = points[0]?.[0];
  const ended = points.at(-1)?.[0];
  fill(grid,
    heights.map((value) => [s("line", { x1: LEFT, x2: width - 4, y1: down(value), y2: down(value) }),
      s("text", { x: LEFT - 6, y: down(value) + 4, "text-anchor": "end" }, tell(value))]),
    began ? s("text", { x: LEFT, y: TALL - 4 }, clock(began)) : null,
    ended && points.length > 1 ? s("text", { x: width - 4, y: TALL - 4, "text-anchor": "end" }, clock(ended)) : null);
}
