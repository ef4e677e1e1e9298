// One queue: what it is due and holds, why, and what a change of its weight or limits would do.
import { address, path as apiPath, read, send } from "./api.js";
import { useAhead, useDocument } from "./documents.js";
import { Hindsight } from "./hindsight.js";
import { QueueHistory } from "./history.js";
import { html, useEffect, useState } from "./lib.js";
import { fixed, past } from "./moment.js";
import { walked } from "./tree.js";
import { Ago, Empty, Fact, Facts, Fixed, Shown, State, Table, Time } from "./parts.js";
import { QueueBar, QueueLegend } from "./queue_bar.js";
import { WaitsFor } from "./jobs.js";
import { limitsText } from "./queues.js";
import { href, queueHref } from "./route.js";
import { may } from "./session.js";
import { amount, amounts, counted, label, measured, number, percent } from "./text.js";
import { Why } from "./why.js";

const JOBS_SHOWN = 20;

/** @param {string} path "": the root. */
function whyOf(path) {
  return apiPath("queues", ...(path ? path.split("/") : ["root"]), "why");
}

/** @param {string} path */
function jobsOf(path) {
  return address("v1/jobs", { queue: path, state: ["waiting", "running"], limit: JOBS_SHOWN });
}

/** @param {{path: string}} props `root`: the root itself. */
export function Queue({ path }) {
  const tree = useDocument("v1/queues", ["queues", "jobs", "config", "rounds"], { shared: true });
  useAhead([whyOf(path === "root" ? "" : path), jobsOf(path === "root" ? "" : path)]);
  return html`<${Shown} read=${tree} what=${`queue ${path}`}>${(/** @type {any} */ root) => {
    const all = walked(root);
    const queue = all.find((each) => each.queue === path) ?? (path === "root" ? root : undefined);
    if (!queue) return html`<h1>${path}</h1><${Empty}>There is no such queue at this moment. <a href=${href(["queues"])}>All queues</a>.<//>`;
    const above = all.find((each) => each.children.includes(queue));
    return html`<${Whole} queue=${queue} above=${above} again=${tree.again} />`;
  }}<//>`;
}

/** @param {{queue: any, above: any, again: () => void}} props */
function Whole({ queue, above, again }) {
  const path = queue.queue;
  const fact = (/** @type {string} */ field, /** @type {any} */ value, /** @type {any} */ shown) => html`<${Fact} kind="queue" name=${path} field=${field} value=${value}>${shown}<//>`;
  const share = (/** @type {string} */ field) => fact(field, queue[field], percent(queue[field]));
  const borrowers = (above?.children ?? []).filter((/** @type {any} */ each) => each !== queue && (each.borrowed ?? 0) > 0);
  const used = Object.entries(queue.used);
  return html`
    <div class="head"><h1>${path || "The whole cell"}</h1>${above && html`<p class="none">below <a href=${queueHref(above.queue || "root")}>${above.queue || "the root"}</a></p>`}</div>
    ${queue.breach && html`<p class="trouble"><strong>Below its guarantee for <${Ago} ms=${queue.breach.since_ms} />.</strong> It holds ${percent(queue.breach.allocated)} of ${percent(queue.breach.guaranteed)}.
      ${queue.breach.winner && html` <a href=${queueHref(queue.breach.winner)}>${queue.breach.winner}</a> holds most beyond its own.`} ${queue.breach.placeable ? "Something that waits here would find room." : "Nothing that waits here finds room."}</p>`}
    <div class="grid">
      <section class="card" aria-label="Shares"><h2>Shares of the cell</h2>
        <${QueueBar} queue=${queue} /><${QueueLegend} />
        <${Facts} rows=${[["Holds", html`${share("allocated")}${queue.resource ? html` <span class="none">of ${label(queue.resource)}</span>` : ""}`], ["Fair", share("fair")], ["Guaranteed now", share("guaranteed")], ["Left of its guarantee", share("lent")], ["Borrowed", share("borrowed")],
          ["Weight", fact("weight", queue.weight, number(queue.weight, 6))], ["Policy", queue.policy_in_force], ["Jobs", html`${fact("jobs.running", queue.jobs.running, number(queue.jobs.running))} running, ${fact("jobs.waiting", queue.jobs.waiting, number(queue.jobs.waiting))} waiting${queue.jobs.parked ? html`, ${fact("jobs.parked", queue.jobs.parked, number(queue.jobs.parked))} of them held back by <code>running_jobs_max</code>` : ""}`]]} />
        ${queue.lent > 0 && borrowers.length > 0 && html`<p>It lends, and these beside it borrow: ${borrowers.map((/** @type {any} */ each) => html`<a key=${each.queue} href=${queueHref(each.queue)}>${each.queue}</a> ${percent(each.borrowed)} `)}</p>`}
      </section>
      <section class="card" aria-label="Amounts"><h2>What it holds</h2>
        ${!used.length && html`<${Empty}>Nothing at this moment.<//>`}
        ${used.length > 0 && html`<table><tbody>${used.map(([resource, text]) => html`<tr key=${resource}><th scope="row">${label(resource)}</th><td class="num">${fact(`used.${resource}`, text, measured(resource, amount(/** @type {string} */ (text))))}</td></tr>`)}</tbody></table>`}
        ${Object.keys(queue.promised).length > 0 && html`<p>Promised to its reservations now: ${amounts(queue.promised)}.</p>`}
        <p>${limitsText(queue.limits) || html`<span class="none">No limits of its own.</span>`}</p>
        ${(queue.ignored.guaranteed.length > 0 || queue.ignored.max.length > 0) && html`<p class="attention">Does not count under this preset: ${[queue.ignored.guaranteed.length && `guaranteed ${queue.ignored.guaranteed.join(", ")}`, queue.ignored.max.length && `max ${queue.ignored.max.join(", ")}`].filter(Boolean).join("; ")}.</p>`}
      </section>
      <${Why} where=${whyOf(path)} kinds=${["queues", "jobs", "rounds", "config"]} kind="queue" name=${path} wide heading="Why it has what it has" />
      ${path && !path.includes("/") && html`<${QueueHistory} path=${path} />`}
      ${may("operator") && html`<${Change} key=${path} queue=${queue} again=${again} />`}
      <${JobsHere} path=${path} />
    </div>`;
}

/** @param {{path: string}} props */
function JobsHere({ path }) {
  const found = useDocument(jobsOf(path), ["jobs"]);
  return html`<section class="card wide" aria-label="Jobs"><h2>Jobs here</h2><${Shown} read=${found} what="jobs">${(/** @type {any} */ data) => !data.jobs.length ? html`<${Empty}>No job of it runs or waits.<//>` : html`
    <${Table} label="Jobs of the queue"><thead><tr><th>Job</th><th>State</th><th>User</th><th class="num">Tasks</th><th>Submitted</th><th>Waits for</th></tr></thead><tbody>
      ${data.jobs.map((/** @type {any} */ job) => html`<tr key=${job.job}><th scope="row" class="name"><a href=${href(["jobs", job.job])}>${job.job}</a></th><td><${State} state=${job.state} /></td><td class="name">${job.user || job.author}</td><td class="num">${number(job.tasks.total)}</td><td class="when"><${Time} ms=${job.submitted_ms} /></td><td class="text"><${WaitsFor} job=${job} /></td></tr>`)}</tbody><//>
    <p><a href=${href(["jobs"], { queue: path })}>All jobs of it</a></p>`}<//></section>`;
}

