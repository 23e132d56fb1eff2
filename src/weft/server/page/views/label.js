// Tag / Classify / Fill: what a model says about a text, how sure it is, and which words speak for it.
import { html } from '../vendor/htm-preact-standalone.module.js';
import { useWords } from '../language.js';
import { useParam } from '../location.js';
import { Choice, ModelPicker, TextBox, useModel } from '../components/controls.js';
import { Empty } from '../components/status.js';
import { Classified } from './classified.js';
import { Filled } from './filled.js';
import { Segmented, Tagged } from './tagged.js';

const KINDS = { tag: Tagged, segment: Segmented, classify: Classified, fill: Filled };
const BLANK = '___';

export function Label({ models }) {
  const t = useWords();
  const [model, setModel, missing] = useModel(models);
  const [chosen, setKind] = useParam('as', '');
  const kinds = Object.keys(KINDS).filter((kind) => model.views.includes(kind) || model.capabilities.includes(kind));
  const kind = kinds.includes(chosen) ? chosen : kinds[0];
  const [text, setText] = useParam('text', model.example ?? '');
  const Kind = KINDS[kind];
  const blank = kind === 'fill' && !text.includes('_');
  return html`
    <div class="bench">
      <div class="panel">
        <${ModelPicker} models=${models} value=${model.name} missing=${missing} onChange=${setModel} />
        ${kinds.length > 1 ? html`<${Choice} label=${t('use')} value=${kind} onChange=${setKind} options=${kinds.map((one) => [one, t(`task-${one}`)])} />` : null}
        <${TextBox} label=${t('text')} value=${text} onChange=${setText} rows=${5} />
        ${kind === 'fill' ? html`<button class="button small" onClick=${() => setText(`${text.trimEnd()} ${BLANK}`.trimStart())}>${t('addBlank')}</button>
          <p class="hint">${t('blankHint')}</p>` : null}
      </div>
      <div class="results">
        ${text.trim() && !blank ? html`<${Kind} key=${`${model.name} ${kind}`} model=${model} text=${text} setText=${setText} />`
          : html`<${Empty} title=${blank ? t('noBlank') : t('labelEmpty')}>${blank ? t('blankHint') : t('labelHint')}<//>`}
      </div>
    </div>`;
}
