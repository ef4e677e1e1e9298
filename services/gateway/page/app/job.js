// One job: its stages, why it is where it is, its attempts, output, records, and what can be done with it.
import { path, send } from "./api.js";
import { Action } from "./act.js";
import { useAhead, useDocument } from "./documents.js";
import { Gantt } from "./gantt.js";
import { Graph } from "./graph.js";
import { JobShare } from "./job_share.js";
import { html } from "./lib.js";
import { nowMs } from "./moment.js";
import { Output } from "./output.js";
import { Bar, Fact, Facts, Fixed, Shown, State, Table, Time } from "./parts.js";
import { Records, SIZE_BESIDE } from "./records.js";
import { href, queueHref } from "./route.js";
import { mayChange } from "./session.js";
import { amount, amounts, counted, duration, measured, number, percent } from "./text.js";
import { Why } from "./why.js";
import { recordHref, Words } from "./words.js";

/** @param {{name: string}} props */
export function Job({ name }) {
  const found = useDocument(path("jobs", name), [`jobs/${name}`]);
  useAhead([path("jobs", name, "why"), path("jobs", name, "attempts")]);
  return html`<${Shown} read=${found} what=${`job ${name}`}>${(/** @type {any} */ job) => html`<${Whole} job=${job} again=${found.again} />`}<//>`;
}

