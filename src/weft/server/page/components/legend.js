// The legend of a colour scale.
import { html } from '../vendor/htm-preact-standalone.module.js';
import { levelClass } from '../palette.js';
import { short } from '../numbers.js';

const STEPS = 24;

function steps(scale) {
  return Array.from({ length: STEPS }, (_, at) => levelClass(at, 0, STEPS - 1, scale));
}

/** Beside text and controls. */
export function Legend({ low, high, scale, label }) {
  return html`<span class="legend" aria-hidden="true">${label ? html`<span>${label}</span>` : null}<span>${short(low)}</span>
    <span class="legend-bar">${steps(scale).map((name) => html`<i class=${name}></i>`)}</span><span>${short(high)}</span></span>`;
}
