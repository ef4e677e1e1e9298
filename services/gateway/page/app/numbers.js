// The numbers of a reason as a table: with units, rounded, and long lists folded.
import { html } from "./lib.js";
import { Table, Time } from "./parts.js";
import { href, queueHref } from "./route.js";
import { amount, duration, label, measured, number, percent } from "./text.js";
import { recordHref } from "./words.js";

/** A list with more rows than this is folded. */
const OPEN_MAX = 6;
const DEEP_MAX = 6;
/** What is a part of the cell. */
const SHARES = ["held", "fair", "guaranteed", "lent", "borrowed", "due"];
/** What is a moment of the log. The other names that end in `_ms` are spans of time. */
const MOMENTS = ["since_ms", "until_ms", "from_ms", "to_ms", "at_ms", "submitted_ms", "started_ms", "ended_ms", "start_ms", "end_ms", "complete_ms", "earliest_ms", "likely_ms", "latest_ms"];
/** What counts things by resource, and is no amount of it. */
const COUNTS = ["full", "too_small", "short_of"];

/** The names of nodes in the numbers of a reason. @param {any} numbers @returns {string[]} */
export function nodesOf(numbers) {
  const { named_nodes: named, node, nodes } = numbers;
  return [...named ?? [], ...typeof node === "string" ? [node] : [], ...nodes !== null && typeof nodes === "object" ? Object.keys(nodes) : []];
}

/** A number in words: of a moment, a span, a share, an amount. @param {string} key @param {any} value @param {string} above the name of what it is in */
export function worded(key, value, above = "") {
  if (value === null) return "–";
  if (key === "queue") return html`<a href=${queueHref(value)}>${value}</a>`;
  if (key === "node" || above === "named_nodes") return html`<a href=${href(["nodes", value])}>${value}</a>`;
  if (key === "job") return html`<a href=${href(["jobs", value])}>${value}</a>`;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string") return /^[0-9.]+[a-zA-Z]{0,2}$/.test(value) && above && !COUNTS.includes(above) && above !== "labels" ? measured(key, amount(value)) : value;
  if (MOMENTS.includes(key)) return html`<${Time} ms=${value} />`;
  if (key.endsWith("_ms")) return duration(value);
  if (key.endsWith("_permille")) return percent(value / 1_000);
  if (key === "seq" || key === "granted") return html`<a href=${recordHref(value)}>${number(value)}</a>`;
  if (SHARES.includes(key)) return percent(value);
  return number(value);
}

/** How many rows a value takes. @param {any} value @returns {number} */
function rowsOf(value) {
  return value === null || typeof value !== "object" ? 1 : Object.values(value).reduce((sum, each) => sum + rowsOf(each), 0);
}

/** @param {string} key @param {string} above @param {boolean} isListed */
function headOf(key, above, isListed) {
  if (isListed) return String(Number(key) + 1);
  if (above === "nodes") return html`<a href=${href(["nodes", key])}>${key}</a>`;
  if (above === "jobs" && !["waiting", "running", "parked"].includes(key)) return html`<a href=${href(["jobs", key])}>${key}</a>`;
  return above ? label(key) : key.replaceAll("_", " ").replace(/ ms$/, "");
}

/** @param {{of: any, label: string}} props */
export function Numbers({ of, label: what }) {
  return html`<${Table} label=${what}><tbody>${rows(of, "", 0)}</tbody><//>`;
}

/** @param {any} of @param {string} above @param {number} deep @returns {any[]} */
function rows(of, above, deep) {
  return Object.entries(of).flatMap(([key, value]) => {
    const head = headOf(key, above, Array.isArray(of));
    if (value === null || typeof value !== "object") return [html`<tr key=${key}><th scope="row">${head}</th><td class="num">${worded(key, value, above)}</td></tr>`];
    const count = rowsOf(value);
    if (!count || deep > DEEP_MAX) return [];
    if (key === "labels") return [html`<tr key=${key}><th scope="row">${head}</th><td class="num">${Object.entries(value).map(([name, text]) => `${name}=${text}`).join(", ")}</td></tr>`];
    const inner = html`<table><tbody>${rows(value, key, deep + 1)}</tbody></table>`;
    return [html`<tr key=${key}><th scope="row">${head}</th><td>${count > OPEN_MAX ? html`<details><summary>${number(count)} numbers</summary>${inner}</details>` : inner}</td></tr>`];
  });
}
