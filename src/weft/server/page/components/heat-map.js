// A matrix in colours: gates and states over time, attention weights, probabilities of tags.
import { html, useMemo, useRef, useState } from '../vendor/htm-preact-standalone.module.js';
import { shorten, textWidth, useWidth } from '../measure.js';
import { short, visible } from '../numbers.js';
import { levelClass } from '../palette.js';
import { DrawnLegend } from './legend.js';

const [TOP, LABEL, LONGEST] = [34, 11, 96];
const MOST = 240; // rows that are drawn; more are averaged in groups

function mean(values) {
  const finite = values.filter((value) => Number.isFinite(value));
  return finite.length ? finite.reduce((a, b) => a + b, 0) / finite.length : null;
}

/** Rows averaged in groups until they can be drawn, and how many stand for one. */
function grouped(values) {
  const by = Math.ceil(values.length / MOST);
  if (by <= 1) return [values, 1];
  const found = [];
  for (let at = 0; at < values.length; at += by) {
    const part = values.slice(at, at + by);
    found.push(part[0].map((_, column) => mean(part.map((row) => row[column]))));
  }
  return [found, by];
}

// One path for each level, and neighbours of one level as one rectangle: a map of 30,000 cells stays quick.
function cellPaths(values, place, low, high, scale) {
  const paths = {};
  values.forEach((row, r) => {
    for (let c = 0; c < row.length;) {
      const name = levelClass(row[c], low, high, scale);
      let end = c + 1;
      while (end < row.length && levelClass(row[end], low, high, scale) === name) end += 1;
      if (name !== 'none') {
        const [x, y, w] = [place.left + c * place.w, place.top + r * place.h, (end - c) * place.w].map((one) => Number(one.toFixed(2)));
        (paths[name] ??= []).push(`M${x} ${y}h${w}v${place.h}h${-w}z`);
      }
      c = end;
    }
  });
  return Object.entries(paths);
}

/**
 * A heat map.
 *
 * Args: values: rows of numbers (null: none); rows, columns: labels (rows may be empty); low, high, scale, unit; picked: a row
 * or null; onPick(row): a row was chosen; describe(row, column): the line below the map.
 */
export function HeatMap({ values, rows = [], columns, low, high, scale = 'sequential', label = '', picked = null, onPick, describe, title, rowHeight }) {
  const box = useRef(null);
  const width = useWidth(box);
  const [at, point] = useState(null);
  const [shown, by] = useMemo(() => grouped(values), [values]);
  const [R, C] = [shown.length, columns.length];
  const labels = useMemo(() => rows.map((name) => shorten(visible(name), LONGEST, LABEL)), [rows]);
  const left = labels.length ? Math.max(...labels.map((one) => textWidth(one, LABEL))) + 10 : 34;
  const w = Math.max(5, Math.min(44, (width - left - 14) / C));
  const h = rowHeight ?? Math.max(2, Math.min(22, 420 / R));
  const skip = Math.max(1, Math.ceil(11 / w));
  const upright = columns.every((name) => textWidth(visible(name), LABEL) <= w * skip - 1);
  const bottom = upright ? 22 : Math.min(LONGEST, Math.max(...columns.map((name) => textWidth(visible(name), LABEL)))) * 0.78 + 16;
  const [fullWidth, height] = [Math.ceil(Math.max(left + C * w + 14, left + 190)), Math.ceil(TOP + R * h + bottom)];
  const place = { left, top: TOP, w: Number(w.toFixed(2)), h: Number(h.toFixed(2)) };
  const paths = useMemo(() => cellPaths(shown, place, low, high, scale), [shown, left, w, h, low, high, scale]);
  const find = (event) => {
    const frame = event.currentTarget.getBoundingClientRect();
    const c = Math.floor((event.clientX - frame.left - left) / place.w);
    const r = Math.floor((event.clientY - frame.top - TOP) / place.h);
    return r >= 0 && r < R && c >= 0 && c < C ? [r, c] : null;
  };
  const pick = (cell) => cell && onPick && onPick(Math.min(values.length - 1, cell[0] * by));
  const onKeyDown = (event) => {
    const [r, c] = at ?? [0, 0];
    const steps = { ArrowRight: [r, c + 1], ArrowLeft: [r, c - 1], ArrowDown: [r + 1, c], ArrowUp: [r - 1, c] };
    if (event.key in steps) {
      event.preventDefault();
      const [nr, nc] = steps[event.key];
      point([Math.min(R - 1, Math.max(0, nr)), Math.min(C - 1, Math.max(0, nc))]);
    } else if (event.key === 'Enter') pick(at);
  };
  const said = at && describe ? describe(Math.min(values.length - 1, at[0] * by), at[1], shown[at[0]][at[1]]) : '';
  return html`<div class="chart" ref=${box}>
    <svg class=${`drawing${onPick ? ' pickable' : ''}`} width=${fullWidth} height=${height} role="img" aria-label=${title} tabindex="0"
      onMouseMove=${(event) => point(find(event))} onMouseLeave=${() => point(null)} onClick=${(event) => pick(find(event))} onKeyDown=${onKeyDown}>
      <${DrawnLegend} x=${left - 30} y=${10} low=${low} high=${high} scale=${scale} label=${label} />
      ${paths.map(([name, parts]) => html`<path key=${name} class=${name} d=${parts.join('')} shape-rendering="crispEdges" />`)}
      ${labels.map((name, r) => html`<text x=${left - 6} y=${TOP + (r + 0.5) * place.h + 4} class="ink" font-size=${LABEL} text-anchor="end">${name}</text>`)}
      ${labels.length ? null : [0, R - 1].map((r) => html`<text x=${left - 6} y=${TOP + (r + 0.5) * place.h + 4} class="faint" font-size=${LABEL} text-anchor="end">${Math.min(values.length - 1, r * by)}</text>`)}
      ${columns.map((name, c) => (c % skip ? null : upright
        ? html`<text x=${left + (c + 0.5) * place.w} y=${TOP + R * place.h + 15} class="ink" font-size=${LABEL} text-anchor="middle">${visible(name)}</text>`
        : html`<text x=${left + (c + 0.5) * place.w + 3} y=${TOP + R * place.h + 11} class="ink" font-size=${LABEL} text-anchor="end"
          transform=${`rotate(-50 ${left + (c + 0.5) * place.w + 3} ${TOP + R * place.h + 11})`}>${shorten(visible(name), LONGEST, LABEL)}</text>`))}
      ${picked === null ? null : html`<rect class="live mark" x=${left - 1} y=${TOP + Math.floor(picked / by) * place.h - 1} width=${C * place.w + 2} height=${place.h + 2} />`}
      ${at === null ? null : html`<rect class="live cross" x=${left + at[1] * place.w} y=${TOP} width=${place.w} height=${R * place.h} />
        <rect class="live mark" x=${left + at[1] * place.w} y=${TOP + at[0] * place.h} width=${place.w} height=${place.h} />`}
    </svg>
    <output class="readout">${said}</output>
  </div>`;
}

/** The line below a map for a cell. */
export function cellText(parts, value) {
  return `${parts.filter(Boolean).join(' · ')}: ${short(value)}`;
}