// ---------------------------------------------------------------- a change, as a dry run first
/** A queue of the config by its path. @param {any} tree @param {string} path @returns {any} */
function inTree(tree, path) {
  return path.split("/").filter(Boolean).reduce((at, name) => at?.children?.find((/** @type {any} */ each) => each.name === name), tree);
}

/** Amounts as people write them: `cpu 4, memory 8Gi`. @param {string} text */
export function amountsOf(text) {
  return Object.fromEntries(text.split(",").map((part) => part.trim()).filter(Boolean).map((part) => {
    const [resource = "", ...rest] = part.split(/[\s:=]+/);
    return [resource, rest.join("")];
  }));
}

/** @param {Record<string, string> | null | undefined} vector */
function written(vector) {
  return Object.entries(vector ?? {}).map(([resource, text]) => `${resource} ${text}`).join(", ");
}

/** @param {{queue: any, again: () => void}} props */
function Change({ queue, again }) {
  const path = queue.queue;
  const [fields, setFields] = useState(/** @type {Record<string, string> | null} */ (null));
  const [tried, setTried] = useState(/** @type {any} */ (null));
  const [said, setSaid] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    if (past.value) setTried(null);
  }, [past.value]);

  const begin = () => {
    setSaid(null);
    setTried(null);
    setFields({ weight: String(queue.weight), guaranteed: written(queue.limits.guaranteed), max: written(queue.limits.max), running_jobs_max: String(queue.limits.running_jobs_max ?? "") });
  };
  const body = async () => {
    const config = await read("v1/config");
    const own = config.queues && inTree(config.queues, path);
    if (!own) throw new Error("The config has no such queue. Put a tree in force first: largesse config apply FILE.");
    const { weight = "", guaranteed = "", max = "", running_jobs_max: jobs = "" } = fields ?? {};
    if (path) own.weight = /^[0-9]+(\.[0-9]+)?$/.test(weight.trim()) ? Number(weight) : weight.trim();
    const set = (/** @type {string} */ name, /** @type {any} */ value, /** @type {boolean} */ isThere) => {
      if (isThere) own[name] = value;
      else delete own[name];
    };
    set("guaranteed", amountsOf(guaranteed), guaranteed.trim() !== "");
    set("max", amountsOf(max), max.trim() !== "");
    set("running_jobs_max", Number(jobs), jobs.trim() !== "");
    return { queues: config.queues };
  };
  const run = async (/** @type {boolean} */ dry) => {
    setBusy(true);
    setSaid(null);
    try {
      const answer = await send("PUT", `v1/config${dry ? "?dry_run=true" : ""}`, await body());
      if (dry) setTried(answer);
      else {
        setTried(null);
        setFields(null);
        setSaid({ done: answer.changed, notes: answer.notes });
        again();
      }
    } catch (error) {
      setTried(null);
      setSaid({ problem: error });
    }
    setBusy(false);
  };
  const field = (/** @type {string} */ name, /** @type {string} */ text, /** @type {string} */ hint) => html`<label class="field">${text}<input value=${fields?.[name] ?? ""} placeholder=${hint} spellcheck=${false}
    onInput=${(/** @type {any} */ event) => { setFields({ ...fields, [name]: event.target.value }); setTried(null); }} /></label>`;

  return html`<section class="card wide" aria-label="Change"><h2>Change it</h2>
    ${!fields && html`<p><button type="button" disabled=${past.value} onClick=${begin}>Change weight or limits</button> ${past.value ? html`<${Fixed} />` : html`<span class="hint">First as a dry run: nothing changes until you apply it.</span>`}</p>`}
    ${fields && html`<form class="stack" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); run(true); }}>
      <div class="form">${path && field("weight", "Weight, a number or a fraction", "1")}${field("guaranteed", "Guaranteed", "cpu 4, memory 8Gi")}${field("max", "Max", "none")}${field("running_jobs_max", "Running jobs at most", "no limit")}</div>
      <p class="row"><button class="main" disabled=${busy}>${busy ? "Trying …" : "Try it"}</button><button type="button" disabled=${busy} onClick=${() => setFields(null)}>Leave it as it is</button></p></form>`}
    ${said?.problem && html`<p class="trouble" role="alert">${said.problem.message}${said.problem.field ? html` <code>${said.problem.field}</code>` : ""}</p>`}
    ${said && !said.problem && html`<p class="done" role="status">${said.done ? "It is in force." : "Nothing was different."} ${said.notes?.join(" ")} ${said.done && html`<a href=${href(["log"], { type: "ConfigChanged", order: "desc" })}>Its record</a>`}</p>`}
    ${tried && html`<${Tried} tried=${tried} busy=${busy} body=${body} onApply=${() => run(false)} />`}
  </section>`;
}

