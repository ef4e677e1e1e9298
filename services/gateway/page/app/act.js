// Changes that a reader asks for: a question, the request, what came of it and where the log has it.
import { html, useState } from "./lib.js";
import { fixed } from "./moment.js";
import { Dialog } from "./parts.js";
import { href } from "./route.js";

/**
 * A button that asks before it changes something.
 * @param {{label: string, title: string, what: any, run: () => Promise<any>, log: Record<string, string>, done: string,
 *   grave?: boolean, offered?: boolean, after?: () => void}} props `log`: which records show it. `offered`: whether there is a
 *   button; what came of an earlier press is shown in any case.
 */
export function Action({ label, title, what, run, log, done, grave = false, offered = true, after }) {
  const [open, setOpen] = useState(false);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(/** @type {Error | null} */ (null));
  const [isDone, setDone] = useState(false);
  const go = async () => {
    setBusy(true);
    setProblem(null);
    try {
      await run();
      setDone(true);
      after?.();
    } catch (error) {
      setProblem(/** @type {Error} */ (error));
    }
    setBusy(false);
  };
  return html`${offered && html`<button type="button" class=${grave ? "grave" : ""} disabled=${fixed.value !== ""} onClick=${() => { setDone(false); setProblem(null); setOpen(true); }}>${label}</button>`}
    ${open && html`<${Dialog} title=${title} onClose=${() => setOpen(false)}>
      ${isDone ? html`<p class="done" role="status">${done} <a href=${href(["log"], { ...log, order: "desc" })} onClick=${() => setOpen(false)}>Its record</a></p>
        <form method="dialog"><button>Close</button></form>`
      : html`<div>${what}</div>
        ${problem && html`<p class="trouble" role="alert">${problem.message}</p>`}
        <form method="dialog" class="row"><button type="button" class=${grave ? "grave" : "main"} disabled=${busy} onClick=${go}>${busy ? "Asking …" : label}</button><button>Leave it as it is</button></form>`}<//>`}`;
}
