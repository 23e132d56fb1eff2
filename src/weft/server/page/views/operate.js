// Operations: any operation of any model, from the schema of its options. The form and what it gives are as the model says.
import { html } from '../vendor/htm-preact-standalone.module.js';
import { predict, useRequest } from '../api.js';
import { useWords } from '../language.js';
import { useParam } from '../location.js';
import { Bench, Fold, ModelPicker, OptionControl, Select, TextBox, parsed, useModel, useOptions } from '../components/controls.js';
import { Figure } from '../components/figure.js';
import { Value, called } from '../components/record.js';
import { Empty, Result } from '../components/status.js';

export function Operate({ models }) {
  const t = useWords();
  const [model, setModel, missing] = useModel(models);
  const names = Object.keys(model.operations);
  const [wanted, setName] = useParam('operation', '');
  const name = names.includes(wanted) ? wanted : names[0];
  const [text, setText] = useParam('text', model.example ?? '');
  const { description, input, options: { properties } } = model.operations[name];
  const [about, ...rest] = description.split(/(?<=\.)\s+/);
  const [options, setOption] = useOptions(properties);
  const value = input.type === 'string' ? text : parsed(text);
  const request = useRequest(text.trim() && value !== undefined ? (signal) => predict(model.name, name, value, options, signal) : null, [model.name, name, text, JSON.stringify(options)]);
  return html`<${Bench} panel=${html`
    <${ModelPicker} models=${models} value=${model.name} missing=${missing} onChange=${setModel} />
    <${Select} label=${t('operation')} value=${name} onChange=${setName} options=${names.map((one) => [one, called(one)])} />
    <p class="hint">${about}</p>
    <${TextBox} label=${t(input.type === 'string' ? 'text' : 'jsonInput')} value=${text} onChange=${setText} rows=${4} />
    ${Object.keys(properties).length ? html`<${Fold}>${rest.length ? html`<p class="hint">${rest.join(' ')}</p>` : null}${Object.entries(properties).map(([key, schema]) => html`<div key=${`${name} ${key}`} class="field">
      <${OptionControl} label=${called(key)} schema=${schema} value=${options[key]} onChange=${(one) => setOption(key, one)} /><p class="hint">${schema.description}</p></div>`)}<//>` : null}`}>
    <${Result} request=${request} empty=${value === undefined ? html`<${Empty} title=${t('noJson')} />` : html`<${Empty} title=${t('labelEmpty')}>${t('labelHint')}<//>`}>${(found) => html`
      <${Figure} title=${called(name)} data=${found} drawn=${false}><${Value} value=${found} title=${called(name)} /><//>`}<//>
  <//>`;
}
