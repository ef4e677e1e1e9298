// A job from a form, a text or a file.
import { send } from "./api.js";
import { html, useState } from "./lib.js";
import { past } from "./moment.js";
import { href } from "./route.js";

const FILE_BYTES_MAX = 900 << 10;
const FIRST = { job: "", queue: "default", tasks: "1", cpu: "1", memory: "512Mi", command: "echo hello" };

/** A spec of one stage. JSON is YAML, too. @param {typeof FIRST} fields */
export function specOf(fields) {
  return JSON.stringify({
    job: fields.job.trim(), queue: fields.queue.trim(),
    stages: [{ stage: "main", tasks: Number(fields.tasks), demand: { cpu: fields.cpu.trim(), memory: fields.memory.trim() }, command: ["sh", "-c", fields.command] }],
  }, null, 2);
}

export function Submit() {
  const [fields, setFields] = useState(FIRST);
  const [text, setText] = useState(/** @type {string | null} */ (null));
  const [said, setSaid] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const spec = text ?? specOf(fields);
  const submit = async () => {
    setBusy(true);
    try {
      setSaid({ answer: await send("POST", "v1/jobs", spec) });
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
    <form class="card stack" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); submit(); }}>
      <h2>A job of one stage</h2>
      <div class="form">${field("job", "Name")}${field("queue", "Queue")}${field("tasks", "Tasks", "number")}${field("cpu", "CPU of a task, in cores")}${field("memory", "Memory of a task")}<div class="whole">${field("command", "Command, for sh")}</div></div>
      <h2>Or any spec, as YAML or JSON</h2>
      <label class="field">From a file<input type="file" accept=".yaml,.yml,.json" onChange=${load} /></label>
      <label class="field">What is sent<textarea rows="14" spellcheck=${false} value=${spec} onInput=${(/** @type {any} */ event) => { setText(event.target.value); setSaid(null); }}></textarea></label>
      <p class="row"><button class="main" disabled=${busy || past.value}>${busy ? "Sending …" : "Submit"}</button>${text !== null && html`<button type="button" onClick=${() => setText(null)}>Back to the form</button>`}
        <span class="hint">The cell checks every field before it takes a job.</span></p>
      ${said?.problem && html`<p class="trouble" role="alert">${said.problem.message}${said.problem.field ? html` <code>${said.problem.field}</code>` : ""}</p>`}
      ${said?.answer && html`<div class="done stack" role="status"><p>${{ waiting: "It is submitted.", repeated: "The cell has this very job already.", unanswered: "It is sent; the log has not answered yet." }[/** @type {"waiting"} */ (said.answer.state)]} <a href=${href(["jobs", said.answer.job])}>${said.answer.job}</a>, <a href=${href(["log"], { job: said.answer.job, order: "desc" })}>its records</a></p>
        ${said.answer.warnings?.map((/** @type {string} */ warning) => html`<p key=${warning} class="attention">${warning}</p>`)}</div>`}
    </form>`;
}
