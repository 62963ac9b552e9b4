// How numbers, times and verdicts are told.

export const VERDICTS = ["ok", "unknown", "paused", "catching up", "falling behind", "stalled", "stopped"];

const UNITS = ["", "k", "M", "G", "T", "P"];

export function amount(value) {
  if (value === null || value === undefined) return "?";
  let left = Math.abs(value);
  let unit = 0;
  while (left >= 999.5 && unit < UNITS.length - 1) {
    left /= 1000;
    unit += 1;
  }
  const digits = unit === 0 ? (left < 10 && left % 1 > 0.05 ? 1 : 0) : left < 9.995 ? 2 : left < 99.95 ? 1 : 0;
  return `${value < 0 ? "-" : ""}${left.toFixed(digits)}${UNITS[unit] ? ` ${UNITS[unit]}` : ""}`;
}

export const bytes = (value) => (value === null || value === undefined ? "?" : `${amount(value)}${value >= 999.5 ? "" : " "}B`);

export const count = (value) => (value === null || value === undefined ? "?" : value.toLocaleString("en"));

export function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "?";
  if (seconds < 0.95 && seconds > 0) return `${Math.round(seconds * 10) / 10} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export const milliseconds = (value) =>
  value === null || value === undefined ? "–" : value < 1000 ? `${value} ms` : duration(value / 1000);

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString();

export const day = (seconds) => new Date(seconds * 1000).toLocaleString();

export function rank(verdict) {
  return VERDICTS.indexOf(verdict);
}

// What a flow as a whole is: its worst partition, unless it has something worse to say.
export function told(flow) {
  return flow.state === "running" ? flow.verdict : flow.state;
}

// A kind is a colour and a sign: never a colour alone.
export function kind(word) {
  if (word === "ok") return "good";
  if (word === "catching up" || word === "changing sides") return "busy";
  if (word === "paused" || word === "unknown" || word === "never ran" || word === "failed over") return "still";
  if (word === "falling behind") return "warn";
  return "bad";
}

const SIGNS = { good: "✓", busy: "↗", still: "‖", warn: "▲", bad: "✕" };

export const sign = (word) => (word === "unknown" ? "?" : SIGNS[kind(word)]);

export const TRENDS = { "-1": ["↓", "lag shrinks"], 0: ["→", "lag is steady"], 1: ["↑", "lag grows"] };