/** @param {{job: any, again: () => void}} props */
function Whole({ job, again }) {
  const name = job.job;
  const fact = (/** @type {string} */ field, /** @type {any} */ value, /** @type {any} */ shown) => html`<${Fact} kind="job" name=${name} field=${field} value=${value}>${shown}<//>`;
  return html`
    <div class="head"><h1>${name}</h1>${fact("state", job.state, html`<${State} state=${job.state} />`)}<p class="row"><${Actions} job=${job} again=${again} /></p></div>
    <div class="grid">
      <section class="card wide" aria-label="Facts"><${Facts} rows=${[
        ["Queue", html`<a href=${queueHref(job.queue)}>${job.queue}</a>`],
        ["User", job.user || `${job.author} (who submitted it)`],
        ["Class", job.class && html`<a href=${href(["classes"])}>${job.class}</a>`],
        ["Priority", fact("priority", job.priority, number(job.priority))],
        ["Tasks", html`${fact("tasks.succeeded", job.tasks.succeeded, number(job.tasks.succeeded))} of ${fact("tasks.total", job.tasks.total, number(job.tasks.total))} succeeded${job.tasks.failed_attempts ? html`, ${fact("tasks.failed_attempts", job.tasks.failed_attempts, number(job.tasks.failed_attempts))} attempts failed` : ""}`],
        ["Submitted", html`<${Time} ms=${job.submitted_ms} />`],
        ["Started", html`<${Time} ms=${job.started_ms} />`],
        ["Ended", job.ended_ms !== null && html`<${Time} ms=${job.ended_ms} />`],
        [job.ended_ms === null ? "So far" : "Took", duration((job.ended_ms ?? nowMs.value) - job.submitted_ms)],
        ["Run", job.run > 1 && number(job.run)],
        ["Held", job.held && html`${job.held.by === "after_jobs" ? "for the jobs that it comes after" : `by ${job.held.by}`} since <${Time} ms=${job.held.since_ms} />`],
        ["Reservation", job.reservation && html`<a href=${href(["reservations", job.reservation])}>${job.reservation}</a>`],
        ["Ended how", (job.detail || job.reason) && html`<span class=${job.state === "failed" || job.state === "rejected" ? "attention" : ""}>${job.detail || job.reason}</span>`],
      ].filter(([, value]) => value !== false)} /></section>
      ${job.stages.length > 1 && html`<section class="card wide" aria-label="Graph of stages"><h2>Graph</h2><${Graph} stages=${job.stages} /></section>`}
      <${Why} where=${path("jobs", name, "why")} kinds=${[`jobs/${name}`]} kind="job" name=${name} wide />
      <${Stages} job=${job} />
      <${Output} job=${job} />
      <section class="card wide" aria-label="Attempts"><h2>Attempts by node</h2><${Gantt} where=${path("jobs", name, "attempts")} by="node" kind=${`jobs/${name}`} /></section>
      ${job.failures.length > 0 && html`<${Failures} job=${job} />`}
      <${JobShare} job=${job} />
      <${Usage} job=${job} />
      ${job.results.length > 0 && html`<section class="card wide" aria-label="Results"><h2>Results</h2><${Table} label="Folders with results"><thead><tr><th>Node</th><th>Folder</th><th>Kept until</th></tr></thead><tbody>
        ${job.results.map((/** @type {any} */ row) => html`<tr key=${row.node}><th scope="row"><a href=${href(["nodes", row.node])}>${row.node}</a></th><td class="text"><code>${row.folder}</code></td><td>${row.until_ms === null ? "the job ends, and longer" : html`<${Time} ms=${row.until_ms} />`}</td></tr>`)}</tbody><//></section>`}
      <section class="card wide" aria-label="Records"><h2>Records</h2><${Records} query=${{ job: name }} kinds=${[`jobs/${name}`]} size=${SIZE_BESIDE} /></section>
    </div>`;
}

/** @param {{job: any, again: () => void}} props */
function Actions({ job, again }) {
  const name = job.job;
  if (!mayChange(job.user || job.author, job.queue)) return null;
  const where = path("jobs", name);
  const log = { job: name };
  const isLive = job.ended_ms === null;
  return html`<${Fixed} />
    <${Action} label="Run again" offered=${!isLive} title=${`Run ${name} again`} what="All of it runs again, as it was submitted, under the same name." run=${() => send("POST", `${where}/rerun`, {})} log=${log} done="It runs again." after=${again} />
    ${isLive ? "" : html`<a class="button" href=${href(["submit"], { like: name, at: null })}>Submit another like it</a>`}
    <${Action} label="Release" offered=${isLive && job.held !== null} title=${`Release ${name}`} what="Its tasks may start again." run=${() => send("PATCH", where, { hold: false })} log=${log} done="It is released." after=${again} />
    <${Action} label="Hold" offered=${isLive && job.held === null} title=${`Hold ${name}`} what="No further task of it starts. What runs goes on." run=${() => send("PATCH", where, { hold: true })} log=${log} done="It is held." after=${again} />
    <${Action} label="Cancel" offered=${isLive} grave title=${`Cancel ${name}`} what="Its tasks are ended, and it cannot be continued." run=${() => send("DELETE", where)} log=${log} done="It is cancelled." after=${again} />`;
}

/** @param {{job: any}} props */
function Stages({ job }) {
  return html`<section class="card wide" aria-label="Stages"><h2>Stages</h2><${Table} label="Stages"><thead><tr><th>Stage</th><th>State</th><th class="num">Succeeded</th><th class="num">Running</th><th class="num">Waiting</th><th class="num">Failed</th><th class="num">Tasks</th><th>A task asks for</th><th>Nodes</th><th>Waits for</th></tr></thead>
    <tbody>${job.stages.map((/** @type {any} */ stage) => {
      const count = (/** @type {string} */ field) => html`<${Fact} kind="stage" name=${`${job.job}/${stage.stage}`} field=${`tasks.${field}`} value=${stage.tasks[field]}>${number(stage.tasks[field])}<//>`;
      const nodes = Object.entries(stage.nodes);
      return html`<tr key=${stage.stage}><th scope="row" class="name">${stage.stage}${stage.gang ? html` <span class="none">gang of ${number(stage.tasks.total)}</span>` : ""}
          <${Bar} label="tasks" parts=${[{ share: stage.tasks.succeeded / stage.tasks.total, look: "held" }, { share: (stage.tasks.running + stage.tasks.starting) / stage.tasks.total, look: "mid" }, { share: stage.tasks.failed / stage.tasks.total, look: "bad" }]} /></th>
        <td><${State} state=${stage.state} /></td><td class="num">${count("succeeded")}</td><td class="num">${count("running")}</td><td class="num">${count("waiting")}</td>
        <td class=${`num${stage.tasks.failed ? " attention" : ""}`}>${count("failed")}</td><td class="num">${count("total")}</td>
        <td>${stage.demand ? amounts(stage.demand) || "nothing" : html`<span class="none">kept no longer</span>`}${Object.keys(stage.labels ?? {}).length > 0 && html`<br /><span class="hint">on nodes with ${Object.entries(stage.labels).map(([key, value]) => `${key}=${value}`).join(", ")}</span>`}</td>
        <td class="name">${nodes.slice(0, 6).map(([node, tasks]) => html`<a key=${node} href=${href(["nodes", node])}>${node}</a> ${number(Number(tasks))} `)}${nodes.length > 6 && `and ${number(nodes.length - 6)} more`}</td>
        <td class="text">${stage.why.map((/** @type {any} */ row) => html`<p key=${row.reason}>${counted(row.tasks, "task")}: <code title=${row.text}>${row.reason}</code></p>`)}${stage.revocable && html`<p><${Words} text=${stage.revocable.text} /></p>`}</td></tr>`;
    })}</tbody><//></section>`;
}

