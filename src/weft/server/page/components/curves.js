// Curves over steps: training curves, a unit over time, gradients by distance.
import { html, useRef, useState } from '../vendor/htm-preact-standalone.module.js';
import { shorten, textWidth, ticks, useWidth } from '../measure.js';
import { short } from '../numbers.js';

const [LEFT, TOP, BOTTOM, SMALL] = [50, 14, 38, 11];
const MOST = 1500; // points of a curve that are drawn

function thinned(x, y) {
  const by = Math.ceil(x.length / MOST);
  const keep = (_, at) => at % by === 0 || at === x.length - 1;
  return by > 1 ? [x.filter(keep), y.filter(keep)] : [x, y];
}

function clean(curve, log) {
  const good = curve.x.map((_, at) => Number.isFinite(curve.y[at]) && (!log || curve.y[at] > 0));
  const [x, y] = thinned(curve.x.filter((_, at) => good[at]), curve.y.filter((_, at) => good[at]));
  return { ...curve, px: x, py: y };
}

function apart(places, least, most) {
  const found = [];
  places.forEach((place) => found.push(found.length ? Math.max(place, found[found.length - 1] + least) : place));
  const over = found.length ? Math.max(0, found[found.length - 1] - most) : 0;
  return found.map((place) => place - over);
}

/**
 * Curves.
 *
 * Args: curves: [{name, x, y, best: position or null, hue, dashed}]; xLabel; log: a logarithmic y axis; names: tokens under the
 * x axis; height. The pointer or the arrow keys show the values at one x.
 */
