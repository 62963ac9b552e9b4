// A real table of which only the rows in sight exist: thousands of rows cost what a screenful does.

import { attribute, h } from "./dom.js";

const TALL = 40;
const SPARE = 8;

// `columns`: [{title, class, sort}]; `make()` gives {row, update(entry)}; entries are whatever `update` takes.
export function longTable(caption, columns, make, onSort) {
  const heads = columns.map((column) => h("th", { scope: "col", class: column.class },
    column.sort ? h("button", { type: "button", class: "sorter", onclick: () => onSort(column.sort) }, column.title,
      h("span", { class: "arrow", "aria-hidden": "true" })) : column.title));
  const above = h("tr", { class: "spacer", "aria-hidden": "true" }, h("td"));
  const below = h("tr", { class: "spacer", "aria-hidden": "true" }, h("td"));
  const body = h("tbody", null, above, below);
  const grid = h("table", { class: "long" }, h("caption", { class: "unseen" }, caption), h("thead", null, h("tr", { "aria-rowindex": "1" }, heads)), body);
  const box = h("div", { class: "long-box", tabindex: "0", role: "region", "aria-label": caption }, grid);
  let entries = [];
  const shown = new Map();
  let waiting = false;

  box.addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  }, { passive: true });

  function draw() {
    const high = box.clientHeight || 600;
    const first = Math.max(0, Math.min(Math.floor(box.scrollTop / TALL) - SPARE, entries.length - 1));
    const past = Math.min(entries.length, Math.ceil((box.scrollTop + high) / TALL) + SPARE);
    for (const [number, one] of shown) {
      if (number < first || number >= past) {
        one.row.remove();
        shown.delete(number);
      }
    }
    let next = below;
    for (let number = past - 1; number >= first; number -= 1) {
      let one = shown.get(number);
      if (!one) {
        one = make();
        shown.set(number, one);
      }
      if (one.row.nextSibling !== next) body.insertBefore(one.row, next);
      attribute(one.row, "aria-rowindex", number + 2);
      one.update(entries[number]);
      next = one.row;
    }
    above.firstChild.style.height = `${first * TALL}px`;
    below.firstChild.style.height = `${Math.max(0, entries.length - past) * TALL}px`;
  }

  function show(found, sort) {
    entries = found;
    attribute(grid, "aria-rowcount", entries.length + 1);
    columns.forEach((column, number) => {
      if (!column.sort) return;
      const on = sort.by === column.sort;
      attribute(heads[number], "aria-sort", on ? (sort.down ? "descending" : "ascending") : "none");
      heads[number].querySelector(".arrow").textContent = on ? (sort.down ? "▼" : "▲") : "";
    });
    draw();
  }

  return { box, show };
}
