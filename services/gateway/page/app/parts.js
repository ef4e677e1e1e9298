// Small parts that every view is made of.
import { html, useEffect, useRef } from "./lib.js";
import { fixed, nowMs, past } from "./moment.js";
import { here } from "./route.js";
import { settings } from "./settings.js";
import { counted, duration, iso, moment, named, percent } from "./text.js";
import { Words } from "./words.js";

/**
 * One fact, as it is shown, with the value of the API beside it.
 * @param {{kind: string, name: string, field: string, value: any, children?: any}} props
 */
export function Fact({ kind, name, field, value, children }) {
  return html`<data class="fact" value=${String(value)} data-kind=${kind} data-name=${name} data-field=${field}
    data-value=${value === null || value === undefined ? "" : String(value)}>${children ?? String(value)}</data>`;
}

/** A time in the shown zone, with log time. @param {{ms: number | null | undefined}} props */
export function Time({ ms }) {
  if (ms === null || ms === undefined) return html`<span class="none">–</span>`;
  return html`<time datetime=${iso(ms)} title=${`log time ${iso(ms)}`} key=${settings.zone.value}>${moment(ms, nowMs.value)}</time>`;
}

/** How long ago a time was. @param {{ms: number}} props */
export function Ago({ ms }) {
  return html`<time datetime=${iso(ms)} title=${`log time ${iso(ms)}`}>${duration(Math.max(0, nowMs.value - ms))}</time>`;
}

/** @type {Record<string, string>} */
const SIGNS = {
  running: "▶", succeeded: "✓", failed: "✕", waiting: "…", cancelled: "–", rejected: "✕", skipped: "–", unfinished: "–",
  ready: "●", draining: "◒", unschedulable: "◒", lost: "✕", left: "○", removed: "○", starting: "▷",
  accepted: "✓", requested: "…", broken: "✕", ended: "–", deleted: "–", recurs: "↻",
};
const ATTENTION = ["failed", "lost", "broken", "rejected", "unschedulable"];

/** A state: a sign, and the word. @param {{state: string}} props */
export function State({ state }) {
  return html`<span class=${`state state-${state}${ATTENTION.includes(state) ? " attention" : ""}`}><span class="sign" aria-hidden="true">${SIGNS[state] ?? "·"}</span>${state}</span>`;
}

/** @param {{what: string}} props */
export function Loading({ what }) {
  return html`<p class="note" role="status">Reading ${what} …</p>`;
}

/** Why something cannot be shown, and what to do. @param {{problem: any, again?: () => void}} props */
export function Trouble({ problem, again }) {
  const hint = problem.status === 0 ? "Is the cell still running? Nothing needs to be done once it is back."
    : problem.status === 404 ? "Go back, or look for another name."
    : problem.status === 503 ? "The gateway is busy or still reading its log: the page tries again."
    : problem.status === 422 && past.value ? "Choose another moment, or go back to now." : "";
  return html`<div class="trouble" role="alert">
    <p><strong><${Words} text=${problem.message} /></strong></p>
    ${hint && html`<p>${hint}</p>`}
    <p class="row">
      ${again && html`<button type="button" onClick=${again}>Try again</button>`}
      ${past.value && html`<a class="button" href=${here({ at: null })}>Back to now</a>`}
    </p>
  </div>`;
}

/** Why buttons beside this cannot be pressed; nothing where they can. */
export function Fixed() {
  return fixed.value ? html`<span class="hint">Nothing can be changed: ${fixed.value}.</span>` : null;
}

/** What to do where there is nothing. @param {{children?: any}} props */
export function Empty({ children }) {
  return html`<p class="note empty">${children}</p>`;
}

/**
 * The document of a read, or what stands in its place.
 * @param {{read: import("./documents.js").Read<any>, what: string, children: (data: any) => any}} props
 */
