// A job from a form, a text or a file.
import { path, read, send } from "./api.js";
import { html, useEffect, useState } from "./lib.js";
import { fixed } from "./moment.js";
import { Facts, Fixed, Table } from "./parts.js";
import { href, queueHref, route } from "./route.js";
import { counted, duration, number, percent } from "./text.js";

const FILE_BYTES_MAX = 900 << 10;
const FIRST = { job: "", queue: "default", tasks: "1", cpu: "1", memory: "512Mi", command: "echo hello" };

/** A spec of one stage. JSON is YAML, too. @param {typeof FIRST} fields */
export function specOf(fields) {
  return JSON.stringify({
    job: fields.job.trim(), queue: fields.queue.trim(),
    stages: [{ stage: "main", tasks: Number(fields.tasks), demand: { cpu: fields.cpu.trim(), memory: fields.memory.trim() }, command: ["sh", "-c", fields.command] }],
  }, null, 2);
}

/** Another name: the next number at its end. @param {string} name */
export function another(name) {
  const found = /^(.*?)-([0-9]{1,9})$/.exec(name);
  return found ? `${found[1]}-${Number(found[2]) + 1}` : `${name}-2`;
}

export function Submit() {
  const [fields, setFields] = useState(FIRST);
  const [text, setText] = useState(/** @type {string | null} */ (null));
  const [said, setSaid] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const like = route.value.query.get("like");
  useEffect(() => {
    if (!like) return undefined;
    const control = new AbortController();
    read(path("jobs", like, "spec"), control.signal).then(({ spec: { job, ...rest } }) => setText(JSON.stringify({ job: another(job), ...rest }, null, 2)), (problem) => {
      if (!control.signal.aborted) setSaid({ problem });
    });
    return () => control.abort();
  }, [like]);
  const spec = text ?? specOf(fields);
  const submit = async (/** @type {boolean} */ dry) => {
    setBusy(true);
    setSaid(null);
    try {
      setSaid({ answer: await send("POST", `v1/jobs${dry ? "?dry_run=true" : ""}`, spec) });
    } catch (problem) {
      setSaid({ problem });
    }
    setBusy(false);
  };
  const load = async (/** @type {any} */ event) => {
    const file = event.target.files?.[0];
    if (!file) return;
    if (file.size > FILE_BYTES_MAX) setSaid({ problem: new Error("A spec has at most 900 KiB.") });
    else {
      setText(await file.text());
      setSaid(null);
    }
  };
  const field = (/** @type {keyof typeof FIRST} */ name, /** @type {string} */ says, type = "text") => html`<label class="field">${says}<input type=${type} min=${type === "number" ? 1 : null} value=${fields[name]} disabled=${text !== null} spellcheck=${false} onInput=${(/** @type {any} */ event) => setFields({ ...fields, [name]: event.target.value })} /></label>`;
  return html`<div class="head"><h1>Submit a job</h1></div>
    <form class="card stack" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); submit(true); }}>
      <h2>A job of one stage</h2>
      <div class="form">${field("job", "Name")}${field("queue", "Queue")}${field("tasks", "Tasks", "number")}${field("cpu", "CPU of a task, in cores")}${field("memory", "Memory of a task")}<div class="whole">${field("command", "Command, for sh")}</div></div>
      <h2>Or any spec, as YAML or JSON</h2>
      <label class="field">From a file<input type="file" accept=".yaml,.yml,.json" onChange=${load} /></label>
      <label class="field">What is sent<textarea rows="14" spellcheck=${false} value=${spec} onInput=${(/** @type {any} */ event) => { setText(event.target.value); setSaid(null); }}></textarea></label>
      <p class="row"><button disabled=${busy || fixed.value !== ""}>${busy ? "Asking …" : "Try it"}</button><button type="button" class="main" disabled=${busy || fixed.value !== ""} onClick=${() => submit(false)}>Submit</button><${Fixed} />${text !== null && html`<button type="button" onClick=${() => setText(null)}>Back to the form</button>`}
        <span class="hint">A try submits nothing, and says what would become of the job.</span></p>
      ${said?.problem && html`<p class="trouble" role="alert">${said.problem.message}${said.problem.field ? html` <code>${said.problem.field}</code>` : ""}</p>`}
      ${said?.answer?.dry_run && html`<${Tried} answer=${said.answer} />`}
      ${said?.answer && !said.answer.dry_run && html`<div class="done stack" role="status"><p>${{ waiting: "It is submitted.", repeated: "The cell has this very job already.", unanswered: "It is sent; the log has not answered yet." }[/** @type {"waiting"} */ (said.answer.state)]} <a href=${href(["jobs", said.answer.job])}>${said.answer.job}</a>, <a href=${href(["log"], { job: said.answer.job, order: "desc" })}>its records</a></p>
        ${said.answer.warnings?.map((/** @type {string} */ warning) => html`<p key=${warning} class="attention">${warning}</p>`)}</div>`}
    </form>`;
}

/** What would become of the job. @param {{answer: any}} props */
function Tried({ answer }) {
  const { shares, places = [], waiting = 0, start, reasons = [], at } = answer;
  const now = at?.time ?? Date.now();
  const ahead = (/** @type {number | null} */ ms) => ms === null ? "not known" : `in ${duration(Math.max(0, ms - now))}`;
  const started = places.reduce((/** @type {number} */ sum, /** @type {any} */ row) => sum + row.tasks, 0);
  return html`<div class="done stack" role="status"><p><strong>${answer.state === "repeated" ? "The cell has this very job already." : "It would be admitted."}</strong> Nothing has been submitted.</p>
    <${Facts} rows=${[["Class", answer.class], ["Queue", answer.queue && html`<a href=${queueHref(answer.queue)}>${answer.queue}</a>`], ["Its queue holds", shares && percent(shares.allocated)], ["Its fair share is", shares && percent(shares.fair)],
      ["In the next round", `${counted(started, "task")} would start, ${number(waiting)} would wait`], ["The next task starts", start && `${ahead(start.earliest_ms)} at the earliest, likely ${ahead(start.likely_ms)}`]]} />
    ${places.length > 0 && html`<${Table} label="Where tasks would start"><thead><tr><th>Stage</th><th>Node</th><th class="num">Tasks</th></tr></thead><tbody>${places.map((/** @type {any} */ row) => html`<tr key=${`${row.stage}/${row.node}`}><th scope="row">${row.stage}</th><td><a href=${href(["nodes", row.node])}>${row.node}</a></td><td class="num">${number(row.tasks)}</td></tr>`)}</tbody><//>`}
    ${reasons.map((/** @type {any} */ row) => html`<p key=${row.reason}><code>${row.reason}</code> ${row.text}</p>`)}
    ${answer.warnings.map((/** @type {string} */ warning) => html`<p key=${warning} class="attention">${warning}</p>`)}</div>`;
}
