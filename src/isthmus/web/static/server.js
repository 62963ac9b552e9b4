// Talking with the server: questions, deeds, and the stream of pictures.

import { change, introduce, link, state, whole } from "./state.js";

export class Refused extends Error {
  constructor(told, status) {
    super(told.error || "it failed");
    this.told = told;
    this.status = status;
  }
}

async function answered(response) {
  const told = await response.json().catch(() => ({ error: `the server answered ${response.status}`, code: "" }));
  if (!response.ok) throw new Refused(told, response.status);
  return told;
}

export async function ask(path) {
  return answered(await fetch(path, { credentials: "same-origin" }));
}

export async function post(path, body) {
  const headers = { "content-type": "application/json", "x-isthmus-csrf": state.hello.csrf };
  return answered(await fetch(path, { method: "POST", headers, body: JSON.stringify(body), credentials: "same-origin" }));
}

export async function hello() {
  const told = await ask("/api/hello");
  if (told.admitted) introduce(told);
  else state.hello = told;
  return told;
}

let source = null;

// How long updates take can be seen in the browser's own tools, and by `python -m tests.browser.measure`.
function timed(name, work) {
  const start = performance.now();
  work();
  performance.clearMeasures(name);
  performance.measure(name, { start });
}

export function follow() {
  source?.close();
  source = new EventSource("/api/stream");
  source.addEventListener("whole", (event) => timed("whole", () => {
    link("live");
    whole(JSON.parse(event.data));
  }));
  source.addEventListener("change", (event) => timed("change", () => {
    link("live");
    if (!change(JSON.parse(event.data))) follow();
  }));
  source.addEventListener("error", () => {
    link("away");
    if (source.readyState === EventSource.CLOSED) setTimeout(again, 3000);
  });
}

// A server that was started anew knows neither our session nor our value against forged requests.
async function again() {
  try {
    const told = await hello();
    if (told.admitted) follow();
    else location.reload();
  } catch {
    setTimeout(again, 3000);
  }
}

// Nobody looks at a hidden page: the server need not look for it either.
document.addEventListener("visibilitychange", () => {
  if (!state.hello?.admitted) return;
  if (document.hidden) {
    source?.close();
    source = null;
  } else if (source === null) follow();
});
