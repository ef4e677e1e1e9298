// The plan of a reservation.
/** The span of a plan. @param {any} row */
export function extent(row) {
  if (!row.steps.length) return null;
  return { from: Math.min(...row.steps.map((/** @type {any} */ step) => step.from_ms)), to: Math.max(...row.steps.map((/** @type {any} */ step) => step.to_ms)) };
}
