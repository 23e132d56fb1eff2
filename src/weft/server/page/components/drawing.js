// A figure that the server has drawn, with what pointing at it adds: the value there, a choice by a press or Enter, zoom.
import { html, useRef, useState } from '../vendor/htm-preact-standalone.module.js';
import { post, useRequest } from '../api.js';
import { useWords } from '../language.js';
import { useWidth } from '../measure.js';
import { short, visible } from '../numbers.js';
import { Result } from './status.js';

const [STEP, MOST] = [1.5, 8]; // of the zoom
const ROUND = 40; // pixels: a small change of the window asks for no other drawing

const clamp = (value, most) => Math.min(most, Math.max(0, value));

/** The width of a box for figures, in steps; 0 until it is known. */
export function useDrawnWidth(box) {
  return Math.min(1200, Math.floor(useWidth(box, 0) / ROUND) * ROUND);
}

function nearest(curve, x) {
  return curve.x.reduce((best, value, n) => (Math.abs(value - x) < Math.abs(curve.x[best] - x) ? n : best), 0);
}

// What can be pointed at in a figure of each kind: from a place in the drawing to a target, the next target in a direction,
// the marks of a target, and the line below the drawing.
const POINTING = {
  HeatMap: ({ values, rows, columns, row_title: name, frame: [left, top, w, h, R, C] }) => {
    const by = [Math.ceil(values.length / R), Math.ceil(values[0].length / C)]; // values that stand for one when it is large
    const cell = ([r, c]) => [clamp(r * by[0], values.length - 1), clamp(c * by[1], values[0].length - 1)];
    return {
      find: (x, y) => {
        const [r, c] = [Math.floor((y - top) / h), Math.floor((x - left) / w)];
        return r >= 0 && r < R && c >= 0 && c < C ? [r, c] : null;
      },
      move: (at, right, down) => (at ? [clamp(at[0] + down, R - 1), clamp(at[1] + right, C - 1)] : [0, 0]),
      marks: ([r, c]) => [['cross', left + c * w, top, w, R * h], ['mark', left + c * w, top + r * h, w, h]],
      row: ([r]) => cell([r, 0])[0],
      rowMark: (row) => ['mark', left - 1, top + Math.floor(row / by[0]) * h - 1, C * w + 2, h + 2],
      say: (at) => {
        const [r, c] = cell(at);
        return `${[rows.length ? visible(rows[r]) : `${name} ${r}`, columns.length ? visible(columns[c]) : ''].filter(Boolean).join(' · ')}: ${short(values[r][c])}`;
      },
    };
  },
  Curves: ({ curves, x_label: name, ticks, frame: [left, top, right, bottom, x0, x1] }) => {
    const place = (x) => left + (x - x0) / (x1 - x0) * (right - left);
    const shown = curves.filter((curve) => curve.x.length);
    return {
      find: (x) => (x >= left - 2 && x <= right + 2 && shown.length ? nearest(shown[0], x0 + (x - left) / (right - left) * (x1 - x0)) : null),
      move: (at, by) => (shown.length ? clamp((at ?? (by > 0 ? -1 : shown[0].x.length)) + by, shown[0].x.length - 1) : null),
      marks: (at) => [['mark', place(shown[0].x[at]), top, 0.01, bottom - top]],
      say: (at) => {
        const x = shown[0].x[at];
        const head = ticks.length ? visible(ticks[x] ?? '') : `${name} ${x.toLocaleString('en-US')}`;
        return `${head}  ${shown.map((curve) => `${curve.name} ${short(curve.y[nearest(curve, x)])}`).join('  ')}`;
      },
    };
  },
};

/** Args: figure: as the server draws it; title; picked: a row of a map or null; onPick(row); describe(place) of a node of a tree. */
export function Drawing({ figure, title, picked = null, onPick, describe }) {
  const t = useWords();
  const [at, point] = useState(null);
  const [zoom, setZoom] = useState(1);
  const [x0, y0, width, height] = figure.svg.match(/viewBox="([^"]*)"/)[1].split(' ').map(Number);
  const pointing = figure.frame.length ? POINTING[figure.kind]?.(figure) : null;
  const find = (event) => {
    if (!pointing) return event.target.closest('[data-at]')?.dataset.at ?? null;
    const frame = event.currentTarget.getBoundingClientRect();
    return pointing.find((event.clientX - frame.left) / zoom + x0, (event.clientY - frame.top) / zoom + y0);
  };
  const pick = (target) => target && onPick && onPick(pointing.row(target));
  const onKeyDown = (event) => {
    const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (step && pointing) {
      event.preventDefault();
      point(pointing.move(at, ...step));
    } else if (event.key === 'Enter') pick(at);
  };
  const marks = [...(picked === null || !pointing?.rowMark ? [] : [pointing.rowMark(picked)]), ...(at === null || !pointing ? [] : pointing.marks(at))];
  const said = at === null ? '' : pointing ? pointing.say(at) : describe ? describe(Number(at)) : figure.nodes ? `${figure.nodes[at].text}: ${figure.nodes[at].note}` : '';
  const size = { width: `${width * zoom}px`, height: `${height * zoom}px` };
  const zoomBy = (factor) => setZoom(Math.min(MOST, Math.max(1, zoom * factor)));
  return html`<div class="chart">
    <div class="scroll">
      <div class=${`drawing${onPick ? ' pickable' : ''}`} style=${size} role="img" aria-label=${title} tabindex="0" onMouseMove=${(event) => point(find(event))}
        onMouseLeave=${() => point(null)} onClick=${(event) => pick(find(event))} onKeyDown=${onKeyDown}>
        <div class="drawn" dangerouslySetInnerHTML=${{ __html: figure.svg }}></div>
        <svg class="marks" viewBox=${`${x0} ${y0} ${width} ${height}`} aria-hidden="true">${marks.map(([name, x, y, w, h]) => html`<rect class=${`live ${name}`} x=${x} y=${y} width=${w} height=${h} />`)}</svg>
      </div>
    </div>
    <div class="drawing-foot">${figure.kind === 'HeatMap' ? html`<button class="button small" aria-label=${t('zoomOut')} disabled=${zoom === 1} onClick=${() => zoomBy(1 / STEP)}>−</button>
      <button class="button small" aria-label=${t('zoomIn')} disabled=${zoom === MOST} onClick=${() => zoomBy(STEP)}>+</button>` : null}<output class="readout">${said}</output></div>
  </div>`;
}

/** A figure of the page's own data, drawn by the server. */
export function Drawn({ figure, ...rest }) {
  const box = useRef(null);
  const width = useDrawnWidth(box);
  const request = useRequest(width ? (signal) => post('weft/draw', { figure, width: Math.max(240, width) }, signal) : null, [JSON.stringify(figure), width]);
  return html`<div ref=${box}><${Result} request=${request}>${(found) => html`<${Drawing} figure=${found} ...${rest} />`}<//></div>`;
}
