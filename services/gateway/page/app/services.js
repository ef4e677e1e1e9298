// Which instances of each service serve the cell, and which of them stand by.
import { useDocument } from "./documents.js";
import { html, useEffect } from "./lib.js";
import { past, recorded } from "./moment.js";
import { Ago, Fact, Table } from "./parts.js";
import { counted, number } from "./text.js";

const LOOK_MS = 10_000;
/** What comes of it where nobody answers for a service; of others rounds wait. @type {Record<string, string>} */
const WITHOUT = { estimator: "nothing is forecast", planner: "no reservation is answered" };

/** The services now; null where there is nothing to tell: in the past, of a log, of a cell in one process. */
export function useServices() {
  const where = past.value || recorded.value ? null : "v1/services";
  const found = useDocument(where, [], { timed: false });
  useEffect(() => {
    if (where === null) return undefined;
    const timer = setInterval(() => { if (!document.hidden) found.again(); }, LOOK_MS);
    return () => clearInterval(timer);
  }, [where]);
  return where === null || found.data?.alone ? null : found.data;
}

/** @param {{services: any}} props */
export function Services({ services }) {
  if (services === null) return null;
  return html`<section class="card" aria-label="Services"><h2>Services</h2>
    ${services.refused ? html`<p class="note">Who takes part is not told: ${services.refused}</p>` : html`<${Table} label="Instances of services"><thead><tr><th>Service</th><th class="num">Serve</th><th class="num">Stand by</th><th>Where</th></tr></thead>
      <tbody>${services.services.map((/** @type {any} */ row) => {
        const serving = row.instances.filter((/** @type {any} */ each) => each.serves);
        const hosts = [...new Set(row.instances.map((/** @type {any} */ each) => each.host))];
        return html`<tr key=${row.service}><th scope="row">${row.service}</th>
          <td class=${`num${serving.length || !services.settled ? "" : " attention"}`}><${Fact} kind="service" name=${row.service} field="serving" value=${serving.length}>${number(serving.length)}<//></td>
          <td class="num"><${Fact} kind="service" name=${row.service} field="standing_by" value=${row.instances.length - serving.length}>${number(row.instances.length - serving.length)}<//></td>
          <td class="text">${hosts.join(", ") || "–"}</td></tr>`;
      })}</tbody><//>
      <p class="hint">${services.settled ? "An instance that is gone is told for some 10 s more." : "Instances have come or gone just now: what each serves is being dealt out."} The sequencer, <code>admission</code>, is in no group: its standby shows once it writes.</p>`}
  </section>`;
}

/** Services that nobody answers for, and standbys that are gone. @param {any} services */
export function ofInstances(services) {
  if (services === null || services.refused) return [];
  return services.services.map((/** @type {any} */ row) => {
    const left = row.instances.length;
    if (!left) return html`<li key=${`i${row.service}`}>No instance of <code>${row.service}</code> takes part: ${WITHOUT[row.service] ?? "rounds wait for it"}. Start one: <code>python -m services.${row.service}</code>.</li>`;
    return row.lost > 0 && html`<li key=${`i${row.service}`}><code>${row.service}</code> has lost ${counted(row.lost, "instance")} <${Ago} ms=${row.lost_since_ms} /> ago: ${left === 1 ? "1 is left, and nothing stands by" : `${number(left)} are left`}. Start another, or leave it so: it is told for a day.</li>`;
  }).filter(Boolean);
}