export function Shown({ read, what, children }) {
  const { data, problem, busy, again } = read;
  if (data === null) return problem ? html`<${Trouble} ...${{ problem, again }} />` : html`<${Loading} what=${what} />`;
  return html`<div class="shown" aria-busy=${busy}>
    ${problem && html`<${Trouble} ...${{ problem, again }} />`}${children(data)}
  </div>`;
}

/**
 * A bar of parts of a whole, drawn beside numbers that say the same.
 * @param {{parts: {share: number, look: string}[], marks?: {share: number, look: string}[], label: string}} props
 */
export function Bar({ parts, marks = [], label }) {
  let from = 0;
  const drawn = parts.map(({ share, look }) => {
    const width = Math.max(0, Math.min(1 - from, Number.isFinite(share) ? share : 0));
    const part = html`<rect class=${look} x=${from * 100} y="0" width=${width * 100} height="10" />`;
    from += width;
    return part;
  });
  return html`<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label=${label}>
    <rect class="ground" width="100" height="10" />${drawn}
    ${marks.filter(({ share }) => share > 0).map(({ share, look }) => html`<line class=${look} x1=${Math.min(1, share) * 100} x2=${Math.min(1, share) * 100} y1="0" y2="10" />`)}
  </svg>`;
}

/** A share of the cell with its raw value. @param {{name: string, field: string, value: number | null}} props */
export function Share({ name, field, value }) {
  return html`<${Fact} kind="queue" ...${{ name, field, value }}>${percent(value)}<//>`;
}

/**
 * A table that scrolls sideways by itself where the window is narrow.
 * @param {{label: string, class?: string, children?: any}} props
 */
export function Table({ label, class: look = "", children }) {
  return html`<div class="scrolls" role="group" aria-label=${label} tabindex="0"><table class=${look}>${children}</table></div>`;
}

/**
 * The head of a column by which the server sorts.
 * @param {{by: string, sort: string, onSort: (sort: string) => void, class?: string, children?: any}} props
 */
export function SortHead({ by, sort, onSort, class: look = "", children }) {
  const now = sort === by ? "ascending" : sort === `-${by}` ? "descending" : "none";
  const next = now === "ascending" ? `-${by}` : by;
  return html`<th class=${look} scope="col" aria-sort=${now}>
    <button type="button" class="sort" onClick=${() => onSort(next)}>${children}<span aria-hidden="true">${{ ascending: " ▲", descending: " ▼", none: "" }[now]}</span></button>
  </th>`;
}

/**
 * Which part of a list is shown, and how to go on.
 * @param {{offset: number, shown: number, total: number | null, size: number, onOffset: (offset: number) => void, what: string}} props
 */
export function Window({ offset, shown, total, size, onOffset, what }) {
  const more = total === null ? shown >= size : offset + shown < total;
  return html`<nav class="window" aria-label=${`Part of the list of ${what}`}>
    <button type="button" disabled=${offset === 0} onClick=${() => onOffset(Math.max(0, offset - size))}>Earlier rows</button>
    <span role="status">${shown ? `${offset + 1}–${offset + shown}` : "none"}${total === null ? "" : ` of ${counted(total, what.replace(/s$/, ""), what)}`}</span>
    <button type="button" disabled=${!more} onClick=${() => onOffset(offset + size)}>Further rows</button>
  </nav>`;
}

/**
 * A question before a change. @param {{title: string, onClose: () => void, children?: any}} props
 */
export function Dialog({ title, onClose, children }) {
  const ref = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    ref.current?.showModal();
  }, []);
  return html`<dialog ref=${ref} aria-label=${title} onClose=${onClose}>
    <h2>${title}</h2>${children}
  </dialog>`;
}

/** Amounts, one below the other. @param {{of: Record<string, string>}} props */
export function Amounts({ of }) {
  const rows = Object.entries(of);
  return rows.length ? html`<ul class="amounts">${rows.map(([resource, text]) => html`<li key=${resource}>${named(resource, text)}</li>`)}</ul>` : html`<span class="none">–</span>`;
}

/** A list of names and values. @param {{rows: [string, any][]}} props */
export function Facts({ rows }) {
  return html`<dl class="facts">${rows.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}
