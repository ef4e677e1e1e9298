// Output of a task as it comes, stdout and stderr apart.
import { address, ask, path } from "./api.js";
import { html, useEffect, useRef, useState } from "./lib.js";
import { recorded } from "./moment.js";
import { Empty } from "./parts.js";
import { mayChange } from "./session.js";
import { number } from "./text.js";

const TAIL_LINES = 500;
const KEPT_CHARACTERS = 400_000;
const AGAIN_MS = 1_000;

/** @param {{job: any}} props */
export function Output({ job }) {
  const ran = job.stages.filter((/** @type {any} */ stage) => {
    const { running, succeeded, failed, failed_attempts: attempts } = stage.tasks;
    return running + succeeded + failed + attempts > 0;
  });
  const [chosen, setChosen] = useState(/** @type {string | null} */ (null));
  const [index, setIndex] = useState(0);
  const [stream, setStream] = useState("stdout");
  const stage = ran.find((/** @type {any} */ each) => each.stage === chosen) ?? ran[0];
  if (recorded.value) return html`<section class="card wide" aria-label="Output"><h2>Output</h2><${Empty}>What tasks printed is no part of a log.<//></section>`;
  if (!mayChange(job.user || job.author, job.queue)) return html`<section class="card wide" aria-label="Output"><h2>Output</h2><${Empty}>Output is shown to the job's user, and to operators.<//></section>`;
  if (!stage) return html`<section class="card wide" aria-label="Output"><h2>Output</h2><${Empty}>No task has started yet. Output is shown here once one has.<//></section>`;
  const most = stage.tasks.total - 1;
  const task = Math.min(index, most);
  return html`<section class="card wide" aria-label="Output"><h2>Output</h2>
    <form class="filters" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <label>Stage<select value=${stage.stage} onChange=${(/** @type {any} */ event) => { setChosen(event.target.value); setIndex(0); }}>${ran.map((/** @type {any} */ each) => html`<option value=${each.stage}>${each.stage}</option>`)}</select></label>
      <label>Task, 0 to ${number(most)}<input type="number" min="0" max=${most} value=${task} onChange=${(/** @type {any} */ event) => setIndex(Math.max(0, Math.min(most, Number(event.target.value) || 0)))} /></label>
      <label>Stream<select value=${stream} onChange=${(/** @type {any} */ event) => setStream(event.target.value)}><option>stdout</option><option>stderr</option></select></label>
    </form>
    <${Follow} key=${`${stage.stage}/${task}/${stream}`} ...${{ job: job.job, stage: stage.stage, index: task, stream, live: job.ended_ms === null }} />
  </section>`;
}

/** @param {{job: string, stage: string, index: number, stream: string, live: boolean}} props */
function Follow({ job, stage, index, stream, live }) {
  const [text, setText] = useState("");
  const [says, setSays] = useState("Reading the output …");
  const [follow, setFollow] = useState(true);
  const box = useRef(/** @type {HTMLPreElement | null} */ (null));

  useEffect(() => {
    const control = new AbortController();
    let timer = 0;
    let attempt = /** @type {string | null} */ (null);
    let offset = /** @type {string | null} */ (null);
    const load = async () => {
      try {
        const place = offset === null ? { tail: TAIL_LINES } : { attempt, offset };
        const answer = await ask(address(path("tasks", job, stage, index, "logs"), { stream, ...place }), { signal: control.signal });
        const more = await answer.text();
        attempt = answer.headers.get("Largesse-Output-Attempt");
        const end = answer.headers.get("Largesse-Output-End");
        const cut = answer.headers.get("Largesse-Output-Cut");
        // Where the answer does not say how far it went, its bytes do.
        offset = String(Math.max(Number(end ?? 0), Number(offset ?? 0) + new TextEncoder().encode(more).length * Number(offset !== null)));
        if (more) setText((old) => (old + more).slice(-KEPT_CHARACTERS));
        setSays(`Attempt ${attempt}${cut ? `; bytes ${cut} were not kept` : ""}${live ? "; new output is added as it comes" : ""}.`);
      } catch (error) {
        if (control.signal.aborted) return;
        const problem = /** @type {import("./api.js").Problem} */ (error);
        setSays(problem.message);
        if (problem.status === 404) return;
      }
      if (live && !control.signal.aborted) timer = setTimeout(load, AGAIN_MS);
    };
    load();
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [live]);

  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text, follow]);

  return html`<pre ref=${box} tabindex="0" role="group" aria-label=${`${stream} of task ${stage}/${index}`}>${text || "(nothing printed)"}</pre>
    <p class="row"><span class="hint" role="status">${says}</span>${live && html`<label class="hint row"><input type="checkbox" checked=${follow} onChange=${(/** @type {any} */ event) => setFollow(event.target.checked)} /> keep the end in sight</label>`}</p>`;
}
