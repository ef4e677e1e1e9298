// What a change of the config would have done in the last day: the log decided again with it, beside what was.
import { send } from "./api.js";
import { html, useState } from "./lib.js";
import { Worlds } from "./worlds.js";

const SPAN_MS = 24 * 3_600_000;

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
  return html`<div class="stack" role="group" aria-label="The last 24 hours">
    <p class="row"><button type="button" disabled=${busy} onClick=${look}>${busy ? "Deciding the log again …" : "What would it have done in the last 24 h?"}</button>
      <span class="hint">Decides the log again beside the cell, which may take minutes.</span></p>
    ${problem && html`<p class="trouble" role="alert">${problem.message}</p>`}
    ${answer && html`<${Worlds} answer=${answer} title="The last 24 hours, decided again" />`}</div>`;
}
