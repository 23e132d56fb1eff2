// Compare: two runs on the same text, the settings in which they differ, and their scores.
import { html } from '../vendor/htm-preact-standalone.module.js';
import { look, predict, useRequest } from '../api.js';
import { taskName, useWords } from '../language.js';
import { useParam } from '../location.js';
import { count, percent, short, visible } from '../numbers.js';
import { valueRange } from '../palette.js';
import { ModelPicker, TextBox, useModel } from '../components/controls.js';
import { Figure } from '../components/figure.js';
import { Legend } from '../components/legend.js';
import { Empty, Result } from '../components/status.js';
import { TokenText } from '../components/token-text.js';
import { PairedTests } from './paired.js';

const CAPABILITIES = ['classify', 'tag', 'segment', 'translate', 'fill'];

function mean(values) {
  const finite = values.filter((value) => value !== null);
  return finite.length ? finite.reduce((a, b) => a + b, 0) / finite.length : null;
}

/** Surprisal of both, and where they differ if they read the same tokens. */
function Surprisals({ pair, text }) {
  const t = useWords();
  const request = useRequest(
    (signal) => Promise.all(pair.map((model) => look(model.name, 'surprisal', text, {}, signal).then(([found]) => found))),
    [...pair.map((model) => model.name), text],
  );
  return html`<${Result} request=${request}>${(found) => {
    const [low, high] = valueRange(found.flatMap((one) => one.nats), 'sequential');
    const same = found[0].tokens.length === found[1].tokens.length && found[0].tokens.every((token, at) => token === found[1].tokens[at]);
    const differences = same ? found[0].nats.map((value, at) => (value === null || found[1].nats[at] === null ? null : value - found[1].nats[at])) : [];
    const [from, to] = valueRange(differences, 'diverging');
    const notes = differences.map((value, at) => `${visible(found[0].tokens[at])}: ${short(found[0].nats[at])} − ${short(found[1].nats[at])}`);
    const drawing = { tokens: found[0].tokens, values: differences, low: from, high: to, scale: 'diverging', notes };
    const names = pair.map((model) => model.name);
    return html`<div class="stack">
      <div class="columns">${found.map((one, n) => {
        const own = { tokens: one.tokens, values: one.nats, low, high, notes: one.nats.map((value) => `${short(value)} ${t('nats')}`) };
        return html`<${Figure} title=${t('surprisalOf', { run: names[n] })} note=${t('meanNats', { nats: short(mean(one.nats)) })} data=${one} figure=${{ kind: 'ColouredText', tokens: one.tokens, values: one.nats, label: t('nats') }}>
          <${TokenText} ...${own} label=${t('surprisalOf', { run: names[n] })} /><//>`;
      })}</div>
      <${Legend} low=${low} high=${high} scale="sequential" label=${t('nats')} />
      ${same ? html`<${Figure} title=${t('differenceTitle')} note=${t('differenceNote', { first: names[0], second: names[1] })} data=${{ runs: names, tokens: found[0].tokens, difference: differences }} figure=${{ kind: 'ColouredText', tokens: drawing.tokens, values: differences, label: t('nats'), scale: 'diverging' }}
        tools=${html`<${Legend} low=${from} high=${to} scale="diverging" label=${t('nats')} />`}><${TokenText} ...${drawing} label=${t('differenceTitle')} /><//>` : html`<p class="hint">${t('otherTokens')}</p>`}
    </div>`;
  }}<//>`;
}

/** What a record says, in a line or two. */
function said(kind, record) {
  if (kind === 'classify') return [record.label, percent(record.probabilities[record.label])];
  if (kind === 'translate') return [record.translations[0]?.text ?? '', `log P ${short(record.translations[0]?.log_prob)}`];
  if (kind === 'fill') return [record.answers[0]?.text ?? '', percent(record.answers[0]?.probability ?? 0)];
  if (kind === 'segment') return [record.words.join(' · '), percent(record.probability)];
  return [record.words.map((word, at) => `${word}/${record.tags[at]}`).join(' '), percent(record.probability)];
}

