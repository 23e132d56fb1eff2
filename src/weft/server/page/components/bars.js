// Probabilities as bars: labels of a text, alternatives of a token.
import { html, useRef } from '../vendor/htm-preact-standalone.module.js';
import { textWidth, useWidth } from '../measure.js';
import { percent, visible } from '../numbers.js';

/** A list of choices with their probabilities; with onPick each is a button. */
export function ChoiceBars({ items, current, onPick, label }) {
  const most = Math.max(...items.map((item) => item.probability), 1e-9);
  return html`<ul class="bars" aria-label=${label}>${items.map((item) => html`<li key=${item.token}>
    <button class=${item.token === current ? 'bar current' : 'bar'} onClick=${() => onPick(item)} disabled=${!onPick}>
      <span class="bar-fill" style=${{ width: `${(100 * item.probability / most).toFixed(1)}%` }}></span>
      <span class="bar-name">${visible(item.token)}</span><span class="bar-value">${percent(item.probability)}</span>
    </button></li>`)}</ul>`;
}

/** Bars as a drawing. Args: items: [{name, value}] with values from 0 to 1; best: the name in colour; onPick(position), if they are choices. */
export function DrawnBars({ items, best, title, onPick }) {
  const box = useRef(null);
  const width = Math.min(520, useWidth(box, 480));
  const left = Math.min(180, Math.max(...items.map((item) => textWidth(item.name, 13)))) + 20;
  const [row, room] = [30, width - left - 70];
  const choice = (at) => (onPick ? {
    role: 'button', tabindex: 0, class: 'choosable', 'aria-pressed': String(items[at].name === best), 'aria-label': `${items[at].name} ${percent(items[at].value)}`,
    onClick: () => onPick(at), onKeyDown: (event) => (event.key === 'Enter' || event.key === ' ') && (event.preventDefault(), onPick(at)),
  } : {});
  return html`<div class="chart" ref=${box}><svg class="drawing" width=${width} height=${items.length * row + 12} role=${onPick ? 'group' : 'img'} aria-label=${title}>
    ${items.map((item, at) => html`<g ...${choice(at)}>
      ${onPick ? html`<rect class="live" y=${at * row + 5} width=${width} height=${row} fill="none" pointer-events="all" />` : null}
      <text x=${left - 8} y=${at * row + 25} class="ink" font-size="13" text-anchor="end" font-weight=${item.name === best ? 600 : undefined}>${item.name}</text>
      <rect x=${left} y=${at * row + 10} width=${room} height="20" rx="3" class="s1" />
      <rect x=${left} y=${at * row + 10} width=${Math.max(2, room * item.value)} height="20" rx="3" class=${item.name === best ? 'dot0' : 's14'} />
      <text x=${left + room + 8} y=${at * row + 25} class="ink" font-size="13">${percent(item.value)}</text>
    </g>`)}
  </svg></div>`;
}
