// Figures: their frame and the menu that saves them, coloured text, and what the server has drawn, to which the page adds
// what pointing at it says, a choice by a press or Enter, and zoom.
import { html, useEffect, useRef, useState } from '../vendor/htm-preact-standalone.module.js';
import { post, useRequest } from '../api.js';
import { useLanguage, useWords } from '../language.js';
import { percent, short, visible } from '../numbers.js';
import { levelClass, valueRange } from '../palette.js';
import { saveFigure } from '../save.js';
import { Menu } from './controls.js';
import { Result } from './status.js';
import { TokenText } from './token-text.js';

const [STEP, MOST] = [1.5, 8]; // of the zoom
const [ROUND, NARROWEST, WIDEST] = [40, 240, 1200]; // pixels: a small change of the window asks for no other drawing
const LEGEND = 24; // steps of a legend
const STRONGEST = 3; // weights of a token that are named

const clamp = (value, most) => Math.min(most, Math.max(0, value));

/**
 * A figure. What is saved is the drawing among its children, or, where they are text, the one that the server makes of
 * `figure`. `data` is what is saved as JSON; without a drawing nothing else is.
 */
export function Figure({ title, note = '', data, figure, drawn = true, tools, children }) {
  const t = useWords();
  const body = useRef(null);
  const save = async (kind) => {
    const element = body.current.querySelector('.drawn svg');
    const file = kind === 'json' || element ? '' : (await post('weft/draw', { figure: { title, ...figure } })).file;
    await saveFigure(kind, { element, file, title, note, data });
  };
  const items = [['svg', t('saveSvg')], ['html', t('saveHtml')], ['json', t('saveJson')]]
    .filter(([kind]) => drawn || kind === 'json').map(([kind, text]) => [kind, text, () => save(kind)]);
  return html`<figure class="figure">
    <figcaption>
      <div class="figure-head"><h2>${title}</h2>
        <div class="figure-tools">${tools}<${Menu} label=${t('save')} items=${items} /></div></div>
      ${note ? html`<p class="figure-note">${note}</p>` : null}
    </figcaption>
    <div class="figure-body" ref=${body}>${children}</div>
  </figure>`;
}

export function Legend({ low, high, scale = 'sequential', label }) {
  return html`<span class="legend" aria-hidden="true">${label ? html`<span>${label}</span>` : null}<span>${short(low)}</span>
    <span class="legend-bar">${Array.from({ length: LEGEND }, (_, at) => html`<i class=${levelClass(at, 0, LEGEND - 1, scale)}></i>`)}</span><span>${short(high)}</span></span>`;
}

/** Text whose tokens are tinted by values. Args: range: the ends of the scale, unless the values say them; the rest as `Figure` and `TokenText` take it. */
export function TextFigure({ title, note, data, tools, tokens, values, label = '', scale = 'sequential', range, notes, above, children, ...text }) {
  const [low, high] = range ?? valueRange(values, scale);
  const said = notes?.length ? notes : tokens.map((token, at) => `${visible(token)}: ${short(values[at])}`);
  return html`<${Figure} title=${title} note=${note} data=${data} tools=${tools} figure=${{ kind: 'ColouredText', tokens, values, label, scale, notes: said, ...(range ? { limits: range } : {}) }}>
    ${above}<${TokenText} ...${{ tokens, values, low, high, scale, notes: said, label: title, ...text }} />
    ${children}<div class="figure-foot"><${Legend} ...${{ low, high, scale, label }} /></div>
  <//>`;
}

/** Coloured text of the server, with the influence on several predictions: on the one at the pointer, or the one held. */
function Influence({ figure, title, note, held = -1, onHold, ...rest }) {
  const t = useWords();
  const [pointed, point] = useState(null);
  const { tokens, influence, about, rows, scale } = figure;
  if (about.length < 2) return html`<${TextFigure} ...${{ ...figure, ...rest, title: typeof title === 'function' ? title(visible(about[0] ?? '')) : title, note }} />`;
  const row = pointed ?? (held >= 0 && held < about.length ? held : about.length - 1);
  const pointing = rows.length ? {
    onPoint: (at) => point(at !== null && rows[at] >= 0 ? rows[at] : null),
    onSelect: (at) => rows[at] >= 0 && onHold(rows[at]),
    classes: rows.map((one) => (one === row ? 'pointed' : '')),
  } : {};
  const above = rows.length ? null : html`<div class="tabs" role="group" aria-label=${t('predictions')}>${about.map((name, n) => html`<button aria-pressed=${String(n === row)}
      onMouseEnter=${() => point(n)} onMouseLeave=${() => point(null)} onFocus=${() => point(n)} onBlur=${() => point(null)} onClick=${() => onHold(n)}>${visible(name)}</button>`)}</div>`;
  return html`<${TextFigure} ...${{ tokens, values: influence[row], scale, label: figure.label, above, ...rest, ...pointing }} title=${typeof title === 'function' ? title(visible(about[row])) : title}
    note=${`${note ? `${note} ` : ''}${t(rows.length ? 'pointHint' : 'pickHint')}`} />`;
}

