// The form that a cell with tokens shows first, and the way out.
import { Problem, read } from "./api.js";
import { trouble } from "./changes.js";
import { html, useRef, useState } from "./lib.js";
import { NOBODY, session } from "./session.js";

const SESSION = "v1/session";

/** Asks the gateway who reads this page; again where it does not answer. */
export async function askWho() {
  try {
    session.value = await read(SESSION);
    trouble.value = null;
  } catch (error) {
    if (error instanceof Problem) trouble.value = error;
    setTimeout(askWho, 1_000);
  }
}

/** Signs out. */
export async function signOut() {
  await fetch(SESSION, { method: "DELETE" }).catch(() => null);
  session.value = NOBODY;
}

/** Exchanges a token for a cookie. @param {string} token */
async function exchange(token) {
  let answer;
  try {
    answer = await fetch(SESSION, { method: "POST", headers: { Authorization: `Bearer ${token}` } });
  } catch {
    throw new Problem(0, { detail: "The gateway does not answer." });
  }
  const said = await answer.json().catch(() => null);
  if (answer.ok) return said;
  throw new Problem(answer.status, answer.status === 401 ? { detail: "The cell does not know this token, or it has ended." } : said);
}

export function SignIn() {
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(/** @type {Error | null} */ (null));
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      session.value = await exchange(field.current?.value.trim() ?? "");
      return;
    } catch (error) {
      setProblem(/** @type {Error} */ (error));
    }
    setBusy(false);
    field.current?.select();
  };
  return html`<main id="main"><h1>Sign in to this cell</h1>
    <form class="card stack" onSubmit=${submit}>
      <label class="field">Token<input ref=${field} type="password" name="token" required maxlength="512" autocomplete="current-password" spellcheck=${false} /></label>
      <p class="hint">It begins with lgt_, and an admin makes one: <code>largesse token make NAME --user USER --role viewer</code>. The page exchanges it for a cookie that ends after 12 hours.</p>
      ${problem && html`<p class="trouble" role="alert">${problem.message}</p>`}
      <p class="row"><button class="main" disabled=${busy}>${busy ? "Asking …" : "Sign in"}</button></p>
    </form></main>`;
}

/** Who has signed in, in the settings. */
export function Who() {
  const { user, roles } = session.value ?? NOBODY;
  return html`<p>Signed in as <strong>${user}</strong></p><p class="hint">${roles.join(", ")}</p><button type="button" onClick=${signOut}>Sign out</button>`;
}