/** @param {{tried: any, busy: boolean, body: () => Promise<any>, onApply: () => void}} props */
function Tried({ tried, busy, body, onApply }) {
  const side = (/** @type {any} */ before, /** @type {any} */ after, /** @type {string} */ field) => {
    const [from, to] = [before?.[field] ?? null, after?.[field] ?? null];
    return from === to ? html`<td class="num none">${percent(to)}</td>` : html`<td class="num"><span class="none">${percent(from)} →</span> <strong>${percent(to)}</strong></td>`;
  };
  return html`<div class="stack" role="status"><h3>What would change</h3>
    ${!tried.changed && html`<p>Nothing: it is so already.</p>`}
    ${tried.changed && !tried.queues.length && html`<p>No queue's share moves now.</p>`}
    ${tried.queues.length > 0 && html`<${Table} label="Queues that would change"><thead><tr><th>Queue</th><th>How</th><th class="num">Fair</th><th class="num">Guaranteed now</th><th class="num">Holds</th><th class="num">Weight</th></tr></thead><tbody>
      ${tried.queues.map((/** @type {any} */ row) => html`<tr key=${row.queue}><th scope="row">${row.queue || "root"}</th><td>${{ set: "set", moved: "its share moves", new: "new", gone: "gone" }[/** @type {"set"} */ (row.change)]}</td>
        ${side(row.before, row.after, "fair")}${side(row.before, row.after, "guaranteed")}${side(row.before, row.after, "allocated")}
        <td class="num">${row.before?.weight === row.after?.weight ? row.after?.weight : `${row.before?.weight ?? "–"} → ${row.after?.weight ?? "–"}`}</td></tr>`)}</tbody><//>`}
    ${[...tried.notes, ...tried.warnings].map((/** @type {string} */ text) => html`<p key=${text} class="attention">${text}</p>`)}
    ${tried.changed && html`<${Hindsight} body=${body} />`}
    ${tried.changed && html`<p class="row">${may("admin") && html`<button type="button" class="main" disabled=${busy || fixed.value !== ""} onClick=${onApply}>Apply it</button>`}<${Fixed} /><span class="hint">${counted(tried.queues.length, "queue")} in this list.</span></p>`}</div>`;
}
