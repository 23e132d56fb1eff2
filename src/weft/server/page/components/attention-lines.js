// Attention as lines from the tokens of a translation to those of its source; thicker is more.
import { html, useRef } from '../vendor/htm-preact-standalone.module.js';
import { textWidth, useWidth } from '../measure.js';
import { percent, visible } from '../numbers.js';

const [GAP, HIGH, SIDE, SIZE] = [18, 150, 12, 15];
const LEAST = 0.03; // weights below are not drawn

function row(tokens, y) {
  let x = SIDE;
  return tokens.map((token) => {
    const wide = textWidth(visible(token), SIZE);
    const found = { token: visible(token), x, y, wide, middle: x + wide / 2 };
    x += wide + GAP;
    return found;
  });
}

/** Args: source, target: tokens; weights (target x source); pointed: {side, at} or null; onPoint(side, at); onSelect(at) of a target. */
export function AttentionLines({ source, target, weights, pointed, onPoint, onSelect, selected, title }) {
  const box = useRef(null);
  const available = useWidth(box);
  const [above, below] = [row(source, 26), row(target, HIGH)];
  const ends = [above, below].map((one) => (one.length ? one[one.length - 1].x + one[one.length - 1].wide + SIDE : 0));
  const width = Math.ceil(Math.max(...ends, Math.min(available, 320)));
  // The shorter row stands in the middle of the longer one.
  [above, below].forEach((one, n) => one.forEach((token) => {
    token.x += (Math.max(...ends) - ends[n]) / 2;
    token.middle += (Math.max(...ends) - ends[n]) / 2;
  }));
  const strong = (t, s) => pointed === null || (pointed.side === 'target' ? pointed.at === t : pointed.at === s);
  const lines = weights.flatMap((line, t) => line.map((weight, s) => [t, s, weight])).filter(([, , weight]) => weight >= LEAST);
  const token = (side) => (one, at) => html`<text x=${one.x} y=${one.y} font-size=${SIZE} class=${side === 'target' && at === selected ? 'dot1' : 'ink'}
    font-weight=${pointed?.side === side && pointed.at === at ? 600 : undefined}
    onMouseEnter=${() => onPoint({ side, at })} onClick=${side === 'target' ? () => onSelect(at) : undefined}>${one.token}</text>`;
  return html`<div class="chart" ref=${box}><div class="scroll" tabindex="0" role="group" aria-label=${title}>
    <svg class="drawing attention" width=${width} height=${HIGH + 14} role="img" aria-label=${title} onMouseLeave=${() => onPoint(null)}>
      ${lines.map(([t, s, weight]) => {
        const [a, b] = [above[s], below[t]];
        const middle = (a.y + b.y) / 2;
        return html`<path class="line0" stroke-width=${(0.6 + 5 * weight).toFixed(2)} stroke-opacity=${strong(t, s) ? (0.12 + 0.8 * weight).toFixed(3) : 0.04} stroke-linecap="round"
          d=${`M${a.middle} ${a.y + 7}C${a.middle} ${middle} ${b.middle} ${middle} ${b.middle} ${b.y - 17}`}><title>${`${b.token} ← ${a.token} ${percent(weight)}`}</title></path>`;
      })}
      ${above.map(token('source'))}${below.map(token('target'))}
    </svg></div></div>`;
}
