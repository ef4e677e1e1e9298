// The cell at a glance: how much there is and who has it, what waits and why, what needs attention.
import { Alarms } from "./alarms.js";
import { useDocument } from "./documents.js";
import { History } from "./history.js";
import { html } from "./lib.js";
import { Ago, Bar, Empty, Fact, Shown, State, Table } from "./parts.js";
import { QueueBar, QueueLegend } from "./queue_bar.js";
import { queueHref, href } from "./route.js";
import { Services, useServices } from "./services.js";
import { amount, label, measured, number, percent } from "./text.js";

export function Overview() {
  const summary = useDocument("v1/summary", ["jobs", "nodes", "queues", "rounds", "config", "reservations", "refused"], { shared: true });
  const reasons = useDocument("v1/reasons", [], { timed: false });
  const reservations = useDocument("v1/reservations", ["reservations"]);
  const services = useServices();
  return html`
    <h1 class="unseen">Overview</h1>
    <${Shown} read=${summary} what="the cell">${(/** @type {any} */ cell) => html`
      <${Alarms} cell=${cell} reservations=${reservations.data?.reservations ?? []} services=${services} again=${summary.again} />
      <div class="grid halves">
        <${Resources} cell=${cell} />
        <${Standing} cell=${cell} />
        <${Waiting} cell=${cell} reasons=${reasons.data?.reasons ?? []} />
        <${TopQueues} root=${cell.queues} />
        <${Services} services=${services} />
      </div>`}<//>
    <div class="grid"><${History} /></div>`;
}

