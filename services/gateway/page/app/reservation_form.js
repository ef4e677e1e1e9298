// A form for a reservation, or a series of them, that asks first and sends then.
import { send } from "./api.js";
import { html, useState } from "./lib.js";
import { fixed, nowMs, past } from "./moment.js";
import { Fixed, Table, Time } from "./parts.js";
import { amountsOf } from "./queue.js";
import { href } from "./route.js";
import { session } from "./session.js";
import { settings } from "./settings.js";
import { amounts, clock, day, number, zone } from "./text.js";

const EVERY = /** @type {const} */ ([["", "once"], ["3600", "every hour"], ["86400", "every day"], ["604800", "every week"], ["cron", "by a cron expression"]]);

/** @param {{again: () => void}} props */
export function Form({ again }) {
  const soon = Math.ceil((nowMs.peek() + 60_000) / 60_000) * 60_000;
  const asInput = (/** @type {number} */ ms) => `${day(ms)}T${clock(ms)}`;
  const [fields, setFields] = useState(() => ({ name: "", user: session.value?.user ?? settings.user.value, queue: "default", unit: "cpu 1, memory 1Gi", gang: "1", most: "1", minutes: "10", from: asInput(soon), to: asInput(soon + 3_600_000), every: "", cron: "0 6 * * 1-5" }));
  const [said, setSaid] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const seconds = (/** @type {string} */ text) => Math.floor(Date.parse(settings.zone.value === "log" ? `${text}Z` : text) / 1_000);
  const document_ = () => {
    const lasts = Math.round(Number(fields.minutes) * 60);
    const [from, to] = [seconds(fields.from), seconds(fields.to)];
    const whose = { user: fields.user.trim(), queue: fields.queue.trim() };
    const of = { op: "atom", b: amountsOf(fields.unit), g: Number(fields.gang), h: Number(fields.most), l: lasts, w: lasts * Number(fields.most) };
    if (!fields.every) return { reservation: fields.name.trim(), ...whose, rdl: { op: "window", s: from, e: to, of } };
    // The times of a series count from each occurrence.
    const every = fields.every === "cron" ? { every: fields.cron.trim(), zone: zone() } : { every: Number(fields.every) };
    return { series: fields.name.trim(), ...whose, start_s: from, ...every, rdl: { op: "window", s: 0, e: to - from, of } };
  };
  const ask = async (/** @type {boolean} */ dry) => {
    setBusy(true);
    try {
      setSaid({ dry, answer: await send("POST", `v1/${fields.every ? "series" : "reservations"}${dry ? "?dry_run=true" : ""}`, document_()) });
      if (!dry) again();
    } catch (problem) {
      setSaid({ problem });
    }
    setBusy(false);
  };
  const field = (/** @type {keyof typeof fields} */ name, /** @type {string} */ text, type = "text") => html`<label class="field">${text}<input type=${type} step=${type === "datetime-local" ? 1 : null} required value=${fields[name]} spellcheck=${false}
    onInput=${(/** @type {any} */ event) => { setFields({ ...fields, [name]: event.target.value }); setSaid(null); }} /></label>`;
  const answer = said?.answer;
  return html`<section class="card wide" aria-label="Ask for a reservation"><h2>Ask for one</h2>
    <form class="stack" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); ask(true); }}>
      <div class="form">${field("name", "Name")}${field("user", "For whom")}${field("queue", "Queue")}${field("unit", "One unit is")}${field("gang", "Units at a time at least", "number")}${field("most", "Units at a time at most", "number")}${field("minutes", "Lasts, in minutes", "number")}${field("from", `Not before (${zone()})`, "datetime-local")}${field("to", `Over by (${zone()})`, "datetime-local")}
        <label class="field">Again<select value=${fields.every} onChange=${(/** @type {any} */ event) => { setFields({ ...fields, every: event.target.value }); setSaid(null); }}>${EVERY.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select></label>
        ${fields.every === "cron" && field("cron", `Cron expression (${zone()})`)}</div>
      <p class="row"><button class="main" disabled=${busy || past.value}>${busy ? "Asking …" : "Ask what the answer would be"}</button>${past.value ? html`<${Fixed} />` : html`<span class="hint">Nothing is sent yet.</span>`}</p></form>
    ${said?.problem && html`<p class="trouble" role="alert">${said.problem.message}${said.problem.field ? html` <code>${said.problem.field}</code>` : ""}</p>`}
    ${answer && html`<div class="done stack" role="status">${answer.series && answer.reservation === undefined ? html`<p>${said.dry ? "It would be kept: each occurrence is asked for as a reservation of its own." : "It is kept."} The first window begins at <${Time} ms=${answer.start_s * 1_000} />${fields.every === "cron" ? " or later" : ""}.</p>` : html`<p>${said.dry ? (answer.answer?.accepted ?? answer.accepted) === false ? "It would be refused." : "It would be accepted." : "It is asked for."} ${answer.answer?.detail ?? ""}</p>`}
      ${answer.steps?.length > 0 && html`<${Table} label="The plan"><thead><tr><th>From</th><th>To</th><th class="num">Units</th><th>In all</th></tr></thead><tbody>${answer.steps.map((/** @type {any} */ step, /** @type {number} */ index) => html`<tr key=${index}><td><${Time} ms=${step.from_ms} /></td><td><${Time} ms=${step.to_ms} /></td><td class="num">${number(step.units)}</td><td>${amounts(step.usage)}</td></tr>`)}</tbody><//>`}
      ${said.dry ? html`<p><button type="button" class="main" disabled=${busy || fixed.value !== ""} onClick=${() => ask(false)}>Ask for it</button> <${Fixed} /></p>` : html`<p><a href=${href([fields.every ? "series" : "reservations", fields.name.trim()])}>${fields.every ? "The series" : "The reservation"}</a></p>`}</div>`}
  </section>`;
}
