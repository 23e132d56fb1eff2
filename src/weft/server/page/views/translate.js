// Translate: a translation, where each word looks in the source, what the beam search considered; any word can be exchanged
// and the rest follows.
import { html, useCallback, useState } from '../vendor/htm-preact-standalone.module.js';
import { look, predict, useRequest } from '../api.js';
import { useWords } from '../language.js';
import { useParam } from '../location.js';
import { percent, short, visible } from '../numbers.js';
import { AttentionLines } from '../components/attention-lines.js';
import { ChoiceBars } from '../components/bars.js';
import { Check, Choice, ModelPicker, Slider, TextBox, useModel } from '../components/controls.js';
import { Figure } from '../components/figure.js';
import { Drawn } from '../components/drawing.js';
import { Popover } from '../components/popover.js';
import { FigureView, Shown } from '../components/shown.js';
import { Empty, Failure, Progress, Result } from '../components/status.js';
import { TokenText } from '../components/token-text.js';

const MARK = '\u001f';
const CHOICES = 8; // other words that are offered

/** The words that could stand at a position, after the words before it. */
function OtherWords({ model, text, tokens, at, anchor, onClose, onChoose }) {
  const t = useWords();
  const request = useRequest(
    (signal) => look(model, 'beam', text, { width: CHOICES, prefix: tokens.slice(0, at) }, signal).then(([found]) => found),
    [model, text, tokens.slice(0, at).join(MARK)],
  );
  const items = (request.data?.hypotheses ?? []).filter((one) => one.parent < 0)
    .map((one) => ({ token: one.token, probability: Math.exp(one.log_prob) })).sort((a, b) => b.probability - a.probability);
  return html`<${Popover} anchor=${anchor} label=${t('alternatives')} ready=${items.length > 0} onClose=${onClose}>
    <p class="popover-title">${visible(tokens[at])}</p>
    ${request.error ? html`<${Failure} error=${request.error} />`
      : request.data ? html`<${ChoiceBars} items=${items} current=${tokens[at]} label=${t('alternatives')} onPick=${(item) => onChoose(item.token)} />`
        : html`<${Progress} busy=${request.busy} />`}
    <p class="hint">${t('otherWordHint')}</p>
  <//>`;
}

function AttentionFigure({ best, shape, setShape }) {
  const t = useWords();
  const [pointed, point] = useState(null);
  const title = t('attentionTitle');
  const tools = html`<${Choice} quiet label=${t('shownAs')} value=${shape} onChange=${setShape} options=${[['lines', t('lines')], ['map', t('heatMap')]]} />`;
  return html`<${Figure} title=${title} note=${t('attentionNote')} data=${{ probe: 'attention', queries: best.tokens, tokens: best.source, weights: best.attention }} tools=${tools}>
    ${shape === 'lines' ? html`<${AttentionLines} source=${best.source} target=${best.tokens} weights=${best.attention} pointed=${pointed} onPoint=${point} title=${title} />`
      : html`<${Drawn} figure=${{ kind: 'HeatMap', values: best.attention, rows: best.tokens, columns: best.source, limits: [0, 1], label: t('weight') }} title=${title} />`}
  <//>`;
}

function BeamFigure({ model, text, prefix, width, all, setAll }) {
  const t = useWords();
  const describe = (nodes) => (at) => `${visible(nodes[at].text)}: ${t(`beam-${nodes[at].kind}`)} · log P ${short(nodes[at].value)}. ${nodes[at].note}`;
  return html`<${Shown} model=${model} probe="beam" text=${text} options=${{ width, prefix, kept: !all }}>${({ figures: [tree], data }) => html`
    <${FigureView} figure=${tree} title=${t('beamTitle')} note=${t('beamNote', { width: data.width })} data=${data} tools=${html`<${Check} label=${t('showDropped')} value=${all} onChange=${setAll} />`} describe=${describe(tree.nodes)} />`}<//>`;
}

export function Translate({ models }) {
  const t = useWords();
  const [model, setModel, missing] = useModel(models);
  const [text, setText] = useParam('text', model.example ?? '');
  const [width, setWidth] = useParam('beam', 5);
  const [shape, setShape] = useParam('attention', 'lines');
  const [all, setAll] = useParam('dropped', false);
  const [forced, setForced] = useParam('prefix', '');
  const [open, setOpen] = useState(null);
  const prefix = forced ? forced.split(MARK) : [];
  const attends = model.probes.includes('attention');
  const asked = text.trim();
  const options = { beam: width, n_best: Math.min(3, width), attention: attends, prefix };
  const request = useRequest(asked ? (signal) => predict(model.name, 'translate', text, options, signal) : null, [model.name, text, width, forced]);
  const asking = JSON.stringify([model.name, text, forced]);
  const close = useCallback(() => setOpen(null), []);
  const another = (set) => (value) => { close(); setForced(''); set(value); };
  const choose = (tokens, at, token) => { close(); setForced([...tokens.slice(0, at), token].join(MARK)); };
  return html`
    <div class="bench">
      <div class="panel">
        <${ModelPicker} models=${models} value=${model.name} missing=${missing} onChange=${another(setModel)} />
        <${TextBox} label=${t('sourceText')} value=${text} onChange=${another(setText)} rows=${4} />
        <${Slider} label=${t('beamWidth')} value=${width} min="1" max="10" step="1" onChange=${setWidth} />
      </div>
      <div class="results">
        <${Result} request=${request} empty=${html`<${Empty} title=${t('translateEmpty')}>${t('translateHint')}<//>`}>${(found) => {
          const [best, ...others] = found.translations;
          if (!best) return html`<${Empty} title=${t('nothingFound')} />`;
          return html`<div class="stack">
            <section class="prose" lang=${model.languages?.target ?? undefined}>
              <${TokenText} tokens=${best.tokens} values=${best.tokens.map(() => null)} low=${0} high=${1} label=${t('translation')} selected=${open?.at ?? null}
                classes=${best.tokens.map((token, at) => `${at < prefix.length ? 'given' : ''} ${token === '<eos>' ? 'end' : ''}`)} onSelect=${(at, anchor) => setOpen({ at, anchor, tokens: best.tokens, asking })} />
                <div class="figure-foot"><span class="hint">${t('wordHint')} · ${t('probabilityOf', { p: percent(Math.exp(best.log_prob)) })}</span>
                ${prefix.length ? html`<button class="button small" onClick=${() => setForced('')}>${t('release')}</button>` : null}</div>
                ${found.unknown?.length ? html`<p class="hint">${t('unknown', { words: found.unknown.join(', ') })}</p>` : null}
            </section>
            ${best.attention.length ? html`<${AttentionFigure} best=${best} shape=${shape} setShape=${setShape} />` : null}
            <${BeamFigure} model=${model.name} text=${text} prefix=${prefix} width=${width} all=${all} setAll=${setAll} />
            ${others.length ? html`<section><h2>${t('otherTranslations')}</h2><ul class="list">${others.map((one) => html`<li><span>${one.text}</span><span class="value">log P ${short(one.log_prob)}</span></li>`)}</ul></section>` : null}
          </div>`;
        }}<//>
      </div>
    </div>
    ${open?.asking === asking ? html`<${OtherWords} model=${model.name} text=${text} tokens=${open.tokens} at=${open.at} anchor=${open.anchor} onClose=${close}
      onChoose=${(token) => choose(open.tokens, open.at, token)} />` : null}`;
}
