// Translate: a translation, where each word looks in the source, what the beam search considered; any word can be exchanged
// and the rest follows.
import { html, useCallback, useState } from '../vendor/htm-preact-standalone.module.js';
import { look, predict, useRequest } from '../api.js';
import { useWords } from '../language.js';
import { useParam } from '../location.js';
import { percent, short, visible } from '../numbers.js';
import { Bench, Check, Choice, ChoiceBars, ModelPicker, Slider, TextBox, useModel } from '../components/controls.js';
import { Drawn, Figure, FigureView, Shown } from '../components/figure.js';
import { Popover } from '../components/popover.js';
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

function AttentionFigure({ best }) {
  const t = useWords();
  const [shape, setShape] = useParam('attention', 'lines');
  const common = { values: best.attention, rows: best.tokens, columns: best.source };
  const figure = shape === 'lines' ? { kind: 'Alignment', ...common } : { kind: 'HeatMap', ...common, limits: [0, 1], label: t('weight') };
  const tools = html`<${Choice} quiet label=${t('shownAs')} value=${shape} onChange=${setShape} options=${[['lines', t('lines')], ['map', t('heatMap')]]} />`;
  return html`<${Figure} title=${t('attentionTitle')} note=${t('attentionNote')} data=${{ probe: 'attention', queries: best.tokens, steps: best.source, weights: best.attention }} tools=${tools}>
    <${Drawn} key=${shape} figure=${figure} title=${t('attentionTitle')} /><//>`;
}

function BeamFigure({ model, text, prefix, width }) {
  const t = useWords();
  const [all, setAll] = useParam('dropped', false);
  const describe = (nodes) => (at) => `${visible(nodes[at].text)}: ${t(`beam-${nodes[at].kind}`)} · log P ${short(nodes[at].value)}. ${nodes[at].note}`;
  return html`<${Shown} model=${model} probe="beam" text=${text} options=${{ width, prefix, kept: !all }}>${({ figures: [tree], data }) => html`
    <${FigureView} figure=${tree} title=${t('beamTitle')} note=${t('beamNote', { width: data.width })} data=${data} tools=${html`<${Check} label=${t('showDropped')} value=${all} onChange=${setAll} />`} describe=${describe(tree.nodes)} />`}<//>`;
}

export function Translate({ models }) {
  const t = useWords();
  const [model, setModel, missing] = useModel(models);
  const [text, setText] = useParam('text', model.example ?? '');
  const [width, setWidth] = useParam('beam', 5);
  const [forced, setForced] = useParam('prefix', '');
  const [open, setOpen] = useState(null);
  const prefix = forced ? forced.split(MARK) : [];
  const options = { beam: width, n_best: Math.min(3, width), attention: model.probes.includes('attention'), prefix };
  const request = useRequest(text.trim() ? (signal) => predict(model.name, 'translate', text, options, signal) : null, [model.name, text, width, forced]);
  const asking = JSON.stringify([model.name, text, forced]);
  const close = useCallback(() => setOpen(null), []);
  const another = (set) => (value) => { close(); setForced(''); set(value); };
  const choose = (tokens, at, token) => { close(); setForced([...tokens.slice(0, at), token].join(MARK)); };
  return html`<${Bench} panel=${html`
      <${ModelPicker} models=${models} value=${model.name} missing=${missing} onChange=${another(setModel)} />
      <${TextBox} label=${t('sourceText')} value=${text} onChange=${another(setText)} rows=${4} />
      <${Slider} label=${t('beamWidth')} value=${width} min="1" max="10" step="1" onChange=${setWidth} />`}>
      <${Result} request=${request} empty=${html`<${Empty} title=${t('translateEmpty')}>${t('translateHint')}<//>`}>${(found) => {
        const [best, ...others] = found.translations;
        if (!best) return html`<${Empty} title=${t('nothingFound')} />`;
        return html`<div class="stack">
          <section class="prose" lang=${model.languages?.target ?? undefined}>
            <${TokenText} tokens=${best.tokens} values=${best.tokens.map(() => null)} low=${0} high=${1} label=${t('translation')} selected=${open?.at ?? null}
              classes=${best.tokens.map((token, at) => `${at < prefix.length ? 'given' : ''} ${token === '<eos>' ? 'end' : ''}`)} onSelect=${(at, anchor) => setOpen({ at, anchor, tokens: best.tokens, asking })} />
              <div class="figure-foot"><span class="hint">${t('wordHint')} · ${t('probabilityOf', { p: percent(Math.exp(best.log_prob)) })} · ${t('score')} ${short(best.score)}</span>
              ${prefix.length ? html`<button class="button small" onClick=${() => setForced('')}>${t('release')}</button>` : null}</div>
              ${found.unknown?.length ? html`<p class="hint">${t('unknown', { words: found.unknown.join(', ') })}</p>` : null}
          </section>
          ${best.attention.length ? html`<${AttentionFigure} best=${best} />` : null}
          <${BeamFigure} model=${model.name} text=${text} prefix=${prefix} width=${width} />
          ${others.length ? html`<section><h2>${t('otherTranslations')}</h2><p class="figure-note">${t('scoreNote')}</p>
            <ul class="list">${others.map((one) => html`<li><span>${one.text}</span><span class="value">${t('score')} ${short(one.score)} · log P ${short(one.log_prob)}</span></li>`)}</ul></section>` : null}
        </div>`;
      }}<//>
    <//>
    ${open?.asking === asking ? html`<${OtherWords} model=${model.name} text=${text} tokens=${open.tokens} at=${open.at} anchor=${open.anchor} onClose=${close}
      onChoose=${(token) => choose(open.tokens, open.at, token)} />` : null}`;
}