function nearest(curve, x) {
  return curve.x.reduce((best, value, n) => (Math.abs(value - x) < Math.abs(curve.x[best] - x) ? n : best), 0);
}

// What can be pointed at in a figure of each kind: from a place in the drawing to a target, the next target in a direction,
// the marks of a target, and the line below the drawing. A `row` can be chosen.
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
  Bars: ({ names, values, frame: [top, row, width] }) => ({
    find: (x, y) => (y >= top && y < top + row * names.length ? Math.floor((y - top) / row) : null),
    move: (at, right, down) => clamp((at ?? -1) + right + down, names.length - 1),
    marks: (at) => [['cross', 0, top + at * row, width, row]],
    row: (at) => at,
    say: (at) => `${visible(names[at])}: ${percent(values[at])}`,
  }),
  Curves: ({ curves, bands, dates, x_label: name, ticks, frame: [left, top, right, bottom, x0, x1] }) => {
    const place = (x) => left + (x - x0) / (x1 - x0) * (right - left);
    const xs = [...new Set([...curves, ...bands].flatMap((one) => one.x))].sort((a, b) => a - b);
    const at_ = ({ x: own }, x) => (own.length && x >= own[0] && x <= own[own.length - 1] ? nearest({ x: own }, x) : -1);
    const shown = (x, parts, text) => parts.map((one) => [one, at_(one, x)]).filter(([one, n]) => n >= 0 && (!dates.length || one.x[n] === x)).map(([one, n]) => `${one.name} ${text(one, n)}`);
    return {
      find: (x) => (x >= left - 2 && x <= right + 2 ? nearest({ x: xs }, x0 + (x - left) / (right - left) * (x1 - x0)) : null),
      move: (at, by) => clamp((at ?? (by > 0 ? -1 : xs.length)) + by, xs.length - 1),
      marks: (at) => [['mark', place(xs[at]), top, 0.01, bottom - top]],
      say: (at) => {
        const x = xs[at];
        const head = ticks.length ? visible(ticks[x] ?? '') : `${name} ${x.toLocaleString('en-US')}`;
        return `${head}  ${[...shown(x, curves, (one, n) => short(one.y[n])), ...shown(x, bands, (one, n) => `${short(one.low[n])} – ${short(one.high[n])}`)].join('  ')}`;
      },
    };
  },
};

// Figures without a geometry of places: their parts have names in the drawing.
const NAMED = {
  Tree: ({ nodes }) => (name) => `${visible(nodes[name].text)}: ${nodes[name].note}`,
  Alignment: ({ values, rows, columns }) => (name) => {
    const [side, at] = [name[0], Number(name.slice(1))];
    const weights = side === 'r' ? values[at].map((value, n) => [value, columns[n]]) : values.map((line, n) => [line[at], rows[n]]);
    const shown = weights.sort((a, b) => b[0] - a[0]).slice(0, STRONGEST).map(([value, token]) => `${visible(token)} ${percent(value)}`);
    return `${visible((side === 'r' ? rows : columns)[at])} ${side === 'r' ? '←' : '→'} ${shown.join(', ')}`;
  },
};

