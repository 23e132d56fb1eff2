// The figures of a probe of a model on a text: texts whose tokens are tinted, and drawings of the server.
import { html, useRef, useState } from '../vendor/htm-preact-standalone.module.js';
import { post, useRequest } from '../api.js';
import { useWords } from '../language.js';
import { short, visible } from '../numbers.js';
import { valueRange } from '../palette.js';
import { Drawing, useDrawnWidth } from './drawing.js';
import { Figure } from './figure.js';
import { Legend } from './legend.js';
import { Result } from './status.js';
import { TokenText } from './token-text.js';

/** A coloured text. Where it has the influence on several predictions, it shows that on the one at the pointer, or the one held. */
function TextFigure({ figure, title, note, data, held, onHold, tools }) {
  const t = useWords();
  const [pointed, point] = useState(null);
  const { tokens, influence, about, rows } = figure;
  const several = about.length > 1;
  const row = pointed ?? (held >= 0 && held < about.length ? held : about.length - 1);
  const values = several ? influence[row] : figure.values;
  const [low, high] = several ? valueRange(values, figure.scale) : figure.range;
  const notes = several ? tokens.map((token, n) => `${visible(token)}: ${short(values[n])}`) : figure.notes;
  const shown = typeof title === 'function' ? title(visible(about[row] ?? '')) : title;
  const onPoint = several && rows.length ? (at) => point(at !== null && rows[at] >= 0 ? rows[at] : null) : undefined;
  const onSelect = several && rows.length ? (at) => rows[at] >= 0 && onHold(rows[at]) : undefined;
  const hint = several ? `${note ? `${note} ` : ''}${t(rows.length ? 'pointHint' : 'pickHint')}` : note;
  const drawn = { kind: 'ColouredText', title: shown, tokens, values, label: figure.label, scale: figure.scale, notes };
  return html`<${Figure} title=${shown} note=${hint} data=${data} tools=${tools} figure=${drawn}>
    ${several && !rows.length ? html`<div class="tabs" role="group" aria-label=${t('predictions')}>${about.map((name, n) => html`<button aria-pressed=${String(n === row)}
      onMouseEnter=${() => point(n)} onMouseLeave=${() => point(null)} onFocus=${() => point(n)} onBlur=${() => point(null)} onClick=${() => onHold(n)}>${visible(name)}</button>`)}</div>` : null}
    <${TokenText} tokens=${tokens} values=${values} low=${low} high=${high} scale=${figure.scale} notes=${notes.length ? notes : tokens.map((token, n) => `${visible(token)}: ${short(values[n])}`)} label=${shown}
      onPoint=${onPoint} onSelect=${onSelect} classes=${tokens.map((_, n) => (several && rows[n] === row ? 'pointed' : ''))} />
    <div class="figure-foot"><${Legend} low=${low} high=${high} scale=${figure.scale} label=${figure.label} /></div>
  <//>`;
}

/** A figure of the server. Args: title: a text, or of a coloured text a function of what a prediction is about; note, data, tools as `Figure` has them; and what `Drawing` or a coloured text takes. */
export function FigureView({ figure, title, note, data, tools, ...view }) {
  if (figure.kind === 'ColouredText') return html`<${TextFigure} ...${{ figure, title, note, data, tools }} held=${view.held ?? -1} onHold=${view.onHold} />`;
  return html`<${Figure} title=${title} note=${note} data=${data} tools=${tools}><${Drawing} figure=${figure} title=${title} ...${view} /><//>`;
}

/** Asks a probe for its figures; children({ results, figures, data }): what is shown of them. */
export function Shown({ model, probe, text, options = {}, children }) {
  const box = useRef(null);
  const width = useDrawnWidth(box);
  const body = { text, options, width: Math.max(240, width) };
  const path = `weft/look/${encodeURIComponent(model)}/${probe}/figures`;
  const request = useRequest(width ? (signal) => post(path, body, signal) : null, [model, probe, text, JSON.stringify(options), width]);
  return html`<div ref=${box}><${Result} request=${request}>${(found) => children({ ...found, data: found.results.length === 1 ? found.results[0] : found.results })}<//></div>`;
}