/** @param {{cell: any}} props */
function Resources({ cell }) {
  const rows = Object.entries(cell.capacity).map(([resource, capacity]) => {
    const whole = amount(/** @type {string} */ (capacity));
    const held = amount(cell.used[resource]);
    const promised = amount(cell.queues.promised[resource]);
    return { resource, whole, held, promised, free: Math.max(0, whole - held) };
  });
  const isPromised = rows.some((row) => row.promised > 0);
  return html`<section class="card"><h2>Resources</h2>
    ${!rows.length && html`<${Empty}>No node has registered yet. Start an agent: <code>largesse agent</code>.<//>`}
    ${rows.length > 0 && html`<${Table} label="Resources"><thead><tr><th>Resource</th><th class="num">Held</th>${isPromised && html`<th class="num">Promised</th>`}<th class="num">Free</th><th class="num">Capacity</th></tr></thead>
      <tbody>${rows.map(({ resource, whole, held, promised, free }) => html`<tr key=${resource}>
        <th scope="row">${label(resource)}<${Bar} label=${`${percent(held / whole)} of ${label(resource)} held`} parts=${[{ share: held / whole, look: "held" }]}
          marks=${promised ? [{ share: promised / whole, look: "mark" }] : []} /></th>
        <td class="num"><${Fact} kind="cell" name=${resource} field="used" value=${cell.used[resource]}>${measured(resource, held)}<//><br /><span class="none">${percent(held / whole)}</span></td>
        ${isPromised && html`<td class="num">${promised ? html`<${Fact} kind="cell" name=${resource} field="promised" value=${cell.queues.promised[resource]}>${measured(resource, promised)}<//>` : html`<span class="none">–</span>`}</td>`}
        <td class="num">${measured(resource, free)}</td>
        <td class="num"><${Fact} kind="cell" name=${resource} field="capacity" value=${cell.capacity[resource]}>${measured(resource, whole)}<//></td>
      </tr>`)}</tbody><//>
    <p class="legend"><span><i class="held"></i>held by tasks</span><span><i class="ground"></i>free</span>${isPromised && html`<span><i class="mark"></i>promised to reservations now</span>`}</p>`}
  </section>`;
}

/** @param {{cell: any}} props */
function Standing({ cell }) {
  const jobs = ["running", "waiting", "succeeded", "failed", "cancelled", "rejected"].filter((state) => cell.jobs[state]);
  return html`<section class="card"><h2>Jobs and nodes</h2>
    ${!jobs.length && html`<${Empty}>No job yet. <a href=${href(["submit"])}>Submit one</a>, or <code>largesse submit</code>.<//>`}
    <table><tbody>
      ${jobs.map((state) => html`<tr key=${state}><th scope="row"><a href=${href(["jobs"], { state })}><${State} state=${state} /></a></th>
        <td class="num"><${Fact} kind="jobs" name=${state} field="count" value=${cell.jobs[state]}>${number(cell.jobs[state])} ${cell.jobs[state] === 1 ? "job" : "jobs"}<//></td></tr>`)}
      ${Object.entries(cell.nodes).filter(([, count]) => count).map(([state, count]) => html`<tr key=${`n${state}`}><th scope="row"><a href=${href(["nodes"], { state })}><${State} state=${state} /></a></th>
        <td class="num"><${Fact} kind="nodes" name=${state} field="count" value=${count}>${number(/** @type {number} */ (count))} ${count === 1 ? "node" : "nodes"}<//></td></tr>`)}
    </tbody></table>
    <p class="hint">Preset <${Fact} kind="cell" name="cell" field="preset" value=${cell.preset} />, round <${Fact} kind="cell" name="cell" field="round" value=${cell.round}>${number(cell.round)}<//>, record <${Fact} kind="cell" name="cell" field="seq" value=${cell.seq}>${number(cell.seq)}<//>.</p>
  </section>`;
}

/** @param {{cell: any, reasons: any[]}} props */
function Waiting({ cell, reasons }) {
  /** @type {Map<string, {tasks: number, since: number | null, queues: Map<string, number>}>} */
  const found = new Map();
  for (const { queue, reason, tasks, since_ms: since } of cell.waiting) {
    const row = found.get(reason) ?? { tasks: 0, since: null, queues: new Map() };
    row.tasks += tasks;
    row.since = since === null ? row.since : Math.min(since, row.since ?? since);
    row.queues.set(queue, (row.queues.get(queue) ?? 0) + tasks);
    found.set(reason, row);
  }
  const rows = [...found].sort(([, a], [, b]) => b.tasks - a.tasks);
  return html`<section class="card"><h2>What waits, and why</h2>
    ${!rows.length ? html`<${Empty}>No task waits.<//>` : html`<${Table} label="Waiting tasks by reason"><thead><tr><th>Reason</th><th class="num">Tasks</th><th class="num">Oldest</th></tr></thead>
      <tbody>${rows.map(([reason, { tasks, since, queues }]) => {
        const [most] = [...queues].sort((a, b) => b[1] - a[1]);
        return html`<tr key=${reason}><th scope="row"><code>${reason}</code><br /><span class="hint">${reasons.find((each) => each.reason === reason)?.means ?? ""}${most && html`; most in <a href=${href(["jobs"], { state: "waiting", queue: most[0] })}>${most[0]}</a>`}</span></th>
          <td class="num"><${Fact} kind="waiting" name=${reason} field="tasks" value=${tasks}>${number(tasks)}<//></td>
          <td class="num">${since === null ? "–" : html`<${Ago} ms=${since} />`}</td></tr>`;
      })}</tbody><//>`}
  </section>`;
}

/** @param {{root: any}} props */
function TopQueues({ root }) {
  return html`<section class="card"><h2><a href=${href(["queues"])}>Queues</a></h2>
    <${Table} label="Queues"><thead><tr><th>Queue</th><th class="num">Holds</th><th class="num">Fair</th><th class="num">Running</th><th class="num">Waiting</th></tr></thead>
    <tbody>${root.children.map((/** @type {any} */ queue) => html`<tr key=${queue.queue}>
      <th scope="row" class="name"><a href=${queueHref(queue.queue)}>${queue.queue}</a><${QueueBar} queue=${queue} /></th>
      <td class="num"><${Fact} kind="queue" name=${queue.queue} field="allocated" value=${queue.allocated}>${percent(queue.allocated)}<//></td>
      <td class="num"><${Fact} kind="queue" name=${queue.queue} field="fair" value=${queue.fair}>${percent(queue.fair)}<//></td>
      <td class="num"><${Fact} kind="queue" name=${queue.queue} field="jobs.running" value=${queue.jobs.running}>${number(queue.jobs.running)}<//></td>
      <td class="num"><${Fact} kind="queue" name=${queue.queue} field="jobs.waiting" value=${queue.jobs.waiting}>${number(queue.jobs.waiting)}<//></td></tr>`)}</tbody><//>
    <${QueueLegend} />
  </section>`;
}