/** Args: figure: as the server draws it; title; picked: a row or null; onPick(row); describe(name) of a part of the drawing. */
export function Drawing({ figure, title, picked = null, onPick, describe = NAMED[figure.kind]?.(figure) }) {
  const t = useWords();
  const [at, point] = useState(null);
  const [zoom, setZoom] = useState(1);
  const box = useRef(null);
  const [x0, y0, width, height] = figure.svg.match(/viewBox="([^"]*)"/)[1].split(' ').map(Number);
  const pointing = figure.frame.length ? POINTING[figure.kind](figure) : null;
  const names = pointing ? [] : [...figure.svg.matchAll(/data-at="([^"]*)"/g)].map((found) => found[1]);
  const find = (event) => {
    if (!pointing) return event.target.closest('[data-at]')?.dataset.at ?? null;
    const frame = event.currentTarget.getBoundingClientRect();
    return pointing.find((event.clientX - frame.left) / zoom + x0, (event.clientY - frame.top) / zoom + y0);
  };
  const pick = (target) => target !== null && onPick && onPick(pointing.row(target));
  const onKeyDown = (event) => {
    const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (step && (pointing || names.length)) {
      event.preventDefault();
      point(pointing ? pointing.move(at, ...step) : names[clamp(names.indexOf(at) + step[0] + step[1], names.length - 1)]);
    } else if (event.key === 'Enter') pick(at);
  };
  // Lines that do not join what is pointed at are faint.
  useEffect(() => box.current.querySelectorAll('[data-joins]').forEach((line) => line.classList.toggle('dim', at !== null && !line.dataset.joins.split(' ').includes(at))), [at, figure.svg]);
  const marks = [...(picked === null || !pointing?.rowMark ? [] : [pointing.rowMark(picked)]), ...(at === null || !pointing ? [] : pointing.marks(at))];
  const said = at === null ? '' : pointing ? pointing.say(at) : describe?.(at) ?? '';
  const zoomBy = (factor) => setZoom(Math.min(MOST, Math.max(1, zoom * factor)));
  return html`<div class="chart" ref=${box}>
    <div class="scroll">
      <div class=${`drawing${onPick ? ' pickable' : ''}`} style=${{ width: `${width * zoom}px`, height: `${height * zoom}px` }} role="img" aria-label=${title} tabindex="0" onMouseMove=${(event) => point(find(event))}
        onMouseLeave=${() => point(null)} onClick=${(event) => pick(find(event))} onKeyDown=${onKeyDown}>
        <div class="drawn" dangerouslySetInnerHTML=${{ __html: figure.svg }}></div>
        <svg class="marks" viewBox=${`${x0} ${y0} ${width} ${height}`} aria-hidden="true">${marks.map(([name, x, y, w, h]) => html`<rect class=${`live ${name}`} x=${x} y=${y} width=${w} height=${h} />`)}</svg>
      </div>
    </div>
    <div class="drawing-foot">${figure.kind === 'HeatMap' ? html`<button class="button small" aria-label=${t('zoomOut')} disabled=${zoom === 1} onClick=${() => zoomBy(1 / STEP)}>−</button>
      <button class="button small" aria-label=${t('zoomIn')} disabled=${zoom === MOST} onClick=${() => zoomBy(STEP)}>+</button>` : null}<output class="readout">${said}</output></div>
  </div>`;
}

/** The width of a box for figures, in steps, followed as the window changes; 0 until it is known. */
function useDrawnWidth(box) {
  const [width, set] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([{ contentRect }]) => set(contentRect.width && clamp(Math.max(NARROWEST, Math.floor(contentRect.width / ROUND) * ROUND), WIDEST)));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return width;
}

/** What the server draws: asks `path` with this body. children(answer): what is shown of it. */
function Asked({ path, body, children }) {
  const box = useRef(null);
  const width = useDrawnWidth(box);
  const request = useRequest(width ? (signal) => post(path, { ...body, width }, signal) : null, [path, JSON.stringify(body), width]);
  return html`<div ref=${box}><${Result} request=${request}>${children}<//></div>`;
}

/** A figure of the page's own data. */
export function Drawn({ figure, ...view }) {
  return html`<${Asked} path="weft/draw" body=${{ figure }}>${(found) => html`<${Drawing} figure=${found} ...${view} />`}<//>`;
}

/** The figures of a probe; children({ results, figures, data, unknown }): what is shown of them. */
export function Shown({ model, probe, text, options = {}, children }) {
  const language = useLanguage();
  return html`<${Asked} path=${`weft/look/${encodeURIComponent(model)}/${probe}/figures`} body=${{ text, options, language }}>
    ${(found) => children({ ...found, data: found.results.length === 1 ? found.results[0] : found.results })}<//>`;
}

/** A figure of the server in its frame. Args: title, note, data, tools as `Figure` has them, the title of a text by what a prediction is about; what `Drawing` or `Influence` takes. */
export function FigureView({ figure, title = figure.title, note, data, tools, ...view }) {
  if (figure.kind === 'ColouredText') return html`<${Influence} ...${{ figure, title, note, data, tools, ...view }} />`;
  return html`<${Figure} title=${title} note=${note} data=${data} tools=${tools}><${Drawing} figure=${figure} title=${title} ...${view} /><//>`;
}