function Answers({ pair, text, kind }) {
  const t = useWords();
  const request = useRequest((signal) => Promise.all(pair.map((model) => predict(model.name, kind, text, {}, signal))), [...pair.map((model) => model.name), text, kind]);
  return html`<${Result} request=${request}>${(found) => {
    const answers = found.map((record) => said(kind, record));
    return html`<div class="columns">${answers.map(([answer, sure], n) => html`<section><h2>${pair[n].name}</h2><p class="sentence">${answer}</p><p class="hint">${sure}</p></section>`)}</div>
      <p class="hint">${answers[0][0] === answers[1][0] ? t('sameAnswer') : t('otherAnswer')}</p>`;
  }}<//>`;
}

function flat(settings, prefix = '') {
  return Object.entries(settings ?? {}).flatMap(([name, value]) => (value !== null && typeof value === 'object' && !Array.isArray(value)
    ? flat(value, `${prefix}${name}.`) : [[prefix + name, typeof value === 'string' ? value || '–' : JSON.stringify(value)]]));
}

function Settings({ pair }) {
  const t = useWords();
  const [first, second] = pair.map((model) => new Map(flat(model.settings)));
  const names = [...new Set([...first.keys(), ...second.keys()])].filter((name) => first.get(name) !== second.get(name)).sort();
  const metric = pair[0].metric === pair[1].metric;
  const rows = [
    [t('task'), ...pair.map((model) => taskName(t, model.task))],
    [t('weights'), ...pair.map((model) => count(model.weights))],
    [metric ? t('bestOf', { metric: pair[0].metric }) : t('best'), ...pair.map((model) => (model.best === null ? '–' : metric ? short(model.best) : `${short(model.best)} ${model.metric}`))],
    ...names.map((name) => [name, first.get(name) ?? '–', second.get(name) ?? '–']),
  ];
  return html`<section><h2>${t('settingsTitle')}</h2><div class="table-scroll"><table class="table"><thead><tr><th scope="col">${t('setting')}</th>${pair.map((model) => html`<th scope="col">${model.name}</th>`)}</tr></thead>
    <tbody>${rows.map(([name, one, other]) => html`<tr><th scope="row">${name}</th><td>${one}</td><td>${other}</td></tr>`)}</tbody></table></div></section>`;
}

export function Compare({ models }) {
  const t = useWords();
  const [first, setFirst, missingFirst] = useModel(models);
  // By default the first other run of the same task.
  const others = models.filter((one) => one.name !== first.name);
  const guess = others.find((one) => one.task === first.task) ?? others[0] ?? first;
  const [second, setSecond, missingSecond] = useModel(models, 'with', guess);
  const [text, setText] = useParam('text', first.example ?? '');
  const pair = [first, second];
  const reads = pair.every((model) => model.probes.includes('surprisal'));
  const kind = CAPABILITIES.find((one) => pair.every((model) => model.capabilities.includes(one)));
  const blank = kind === 'fill' && !text.includes('_');
  const ready = text.trim() !== '';
  return html`
    <div class="bench">
      <div class="panel">
        <${ModelPicker} label=${t('firstRun')} models=${models} value=${first.name} missing=${missingFirst} onChange=${setFirst} />
        <${ModelPicker} label=${t('secondRun')} models=${models} value=${second.name} missing=${missingSecond} onChange=${setSecond} />
        <${TextBox} label=${t('text')} value=${text} onChange=${setText} rows=${5} />
      </div>
      <div class="results">
        ${models.length < 2 ? html`<${Empty} title=${t('oneRun')}>${t('oneRunHint')} <code>weft serve runs/a runs/b</code><//>` : !ready ? html`<${Empty} title=${t('labelEmpty')}>${t('labelHint')}<//>` : null}
        ${ready && kind && !blank ? html`<${Answers} key=${kind} pair=${pair} text=${text} kind=${kind} />` : null}
        ${ready && reads ? html`<${Surprisals} pair=${pair} text=${text} />` : null}
        ${ready && !reads && !kind ? html`<p class="hint">${t('nothingCommon')}</p>` : null}
        ${first.name !== second.name && first.task === second.task ? html`<${PairedTests} pair=${pair} />` : null}
        <${Settings} pair=${pair} />
      </div>
    </div>`;
}
