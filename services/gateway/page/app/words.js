// Sentences of the gateway: their times in the shown zone, and what they name as links.
import { html } from "./lib.js";
import { nowMs } from "./moment.js";
import { href } from "./route.js";
import { settings } from "./settings.js";
import { iso, moment } from "./text.js";

const TIMES = String.raw`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z`;
const RECORDS = String.raw`\brecord \d+\b`;

/** A text as it stands in a pattern. @param {string} text */
function quoted(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`);
}

/**
 * A sentence in parts: text, and what in it is a time, a record or a node.
 * @param {string} text @param {readonly string[]} nodes @returns {{kind: "text" | "time" | "record" | "node", text: string}[]}
 */
export function partsOf(text, nodes) {
  const names = [...nodes].sort((a, b) => b.length - a.length).map((name) => `(?<![\\w.-])${quoted(name)}(?![\\w-]|\\.\\w)`);
  const found = text.split(new RegExp(`(${[TIMES, RECORDS, ...names].join("|")})`, "g"));
  /** @returns {"time" | "node" | "record"} */
  const kindOf = (/** @type {string} */ part) => /^\d{4}-.*Z$/.test(part) ? "time" : nodes.includes(part) ? "node" : "record";
  return found.map((part, index) => ({ kind: index % 2 ? kindOf(part) : /** @type {const} */ ("text"), text: part })).filter(({ text: part }) => part !== "");
}

/** @param {{text: string, nodes?: readonly string[]}} props `nodes`: the names of nodes that it may have. */
export function Words({ text, nodes = [] }) {
  return partsOf(text, nodes).map(({ kind, text: part }, index) => {
    if (kind === "time") return html`<${Said} key=${`${index} ${settings.zone.value}`} ms=${Date.parse(part)} />`;
    if (kind === "node") return html`<a key=${index} href=${href(["nodes", part])}>${part}</a>`;
    if (kind === "record") return html`<a key=${index} href=${recordHref(part.replace("record ", ""))}>${part}</a>`;
    return part;
  });
}

/** A time of a sentence. @param {{ms: number}} props */
function Said({ ms }) {
  return html`<time datetime=${iso(ms)} title=${`log time ${iso(ms)}`}>${moment(ms, nowMs.value)}</time>`;
}

/** Where one record of the log is shown. @param {string | number} seq */
export function recordHref(seq) {
  return href(["log"], { from: seq, to: seq });
}