export function Curves({ curves, xLabel, log = false, names = null, height = 260, title }) {
  const box = useRef(null);
  const width = useWidth(box);
  const [at, point] = useState(null);
  const shown = curves.map((curve) => clean(curve, log)).filter((curve) => curve.px.length);
  const scale = log ? Math.log10 : (value) => value;
  const xs = shown.flatMap((curve) => [curve.px[0], curve.px[curve.px.length - 1]]);
  const ys = shown.flatMap((curve) => curve.py.map(scale));
  let [x0, x1] = [xs.reduce((a, b) => Math.min(a, b), Infinity), xs.reduce((a, b) => Math.max(a, b), -Infinity)];
  let [y0, y1] = [ys.reduce((a, b) => Math.min(a, b), Infinity), ys.reduce((a, b) => Math.max(a, b), -Infinity)];
  if (!shown.length) [x0, x1, y0, y1] = [0, 1, 0, 1];
  if (x0 === x1) x1 = x0 + 1;
  const pad = (y1 - y0 || Math.abs(y1) || 1) * 0.06;
  [y0, y1] = [y0 - pad, y1 + pad];
  const labels = shown.map((curve) => shorten(curve.name, 130, SMALL));
  const right = width < 520 || labels.length < 2 ? 14 : Math.max(...labels.map((one) => textWidth(one, SMALL))) + 18;
  const [w, h] = [Math.max(80, width - LEFT - right), height - TOP - BOTTOM];
  const px = (value) => LEFT + (value - x0) / (x1 - x0) * w;
  const py = (value) => TOP + h - (scale(value) - y0) / (y1 - y0) * h;
  const yTicks = log
    ? (y1 - y0 > 1.5 ? ticks(Math.ceil(y0), Math.floor(y1), 5).filter(Number.isInteger).map((power) => 10 ** power)
      : ticks(10 ** y0, 10 ** y1, 4).filter((value) => value > 0))
    : ticks(y0, y1, 4);
  const path = (curve) => `M${curve.px.map((x, n) => `${px(x).toFixed(1)} ${py(curve.py[n]).toFixed(1)}`).join('L')}`;
  const ends = shown.map((curve) => py(curve.py[curve.py.length - 1]) + 4);
  const order = ends.map((_, n) => n).sort((a, b) => ends[a] - ends[b]);
  const places = apart(order.map((n) => ends[n]), 14, TOP + h + 6);
  const nearest = (curve, x) => curve.px.reduce((best, value, n) => (Math.abs(value - x) < Math.abs(curve.px[best] - x) ? n : best), 0);
  const onMove = (event) => {
    const frame = event.currentTarget.getBoundingClientRect();
    const x = x0 + (event.clientX - frame.left - LEFT) / w * (x1 - x0);
    point(x >= x0 && x <= x1 && shown.length ? shown[0].px[nearest(shown[0], x)] : null);
  };
  const onKeyDown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || !shown.length) return;
    event.preventDefault();
    const from = at === null ? (step > 0 ? -1 : shown[0].px.length) : nearest(shown[0], at);
    point(shown[0].px[Math.min(shown[0].px.length - 1, Math.max(0, from + step))]);
  };
  const values = at === null ? [] : shown.map((curve) => [curve, nearest(curve, at)]);
  const head = at === null ? '' : names ? names[at] : `${xLabel} ${short(at)}`;
  return html`<div class="chart" ref=${box}>
    <svg class="drawing" width=${width} height=${height} role="img" aria-label=${title} tabindex="0"
      onMouseMove=${onMove} onMouseLeave=${() => point(null)} onKeyDown=${onKeyDown}>
      ${yTicks.map((tick) => html`<line x1=${LEFT} x2=${LEFT + w} y1=${py(tick)} y2=${py(tick)} class="grid" />
        <text x=${LEFT - 6} y=${py(tick) + 4} class="faint" font-size=${SMALL} text-anchor="end">${short(tick)}</text>`)}
      <line x1=${LEFT} x2=${LEFT + w} y1=${TOP + h} y2=${TOP + h} class="axis" />
      ${names ? names.map((name, n) => (n % Math.max(1, Math.ceil(12 * names.length / w)) ? null
        : html`<text x=${px(n)} y=${TOP + h + 15} class="faint" font-size=${SMALL} text-anchor="middle">${name}</text>`))
        : ticks(x0, x1, Math.max(2, Math.floor(w / 90))).map((tick) => html`<text x=${px(tick)} y=${TOP + h + 15} class="faint" font-size=${SMALL} text-anchor="middle">${tick.toLocaleString('en-US')}</text>`)}
      <text x=${LEFT + w / 2} y=${height - 6} class="faint" font-size=${SMALL} text-anchor="middle">${xLabel}</text>
      ${shown.map((curve) => html`<path key=${curve.name} class=${`line${curve.hue % 7}`} stroke-width="1.8" stroke-linejoin="round" stroke-dasharray=${curve.dashed ? '5 4' : undefined} d=${path(curve)} />
        ${curve.px.length === 1 ? html`<circle cx=${px(curve.px[0])} cy=${py(curve.py[0])} r="3" class=${`dot${curve.hue % 7}`} />` : null}
        ${Number.isInteger(curve.best) && Number.isFinite(curve.y[curve.best]) && (!log || curve.y[curve.best] > 0)
          ? html`<circle cx=${px(curve.x[curve.best])} cy=${py(curve.y[curve.best])} r="4" class=${`dot${curve.hue % 7}`} />` : null}`)}
      ${right > 14 ? order.map((n, rank) => html`<text x=${LEFT + w + 8} y=${places[rank]} class=${`dot${shown[n].hue % 7}`} font-size=${SMALL}>${labels[n]}</text>`) : null}
      ${at === null ? null : html`<line class="live axis" x1=${px(at)} x2=${px(at)} y1=${TOP} y2=${TOP + h} stroke-dasharray="2 3" />
        ${values.map(([curve, n]) => html`<circle class=${`live dot${curve.hue % 7}`} cx=${px(curve.px[n])} cy=${py(curve.py[n])} r="3.5" />`)}`}
    </svg>
    <output class="readout">${head}${values.map(([curve, n]) => html` <span class="readout-part"><i class=${`swatch hue${curve.hue % 7}`}></i>${curve.name} ${short(curve.py[n])}</span>`)}</output>
  </div>`;
}
