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

/** Inside a drawing, 120 pixels wide with its numbers. */
export function DrawnLegend({ x, y, low, high, scale, label }) {
  const step = 4;
  const right = x + 36 + STEPS * step;
  return html`<g>
    <text x=${x + 30} y=${y + 9} class="faint" font-size="11" text-anchor="end">${short(low)}</text>
    ${steps(scale).map((name, at) => html`<rect x=${x + 36 + at * step} y=${y} width=${step} height="10" class=${name} shape-rendering="crispEdges" />`)}
    <text x=${right + 6} y=${y + 9} class="faint" font-size="11">${short(high)}${label ? ` ${label}` : ''}</text>
  </g>`;
}
