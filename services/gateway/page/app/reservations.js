// Reservations: what is promised when, and to whom.
import { path, send } from "./api.js";
import { Action } from "./act.js";
import { useCanvas } from "./canvas.js";
import { useDocument } from "./documents.js";
import { html, useState } from "./lib.js";
import { colour } from "./lines.js";
import { nowMs, past, shown } from "./moment.js";
import { Empty, Fact, Facts, Fixed, Shown, State, Table, Time } from "./parts.js";
import { extent } from "./plan.js";
import { Form } from "./reservation_form.js";
import { href, queueHref } from "./route.js";
import { SeriesList } from "./series.js";
import { may, mayChange } from "./session.js";
import { amount, amounts, label, measured, moment, number } from "./text.js";
import { Why } from "./why.js";
import { Words } from "./words.js";

const HEIGHT = 190;
const SHOWN_MAX = 200;

export function Reservations() {
  const found = useDocument("v1/reservations", ["reservations"]);
  const cell = useDocument("v1/summary", ["nodes", "reservations"], { everyMs: 5_000, shared: true });
  const [all, setAll] = useState(false);
  return html`<div class="head"><h1>Reservations</h1></div>
    <${Shown} read=${found} what="the reservations">${(/** @type {any} */ data) => {
      const rows = data.reservations.filter((/** @type {any} */ row) => all || !["ended", "deleted"].includes(row.state));
      return html`<div class="grid">
        ${rows.some((/** @type {any} */ row) => row.steps.length) && html`<section class="card wide" aria-label="Plan"><h2>What is promised when</h2><${Plan} rows=${rows.filter((/** @type {any} */ row) => row.state === "accepted")} capacity=${cell.data?.capacity ?? {}} /></section>`}
        <section class="card wide" aria-label="List"><div class="row"><h2>Reservations</h2><label class="hint row"><input type="checkbox" checked=${all} onChange=${(/** @type {any} */ event) => setAll(event.target.checked)} /> with those that are over</label></div>
          ${!rows.length ? html`<${Empty}>Nothing is reserved. Ask for a window below, or with <code>largesse reserve submit</code>.<//>` : html`<${Table} label="Reservations"><thead><tr><th>Reservation</th><th>State</th><th>Queue</th><th>User</th><th>From</th><th>To</th><th>At most</th><th>Answer</th></tr></thead><tbody>
            ${rows.slice(0, SHOWN_MAX).map((/** @type {any} */ row) => html`<${Row} key=${row.reservation} row=${row} />`)}</tbody><//>`}
          ${rows.length > SHOWN_MAX && html`<p class="note">The first ${SHOWN_MAX} of ${number(rows.length)}.</p>`}</section>
        <${SeriesList} />
        ${may("submitter") && shown.value && html`<${Form} again=${found.again} />`}</div>`;
    }}<//>`;
}

/** @param {{row: any}} props */
function Row({ row }) {
  const span = extent(row);
  const most = row.steps.reduce((/** @type {any} */ best, /** @type {any} */ step) => !best || step.units > best.units ? step : best, null);
  return html`<tr><th scope="row" class="name"><a href=${href(["reservations", row.reservation])}>${row.reservation}</a></th>
    <td><${Fact} kind="reservation" name=${row.reservation} field="state" value=${row.state}><${State} state=${row.state} /><//></td><td class="name"><a href=${queueHref(row.queue)}>${row.queue}</a></td><td class="name">${row.user}</td>
    <td class="when">${span ? html`<${Time} ms=${span.from} />` : "–"}</td><td class="when">${span ? html`<${Time} ms=${span.to} />` : "–"}</td><td>${most ? amounts(most.usage) : "–"}</td>
    <td class="text">${row.answer ? row.answer.detail || row.answer.reason : "not answered yet"}</td></tr>`;
}

