// What a change of the config would have done in the last day: the log decided again with it, beside what was.
import { send } from "./api.js";
import { html, useState } from "./lib.js";
import { Empty, Table } from "./parts.js";
import { href, queueHref } from "./route.js";
import { duration, number } from "./text.js";

const SPAN_MS = 24 * 3_600_000;
const LOSERS_SHOWN = 8;

/** @param {{body: () => Promise<any>}} props `body`: the config that is tried. */
export function Hindsight({ body }) {
  const [busy, setBusy] = useState(false);
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState(/** @type {Error | null} */ (null));
  const look = async () => {
    setBusy(true);
    setProblem(null);
    try {
      setAnswer((await send("PUT", `v1/config?dry_run=true&replay_ms=${SPAN_MS}`, await body())).replay);
    } catch (error) {
      setProblem(/** @type {Error} */ (error));
    }
    setBusy(false);
  };
  return html`<div class="stack" aria-label="The last 24 hours">
    <p class="row"><button type="button" disabled=${busy} onClick=${look}>${busy ? "Deciding the log again …" : "What would it have done in the last 24 h?"}</button>
      <span class="hint">Decides the log again beside the cell, which may take minutes.</span></p>
    ${problem && html`<p class="trouble" role="alert">${problem.message}</p>`}
    ${answer && html`<${Worlds} answer=${answer} />`}</div>`;
}

/** @param {{answer: any}} props */
function Worlds({ answer }) {
  const { queues, jobs, explained } = answer;
  const losers = jobs.filter((/** @type {any} */ job) => job.recorded_ms !== null && job.decided_ms > job.recorded_ms)
    .sort((/** @type {any} */ a, /** @type {any} */ b) => b.decided_ms - b.recorded_ms - (a.decided_ms - a.recorded_ms));
  const other = jobs.filter((/** @type {any} */ job) => job.recorded_outcome !== null && job.recorded_outcome !== job.decided_outcome);
  return html`<div role="status" class="stack"><h3>The last 24 hours, decided again</h3>
    ${!queues.length && html`<${Empty}>No job ended in both worlds.<//>`}
    ${queues.length > 0 && html`<${Table} label="Jobs by queue in both worlds"><thead><tr><th>Queue</th><th class="num">Jobs</th><th class="num">Took, mean</th><th class="num">Would have taken</th><th class="num">Later, in all</th><th class="num">Earlier, in all</th></tr></thead><tbody>
      ${queues.map((/** @type {any} */ row) => html`<tr key=${row.queue}><th scope="row"><a href=${queueHref(row.queue)}>${row.queue}</a></th><td class="num">${number(row.jobs)}</td><td class="num">${duration(row.recorded_ms)}</td><td class="num">${duration(row.decided_ms)}</td>
        <td class="num">${row.later_ms ? duration(row.later_ms) : "–"}</td><td class="num">${row.earlier_ms ? duration(row.earlier_ms) : "–"}</td></tr>`)}</tbody><//>`}
    ${losers.length > 0 && html`<p>Later: ${losers.slice(0, LOSERS_SHOWN).map((/** @type {any} */ job) => html`<a key=${job.job} href=${href(["jobs", job.job])}>${job.job}</a> by ${duration(job.decided_ms - job.recorded_ms)} `)}${losers.length > LOSERS_SHOWN ? `and ${number(losers.length - LOSERS_SHOWN)} more` : ""}</p>`}
    ${queues.length > 0 && !losers.length && html`<p>No job would have ended later.</p>`}
    ${other.length > 0 && html`<p class="attention">Another end: ${other.slice(0, LOSERS_SHOWN).map((/** @type {any} */ job) => html`<span key=${job.job}>${job.job}: ${job.recorded_outcome}, would be ${job.decided_outcome ?? "not over"}. </span>`)}</p>`}
    ${explained.map((/** @type {string} */ text) => html`<p key=${text} class="hint">${text}</p>`)}</div>`;
}
