// Reservations that recur: their terms, and what became of their occurrences.
import { path, send } from "./api.js";
import { Action } from "./act.js";
import { useDocument } from "./documents.js";
import { html } from "./lib.js";
import { Empty, Fact, Facts, Fixed, Shown, State, Table, Time } from "./parts.js";
import { extent } from "./plan.js";
import { href, queueHref } from "./route.js";
import { amounts, duration, number } from "./text.js";

const SHOWN_MAX = 200;

/** How often, in words. @param {any} row */
function every(row) {
  return /^[0-9]+$/.test(row.every) ? `every ${duration(Number(row.every) * 1_000)}` : html`<code>${row.every}</code> in ${row.zone}`;
}

export function SeriesList() {
  const found = useDocument("v1/series", ["series", "reservations"]);
  const rows = found.data?.series ?? [];
  if (!rows.length) return null;
  return html`<section class="card wide" aria-label="Series"><h2>Series</h2><${Table} label="Reservations that recur"><thead><tr><th>Series</th><th>Recurs</th><th>Queue</th><th>User</th><th class="num">Occurrences asked for</th><th>The latest begins</th></tr></thead><tbody>
    ${rows.slice(0, SHOWN_MAX).map((/** @type {any} */ row) => html`<tr key=${row.series}><th scope="row" class="name"><a href=${href(["series", row.series])}>${row.series}</a></th><td>${every(row)}</td><td class="name"><a href=${queueHref(row.queue)}>${row.queue}</a></td><td class="name">${row.user}</td>
      <td class="num"><${Fact} kind="series" name=${row.series} field="occurrences" value=${row.occurrences}>${number(row.occurrences)}<//></td><td class="when"><${Time} ms=${row.asked_s === null ? null : row.asked_s * 1_000} /></td></tr>`)}</tbody><//></section>`;
}

/** @param {{name: string}} props */
export function Series({ name }) {
  const found = useDocument(path("series", name), ["series"]);
  const all = useDocument("v1/reservations", ["reservations"]);
  return html`<${Shown} read=${found} what=${`series ${name}`}>${(/** @type {any} */ row) => {
    const occurrences = (all.data?.reservations ?? []).filter((/** @type {any} */ each) => each.series === name);
    return html`<div class="head"><h1>${name}</h1><p class="none">a reservation that recurs</p><p class="row"><${Fixed} /><${Action} label="End it" grave title=${`End ${name}`} what="Its occurrences that have not begun are given back. The others go on." run=${() => send("DELETE", `${path("series", name)}?user=${encodeURIComponent(row.user)}`)} log=${{ type: "SeriesEnded" }} done="It is ended." after=${found.again} /></p></div>
      <div class="grid"><section class="card wide" aria-label="Facts"><${Facts} rows=${[["Recurs", every(row)], ["Queue", html`<a href=${queueHref(row.queue)}>${row.queue}</a>`], ["User", row.user], ["Requested", html`<${Time} ms=${row.requested_ms} />`], ["First at", html`<${Time} ms=${row.start_s * 1_000} />`],
          ["Asked for up to", row.asked_s !== null && html`<${Time} ms=${row.asked_s * 1_000} />`], ["Occurrences asked for", html`<${Fact} kind="series" name=${name} field="occurrences" value=${row.occurrences}>${number(row.occurrences)}<//>`]].filter(([, value]) => value !== false)} /></section>
        <section class="card wide" aria-label="Occurrences"><h2>Occurrences</h2>${!occurrences.length ? html`<${Empty}>None has been asked for yet: each is as soon as it lies within the time that can be planned.<//>` : html`<${Table} label="Occurrences"><thead><tr><th>Reservation</th><th>State</th><th>From</th><th>To</th><th>At most</th><th>Answer</th></tr></thead><tbody>
          ${occurrences.slice(0, SHOWN_MAX).map((/** @type {any} */ each) => {
            const span = extent(each);
            const most = each.steps.reduce((/** @type {any} */ best, /** @type {any} */ step) => !best || step.units > best.units ? step : best, null);
            return html`<tr key=${each.reservation}><th scope="row" class="name"><a href=${href(["reservations", each.reservation])}>${each.reservation}</a></th><td><${State} state=${each.state} /></td><td class="when">${span ? html`<${Time} ms=${span.from} />` : "–"}</td><td class="when">${span ? html`<${Time} ms=${span.to} />` : "–"}</td><td>${most ? amounts(most.usage) : "–"}</td><td class="text">${each.answer ? each.answer.detail || each.answer.reason : "not answered yet"}</td></tr>`;
          })}</tbody><//>`}</section>
        <section class="card wide" aria-label="Terms"><h2>Terms</h2><p class="hint">Times count from each occurrence.</p><pre tabindex="0" role="group" aria-label="Terms">${JSON.stringify(row.rdl, null, 2)}</pre></section></div>`;
  }}<//>`;
}