/** Capacity that is promised over time, one reservation on the other. @param {{rows: any[], capacity: Record<string, string>}} props */
function Plan({ rows, capacity }) {
  const resources = [...new Set(rows.flatMap((row) => row.steps.flatMap((/** @type {any} */ step) => Object.keys(step.usage))))].sort();
  const [chosen, setChosen] = useState("cpu");
  const resource = resources.includes(chosen) ? chosen : resources[0] ?? "cpu";
  const now = nowMs.value;
  const open = rows.filter((row) => row.steps.some((/** @type {any} */ step) => step.to_ms > now));
  const from = Math.min(now, ...open.map((row) => extent(row)?.from ?? now));
  const to = Math.max(now + 60_000, ...open.map((row) => extent(row)?.to ?? now));
  const edges = [...new Set([from, to, ...open.flatMap((row) => row.steps.flatMap((/** @type {any} */ step) => [step.from_ms, step.to_ms]))])].sort((a, b) => a - b);
  const whole = amount(capacity[resource]) || Math.max(1, ...rows.flatMap((row) => row.steps.map((/** @type {any} */ step) => amount(step.usage[resource]))));
  const at = (/** @type {any} */ row, /** @type {number} */ ms) => row.steps.filter((/** @type {any} */ step) => step.from_ms <= ms && ms < step.to_ms).reduce((/** @type {number} */ sum, /** @type {any} */ step) => sum + amount(step.usage[resource]), 0);
  const { ref } = useCanvas((context, wide) => {
    const [soft, mid, calm, line, ink, inkSoft] = ["calm-soft", "calm-mid", "calm", "line", "ink", "ink-soft"].map(colour);
    const high = HEIGHT - 20;
    const x = (/** @type {number} */ ms) => (ms - from) / (to - from) * (wide - 1);
    context.font = "11px system-ui, sans-serif";
    context.strokeStyle = /** @type {string} */ (line);
    context.strokeRect(0.5, 0.5, wide - 1, high);
    for (let index = 0; index + 1 < edges.length; index += 1) {
      const [begin, end] = [edges[index] ?? 0, edges[index + 1] ?? 0];
      let below = 0;
      open.forEach((row, order) => {
        const promised = at(row, begin);
        if (!promised) return;
        context.fillStyle = /** @type {string} */ ([calm, mid, soft][order % 3]);
        const top = high - Math.min(1, (below + promised) / whole) * high;
        context.fillRect(x(begin), top, Math.max(1, x(end) - x(begin)), high - Math.min(1, below / whole) * high - top);
        below += promised;
      });
    }
    context.strokeStyle = /** @type {string} */ (ink);
    context.setLineDash([3, 3]);
    context.beginPath();
    context.moveTo(x(now), 0);
    context.lineTo(x(now), high);
    context.stroke();
    context.setLineDash([]);
    context.fillStyle = /** @type {string} */ (inkSoft);
    context.textBaseline = "middle";
    context.fillText(moment(from, now), 0, HEIGHT - 8);
    const last = moment(to, now);
    context.fillText(last, wide - context.measureText(last).width, HEIGHT - 8);
    context.fillText(measured(resource, whole), 5, 12);
  }, () => HEIGHT, [rows, resource, whole, now]);
  return html`<label class="row hint">of <select value=${resource} onChange=${(/** @type {any} */ event) => setChosen(event.target.value)}>${resources.map((each) => html`<option value=${each}>${label(each)}</option>`)}</select></label>
    <div class="canvas"><canvas ref=${ref} role="img" aria-label=${`${label(resource)} that is promised from ${moment(from)} to ${moment(to)}: ${open.map((row) => row.reservation).join(", ")}`}></canvas></div>
    <p class="legend">${open.slice(0, 12).map((row, index) => html`<span key=${row.reservation}><i class=${["held", "mid", "soft"][index % 3]}></i>${row.reservation}</span>`)}${open.length > 12 && html`<span>and ${open.length - 12} more</span>`}<span>┊ ${past.value ? "the moment shown" : "now"}</span></p>`;
}

/** @param {{name: string}} props */
export function Reservation({ name }) {
  const found = useDocument(path("reservations", name), ["reservations"]);
  return html`<${Shown} read=${found} what=${`reservation ${name}`}>${(/** @type {any} */ row) => html`
    <div class="head"><h1>${name}</h1><${Fact} kind="reservation" name=${name} field="state" value=${row.state}><${State} state=${row.state} /><//>
      <p class="row"><${Fixed} /><${Action} label="Give it back" offered=${["requested", "accepted", "broken"].includes(row.state) && mayChange(row.user, row.queue)} grave title=${`Give ${name} back`} what="What is promised to it becomes free for others. Its jobs go on without it." run=${() => send("DELETE", `${path("reservations", name)}?user=${encodeURIComponent(row.user)}`)} log=${{ reservation: name }} done="It is given back." after=${found.again} /></p></div>
    <div class="grid"><section class="card" aria-label="Facts"><${Facts} rows=${[["Queue", html`<a href=${queueHref(row.queue)}>${row.queue}</a>`], ["User", row.user], ["Requested", html`<${Time} ms=${row.requested_ms} />`], ["Answered", html`<${Time} ms=${row.answered_ms} />`],
        ["Answer", row.answer && html`<${Words} text=${row.answer.detail || row.answer.reason} />`], ["Offered instead", row.answer && row.answer.offer_from_ms !== null && html`<${Time} ms=${row.answer.offer_from_ms} /> to <${Time} ms=${row.answer.offer_to_ms} />`],
        ["Series", row.series && html`<a href=${href(["series", row.series])}>${row.series}</a>`], ["Moved", row.moved ? `${number(row.moved)} times: ${row.moved_why}` : ""], ["Progress", row.progress]].filter(([, value]) => value !== false)} />
        <p><a href=${href(["jobs"], { reservation: name })}>Jobs that run under it</a></p></section>
      <${Why} where=${path("reservations", name, "why")} kinds=${["reservations", "jobs"]} kind="reservation" name=${name} />
      <section class="card wide" aria-label="Steps"><h2>What is promised</h2>${!row.steps.length ? html`<${Empty}>No plan.<//>` : html`<${Table} label="Steps"><thead><tr><th>From</th><th>To</th><th class="num">Units</th><th>In all</th><th>Atom</th></tr></thead><tbody>
        ${row.steps.map((/** @type {any} */ step, /** @type {number} */ index) => html`<tr key=${index}><td class="when"><${Time} ms=${step.from_ms} /></td><td class="when"><${Time} ms=${step.to_ms} /></td><td class="num"><${Fact} kind="step" name=${`${name}/${index}`} field="units" value=${step.units}>${number(step.units)}<//></td><td>${amounts(step.usage)}</td><td>${step.atom}</td></tr>`)}</tbody><//>`}</section>
      <section class="card wide" aria-label="Terms"><h2>Terms</h2><pre tabindex="0" role="group" aria-label="Terms">${JSON.stringify(row.rdl, null, 2)}</pre></section></div>`}<//>`;
}
