// Elements, made without markup: whatever comes from a cluster becomes text, never HTML.

const SVG = "http://www.w3.org/2000/svg";

function put(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.setAttribute("class", value);
    else if (name in node && !(node instanceof SVGElement) && typeof value !== "string") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(4).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

export function h(name, attributes, ...children) {
  return put(document.createElement(name), attributes, children);
}

export function s(name, attributes, ...children) {
  return put(document.createElementNS(SVG, name), attributes, children);
}

export function text(node, value) {
  const wanted = String(value);
  if (node.textContent !== wanted) node.textContent = wanted;
}

export function attribute(node, name, value) {
  const wanted = String(value);
  if (node.getAttribute(name) !== wanted) node.setAttribute(name, wanted);
}

export function fill(node, ...children) {
  node.replaceChildren(...children.flat(4).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

export const byId = (id) => document.getElementById(id);

// A table of plain rows, with real headers. `columns`: [title, class].
export function table(caption, columns, rows) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: "plain" },
      h("caption", { class: "unseen" }, caption),
      h("thead", null, h("tr", null, columns.map(([title, kind]) => h("th", { scope: "col", class: kind }, title)))),
      h("tbody", null, rows.map((row) => h("tr", null,
        row.map((cell, number) => h("td", { class: columns[number][1], "data-title": columns[number][0] }, cell)))))));
}
