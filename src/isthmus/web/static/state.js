// What is known of the flows: pictures from the server, and changes put over them. Everybody reads this; only the
// stream writes it.

import { rank } from "./words.js";

export const state = { hello: null, flows: [], lost: [], course: null, time: 0, number: 0, link: "connecting" };

const watchers = new Set();
let columns = {};
const KEPT = 60;

export function watch(callback) {
  watchers.add(callback);
  return () => watchers.delete(callback);
}

function tell() {
  for (const each of [...watchers]) each(state);
}

export function introduce(hello) {
  state.hello = hello;
  columns = Object.fromEntries(hello.columns.map((name, number) => [name, number + 2]));
}

// The place of a column in a row: [topic number, partition, ...].
export const column = (name) => columns[name];

export function whole(picture) {
  head(picture);
  const before = new Map(state.flows.map((flow) => [flow.flow, flow]));
  state.flows = picture.flows.map((flow) => summed(flow, before.get(flow.flow)));
  tell();
}

// False: something was missed, so the whole is needed again.
export function change(picture) {
  if (picture.after !== state.number) return false;
  head(picture);
  picture.flows.forEach((news, number) => {
    const flow = state.flows[number];
    Object.assign(flow, news.set);
    if (news.all) {
      flow.rows = news.all;
      flow.topics = news.topics;
    }
    for (const row of news.rows ?? []) {
      const kept = flow.rows[row[0]];
      for (let place = 1; place < row.length; place += 1) kept[place + 1] = row[place];
    }
    if (news.point) flow.points.push(news.point);
    if (flow.points.length > 600) flow.points.shift();
    summed(flow, flow);
  });
  tell();
  return true;
}

function head(picture) {
  Object.assign(state, { number: picture.number, time: picture.time, lost: picture.lost, course: picture.course ?? null });
}

export function link(word) {
  if (state.link === word) return;
  state.link = word;
  tell();
}

// Topics, as sums over their partitions.
function summed(flow, before) {
  const at = { verdict: column("verdict"), lag: column("lag"), bytes: column("lag_bytes"), seconds: column("lag_seconds"),
    rate: column("records_per_s"), eta: column("eta_seconds"), trend: column("trend"), code: column("code") };
  const history = before?.byTopic ? new Map(before.byTopic.map((topic) => [topic.name, topic.history])) : new Map();
  const found = flow.topics.map((name) => ({ name, rows: [], verdict: "ok", worst: 0, lag: 0, bytes: 0, seconds: null,
    rate: 0, eta: 0, trend: 0, code: "", partitions: 0, history: history.get(name) ?? [] }));
  for (const row of flow.rows) {
    const topic = found[row[0]];
    topic.rows.push(row);
    const worse = rank(row[at.verdict]);
    if (worse > topic.worst) {
      topic.worst = worse;
      topic.verdict = row[at.verdict];
      topic.code = row[at.code] || topic.code;
    }
    topic.lag += row[at.lag] ?? 0;
    topic.bytes += row[at.bytes] ?? 0;
    if (row[at.seconds] !== null) topic.seconds = Math.max(topic.seconds ?? 0, row[at.seconds]);
    topic.rate += row[at.rate];
    topic.eta = topic.eta === null || row[at.eta] === null ? null : Math.max(topic.eta, row[at.eta]);
    topic.trend += row[at.trend] * (row[at.lag] ?? 0 ? 1 : 0);
  }
  for (const topic of found) {
    topic.partitions = topic.rows.length;
    topic.trend = Math.sign(topic.trend);
    topic.history.push(topic.lag);
    if (topic.history.length > KEPT) topic.history.shift();
  }
  flow.byTopic = found;
  return flow;
}
