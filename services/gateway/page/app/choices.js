// What a reader chooses for this browser, in a sheet at the top, and the list of keys.
import { html, useEffect, useRef, useState } from "./lib.js";
import { Dialog } from "./parts.js";
import { route } from "./route.js";
import { session } from "./session.js";
import { settings } from "./settings.js";
import { Who } from "./sign_in.js";

/** Keys, and what they do. @type {[string[], string][]} */
const KEYS = [
  [["/"], "search for a job"],
  [["g", "o"], "the overview"],
  [["g", "q"], "queues"],
  [["g", "j"], "jobs"],
  [["g", "n"], "nodes"],
  [["g", "r"], "reservations"],
  [["g", "c"], "classes"],
  [["g", "d"], "donations"],
  [["g", "l"], "the log"],
  [["g", "w"], "what if"],
  [["←", "→"], "one record back or on"],
  [["Shift ←", "Shift →"], "one round back or on"],
  [["Home"], "back to now"],
  [["t"], "times in your zone or as log time (UTC)"],
  [["?"], "this list"],
];

/** The settings. They close by Escape, by a press elsewhere, and as one goes to another view. @param {{onKeys: () => void}} props */
export function Choices({ onKeys }) {
  const [open, setOpen] = useState(false);
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const button = useRef(/** @type {HTMLButtonElement | null} */ (null));
  const { view, parts } = route.value;
  useEffect(() => setOpen(false), [[view, ...parts].join("/")]);
  useEffect(() => {
    if (!open) return undefined;
    const press = (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Escape") return;
      setOpen(false);
      button.current?.focus();
    };
    const elsewhere = (/** @type {Event} */ event) => { if (!place.current?.contains(/** @type {Node} */ (event.target))) setOpen(false); };
    addEventListener("keydown", press);
    addEventListener("pointerdown", elsewhere);
    addEventListener("focusin", elsewhere);
    return () => {
      removeEventListener("keydown", press);
      removeEventListener("pointerdown", elsewhere);
      removeEventListener("focusin", elsewhere);
    };
  }, [open]);
  return html`<div class="choices" ref=${place}>
    <button type="button" ref=${button} aria-expanded=${open} aria-controls="settings" onClick=${() => setOpen(!open)}>Settings</button>
    ${open && html`<div class="sheet" id="settings" role="group" aria-label="Settings">
      <label>Colours <select value=${settings.theme.value} onChange=${(/** @type {any} */ event) => { settings.theme.value = event.target.value; }}>
        <option value="auto">as the system</option><option value="light">light</option><option value="dark">dark</option></select></label>
      <label>Times <select value=${settings.zone.value} onChange=${(/** @type {any} */ event) => { settings.zone.value = event.target.value; }}>
        <option value="local">in my zone</option><option value="log">log time (UTC)</option></select></label>
      ${session.value?.open ? html`<label>Ask as <input value=${settings.user.value} maxlength="63" placeholder="the cell's default" spellcheck=${false}
        onChange=${(/** @type {any} */ event) => { settings.user.value = event.target.value.trim(); }} /></label>
      <p class="hint">The log records this name for what you change. Nothing checks it.</p>` : html`<${Who} />`}
      <button type="button" onClick=${() => { setOpen(false); onKeys(); }}>Keys</button>
    </div>`}</div>`;
}

/** The list of keys. @param {{onClose: () => void}} props */
export function Keys({ onClose }) {
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    <dl class="keys">${KEYS.map(([keys, what]) => html`<div key=${what}><dt>${keys.map((key) => html`<kbd key=${key}>${key}</kbd> `)}</dt><dd>${what}</dd></div>`)}</dl>
    <form method="dialog"><button>Close</button></form><//>`;
}
