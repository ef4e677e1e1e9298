// What the log would have been otherwise: asked of the gateway, or opened from a file of results.
import { ask } from "./api.js";
import { Comparison } from "./comparison.js";
import { useDocument } from "./documents.js";
import { html, useEffect, useRef, useState } from "./lib.js";
import { past, shown } from "./moment.js";
import { Empty } from "./parts.js";
import { amountsOf } from "./queue.js";
import { settings } from "./settings.js";
import { clock, day, number, percent, zone } from "./text.js";
import { Worlds } from "./worlds.js";

/** Policies by name. */
export const PRESETS = [
  "fifo", "sjf", "srtf", "tetris", "tetris-fair", "drf", "hdrf", "naive-hdrf", "collapsed", "capacity", "dress", "rayon",
  "slots", "carbyne", "carbyne-dag", "largesse",
];
const HOURS = 4;
const FILE_BYTES_MAX = 256 << 20;

const FIRST = { preset: "", set: "", remove: "", add: "", add_count: "1", without_jobs: "", without_users: "", slower: "", from: "" };

/** Names in a line. @param {string} text */
function names(text) {
  return text.split(/[\s,]+/).filter(Boolean);
}

/** Knobs as people write them: `KEY=VALUE, KEY=VALUE`. @param {string} text */
export function knobsOf(text) {
  return Object.fromEntries(names(text).map((part) => {
    const [name = "", value = ""] = part.split("=");
    return [name, /^-?[0-9]+$/.test(value) ? Number(value) : value === "true" ? true : value === "false" ? false : value];
  }));
}

/** What is asked. @param {typeof FIRST} fields @param {number} fromMs */
export function question(fields, fromMs) {
  const set = { ...(fields.preset ? { preset: fields.preset } : {}), ...knobsOf(fields.set) };
  return {
    ...(Object.keys(set).length ? { set } : {}),
    ...(fields.add.trim() ? { add_nodes: [{ name: "more", count: Number(fields.add_count) || 1, capacity: amountsOf(fields.add) }] } : {}),
    remove_nodes: names(fields.remove), without_jobs: names(fields.without_jobs), without_users: names(fields.without_users),
    slower_permille: fields.slower.trim() ? Math.round(Number(fields.slower) * 1_000) : 1_000, from_ms: Math.max(0, fromMs),
  };
}

/** Lines of JSON as they come. @param {Response} answer @param {(line: any) => void} tell */
async function lines(answer, tell) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += decoder.decode(value, { stream: true });
    const parts = rest.split("\n");
    rest = parts.pop() ?? "";
    for (const part of parts) if (part) tell(JSON.parse(part));
  }
}

export function WhatIf() {
  const [opened, setOpened] = useState(/** @type {{name: string, document: any} | null} */ (null));
  return html`<div class="head"><h1>What if</h1></div>
    <div class="grid"><${Ask} /><${Open} onOpened=${setOpened} />
    ${opened && html`<section class="card wide" aria-label="Opened results"><${Results} key=${opened.name} ...${opened} /></section>`}</div>`;
}