/** @param {{job: any}} props */
function Failures({ job }) {
  return html`<section class="card wide" aria-label="Failed attempts"><h2>Failed attempts</h2><${Table} label="Failed attempts"><thead><tr><th>Task</th><th class="num">Attempt</th><th>Node</th><th>Reason</th><th class="num">Exit code</th><th>When</th><th class="num">Ran</th><th>Record</th></tr></thead>
    <tbody>${job.failures.map((/** @type {any} */ row) => html`<tr key=${`${row.stage}/${row.index}/${row.attempt}`}><th scope="row">${row.stage}/${row.index}</th><td class="num">${row.attempt}</td><td><a href=${href(["nodes", row.node])}>${row.node}</a></td>
      <td class="text"><span class="attention">${row.reason}</span> ${row.detail}</td><td class="num">${row.exit_code ?? "–"}</td><td class="when"><${Time} ms=${row.at_ms} /></td><td class="num">${duration(row.run_ms)}</td>
      <td>${row.seq ? html`<a href=${recordHref(row.seq)}>${number(row.seq)}</a>` : "–"}</td></tr>`)}</tbody><//></section>`;
}

/** What tasks used against what they asked for. @param {{job: any}} props */
function Usage({ job }) {
  const rows = job.stages.filter((/** @type {any} */ stage) => stage.usage);
  if (!rows.length) return null;
  return html`<section class="card wide" aria-label="Usage"><h2>What tasks used</h2><${Table} label="Usage by stage"><thead><tr><th>Stage</th><th class="num">Memory, at most</th><th class="num">CPU, at most</th><th class="num">CPU time in all</th><th>Counts for</th></tr></thead>
    <tbody>${rows.map((/** @type {any} */ stage) => html`<tr key=${stage.stage}><th scope="row">${stage.stage}</th>
      <td class="num"><${Used} kind="memory" used=${stage.usage.peak_memory} asked=${stage.demand?.memory} /></td>
      <td class="num"><${Used} kind="cpu" used=${stage.usage.peak_cpu} asked=${stage.demand?.cpu} /></td>
      <td class="num">${duration(stage.usage.cpu_ms)}</td>
      <td class="text">${stage.counted ? `${Object.entries(stage.counted.counted).map(([kind, text]) => `${measured(kind, amount(/** @type {string} */ (text)))} of ${measured(kind, amount(stage.counted.asked[kind]))} asked for`).join(", ")}, by its last ${stage.counted.runs} runs` : "what it asks for"}</td></tr>`)}</tbody><//></section>`;
}

/** A peak beside what a task asked for. @param {{kind: string, used: string | null, asked: string | undefined}} props */
function Used({ kind, used, asked }) {
  if (used === null) return html`<span class="none">not measured</span>`;
  const part = asked ? amount(used) / amount(asked) : null;
  return html`${measured(kind, amount(used))}${part === null ? "" : html` <span class="none">of ${measured(kind, amount(asked))} asked for</span><${Bar} label=${`${percent(part)} of what a task asks for`} parts=${[{ share: part, look: part > 1 ? "bad" : "held" }]} />`}`;
}
