// Influence on hover: point at a prediction and every token that was read is tinted by how much it counts for it, by the
// gradient with respect to its embedding (connectivity) or by the gradient that reaches the state after it (gradient flow).
import { html, useState } from '../vendor/htm-preact-standalone.module.js';
import { look, useRequest } from '../api.js';
import { partName, useWords } from '../language.js';
import { useParam } from '../location.js';
import { short, visible } from '../numbers.js';
import { valueRange } from '../palette.js';
import { Choice, Select } from '../components/controls.js';
import { Curves } from '../components/curves.js';
import { Figure } from '../components/figure.js';
import { Legend } from '../components/legend.js';
import { Result } from '../components/status.js';
import { TokenText, drawTokens } from '../components/token-text.js';

/** Which prediction belongs to a token that is read: a function from a position to a row, or null where they differ. */
function matching({ names, predictions, tokens }) {
  const shift = [1, 0].find((by) => names.every((name, row) => name === tokens[predictions[row] + by]));
  if (shift !== undefined) return (at) => predictions.indexOf(at - shift);
  const same = names.length === tokens.length && names.every((name, row) => name.endsWith(` ${tokens[row]}`)); // "TAG of word"
  return same ? (at) => at : null;
}

function dataOf(kind, found, part) {
  if (kind === 'connectivity') return { ...found, rows: found.influence, scale: found.method === 'integrated' ? 'diverging' : 'sequential' };
  const [number, name] = part;
  return { names: found.names, predictions: found.predictions, tokens: found.layers[number].tokens, rows: { ...found.layers[number].states, ...found.layers[number].gates }[name], scale: 'sequential' };
}

export function InfluenceFigure({ model, text, kind }) {
  const t = useWords();
  const [method, setMethod] = useParam('method', 'gradient');
  const [at, setAt] = useParam('at', -1);
  const [chosen, setChosen] = useParam('of', '');
  const [pointed, point] = useState(null);
  const options = kind === 'connectivity' ? { method } : {};
  const request = useRequest((signal) => look(model.name, kind, text, options, signal).then(([found]) => found), [model.name, text, kind, method]);
  return html`<${Result} request=${request}>${(found) => {
    const parts = kind === 'gradient' ? found.layers.flatMap((layer, number) => [...Object.keys(layer.states), ...Object.keys(layer.gates)]
      .map((name) => [`${number}/${name}`, `${partName(t, layer, name)} · ${layer.name.stack} ${t('layerNumber', { n: layer.name.layer })}${layer.name.direction === 'backward' ? ` ${t('backward')}` : ''}`])) : [];
    const part = parts.some(([key]) => key === chosen) ? chosen : parts[0]?.[0];
    const data = dataOf(kind, found, part?.split('/').map((one, n) => (n ? one : Number(one))));
    const rowOf = matching(data);
    const last = data.rows.length - 1;
    const fixed = at >= 0 && at <= last ? at : last;
    const row = pointed ?? fixed;
    const values = data.rows[row];
    const [low, high] = valueRange(values, data.scale);
    const title = t(kind === 'connectivity' ? 'influenceTitle' : 'gradientTitle', { what: visible(data.names[row]) });
    const notes = data.tokens.map((token, n) => `${visible(token)}: ${short(values[n])}`);
    const drawing = { tokens: data.tokens, values, low, high, scale: data.scale, notes };
    const onPoint = (place) => {
      const to = place === null ? -1 : rowOf(place);
      point(to >= 0 ? to : null);
    };
    const onSelect = (place) => rowOf(place) >= 0 && setAt(rowOf(place));
    const target = rowOf ? data.tokens.findIndex((_, n) => rowOf(n) === row) : -1;
    const tools = kind === 'connectivity'
      ? html`<${Choice} quiet label=${t('method')} value=${method} onChange=${setMethod} options=${[['gradient', t('method-gradient')], ['integrated', t('method-integrated')]]} />` : null;
    const curve = [{ name: parts.find(([key]) => key === part)?.[1] ?? '', x: values.map((_, n) => n), y: values.map(Math.abs), best: null, hue: 0 }];
    return html`<div class="stack">
      ${kind === 'gradient' ? html`<${Select} label=${t('gradientOf')} value=${part} onChange=${setChosen} options=${parts} />` : null}
      <${Figure} title=${title} note=${t(rowOf ? 'pointHint' : 'pickHint')} data=${found} tools=${tools} draw=${() => drawTokens(drawing)}>
        ${rowOf ? null : html`<div class="tabs" role="group" aria-label=${t('predictions')}>${data.names.map((name, n) => html`<button aria-pressed=${String(n === row)} onMouseEnter=${() => point(n)} onMouseLeave=${() => point(null)}
          onFocus=${() => point(n)} onBlur=${() => point(null)} onClick=${() => setAt(n)}>${visible(name)}</button>`)}</div>`}
        <${TokenText} ...${drawing} label=${title} onPoint=${rowOf ? onPoint : undefined} onSelect=${rowOf ? onSelect : undefined}
          classes=${data.tokens.map((_, n) => (n === target ? 'pointed' : ''))} />
        <div class="figure-foot"><${Legend} low=${low} high=${high} scale=${data.scale} label=${t(kind === 'gradient' ? 'norm' : `method-${method}`)} /></div>
      <//>
      ${kind === 'gradient' ? html`<${Figure} title=${t('gradientCurve')} note=${t('gradientNote')} data=${{ tokens: data.tokens, prediction: data.names[row], norms: values }}>
        <${Curves} curves=${curve} xLabel=${t('step')} log=${true} names=${data.tokens.map(visible)} height=${220} title=${t('gradientCurve')} /><//>` : null}
    </div>`;
  }}<//>`;
}