function Ask() {
  const config = useDocument("v1/config", ["config"]);
  const [fields, setFields] = useState(FIRST);
  const [progress, setProgress] = useState(/** @type {{done: number, of: number | null} | null} */ (null));
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const control = useRef(/** @type {AbortController | null} */ (null));
  useEffect(() => () => control.current?.abort(), []);

  const now = shown.value?.time ?? 0;
  const begin = past.value ? now : now - HOURS * 3_600_000;
  const from = fields.from ? Date.parse(settings.zone.value === "log" ? `${fields.from}Z` : fields.from) : begin;
  const run = async () => {
    control.current = new AbortController();
    setAnswer(null);
    setProblem(null);
    setProgress({ done: 0, of: null });
    try {
      const said = await ask("v1/what-if", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question(fields, from)), signal: control.current.signal });
      await lines(said, (line) => {
        if (line.progress) setProgress(line.progress);
        if (line.answer) setAnswer(line.answer);
        if (line.problem) setProblem(new Error(line.problem.detail));
      });
    } catch (error) {
      if (/** @type {Error} */ (error).name !== "AbortError") setProblem(error);
    }
    control.current = null;
    setProgress(null);
  };
  const field = (/** @type {keyof typeof FIRST} */ name, /** @type {string} */ text, hint = "", type = "text") => html`<label class="field">${text}<input type=${type} step=${type === "datetime-local" ? 1 : null} value=${fields[name] || (name === "from" && begin > 0 ? `${day(begin)}T${clock(begin)}` : "")} placeholder=${hint} spellcheck=${false}
    onInput=${(/** @type {any} */ event) => setFields({ ...fields, [name]: event.target.value })} /></label>`;
  const isBusy = progress !== null;
  return html`<section class="card wide" aria-label="Ask"><h2>Decide the log again</h2>
    <p class="hint">Keeps what came from outside, and makes every decision since a moment again under whatever is different. It changes nothing, and works beside the cell.</p>
    <form class="stack" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); run(); }}>
      <div class="form">
        <label class="field">Preset<select value=${fields.preset} onChange=${(/** @type {any} */ event) => setFields({ ...fields, preset: event.target.value })}><option value="">as it is${config.data ? ` (${config.data.set.preset})` : ""}</option>${PRESETS.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
        ${field("set", "Knobs", "round_gap_ms=100")}${field("from", `From (${zone()})`, "", "datetime-local")}
        ${field("remove", "Without the nodes", "n-3 n-4")}${field("add", "More nodes, each with", "cpu 8, memory 32Gi")}${field("add_count", "How many more", "1", "number")}
        ${field("without_jobs", "Without the jobs", "train-7")}${field("without_users", "Without the users", "ann")}${field("slower", "Commands take, times as long", "1")}</div>
      <p class="row"><button class="main" disabled=${isBusy}>${isBusy ? "Deciding …" : "Decide again"}</button>${isBusy && html`<button type="button" onClick=${() => control.current?.abort()}>Stop</button>`}
        <span class="hint" role="status">${progress && (progress.of ? html`<progress max=${progress.of} value=${progress.done} aria-label="How far it is"></progress> ${percent(progress.done / progress.of)} of ${number(progress.of)} records` : "Starting …")}</span></p></form>
    ${problem && html`<p class="trouble" role="alert">${problem.message}${problem.field ? html` <code>${problem.field}</code>` : ""}</p>`}
    ${answer && html`<${Worlds} answer=${answer} title="The log, decided again" name=${fields.preset || "decided"} />`}</section>`;
}

/** @param {{onOpened: (opened: {name: string, document: any}) => void}} props */
function Open({ onOpened }) {
  const [problem, setProblem] = useState("");
  const load = async (/** @type {any} */ event) => {
    const file = event.target.files?.[0];
    if (!file) return;
    setProblem("");
    try {
      if (file.size > FILE_BYTES_MAX) throw new Error("The file is too large: 256 MiB at most.");
      const document = JSON.parse(await file.text());
      if (!isKnown(document)) throw new Error("The file has no results that are known here.");
      onOpened({ name: file.name, document });
    } catch (error) {
      setProblem(error instanceof SyntaxError ? "The file is no JSON document." : /** @type {Error} */ (error).message);
    }
  };
  return html`<section class="card wide" aria-label="Open"><h2>Or open results</h2>
    <p class="hint">Of <code>largesse compare --json</code>, <code>largesse replay LOG --what-if --json</code> or <code>largesse whatif --json</code>. The file stays in this browser.</p>
    <label class="field">A file<input type="file" accept=".json" onChange=${load} /></label>
    ${problem && html`<p class="trouble" role="alert">${problem}</p>`}</section>`;
}

/** @param {any} document */
function isKnown(document) {
  return Boolean(document && (document.presets || document.answers || (document.recorded && document.decided)));
}

/** Results of a comparison or a what-if, as commands print them. @param {{name: string, document: any}} props */
export function Results({ name, document }) {
  if (document?.presets) return html`<${Comparison} name=${name} results=${document.presets} />`;
  if (document?.answers) {
    return html`<h2>${name}</h2>${Object.entries(document.answers).map(([each, answer]) => html`<${Worlds} key=${each} answer=${answer} name=${each} title=${`Decided again: ${each}`} live=${false} />`)}`;
  }
  if (isKnown(document)) return html`<h2>${name}</h2><${Worlds} answer=${document} live=${false} />`;
  return html`<${Empty}>There are no results that are known here.<//>`;
}

/** Results that `largesse view` serves, and nothing else. */
export function ServedResults() {
  const found = useDocument("v1/results", [], { timed: false });
  if (found.problem) return html`<h1>Results</h1><p class="trouble" role="alert">${found.problem.message}</p>`;
  if (!found.data) return html`<h1>Results</h1><p class="note" role="status">Reading the results …</p>`;
  return html`<h1 class="unseen">Results</h1><div class="card stack"><${Results} name=${found.data.name} document=${found.data.document} /></div>`;
}
