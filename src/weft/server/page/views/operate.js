// Operations: any operation of any model, from the schema of its options. The form and what it gives are as the model says.
import { html } from '../vendor/htm-preact-standalone.module.js';
import { predict, useRequest } from '../api.js';
import { useWords } from '../language.js';
import { useParam } from '../location.js';
import { Check, ModelPicker, NumberBox, Select, TextBox, useModel } from '../components/controls.js';
import { Figure } from '../components/figure.js';
import { Value, called } from '../components/record.js';
import { Empty, Result } from '../components/status.js';

/** The control of an option. An empty box is the option's default. */
function Option({ name, schema, value, onChange }) {
  const t = useWords();
  const label = called(name);
  const shown = value ?? schema.default;
  const placeholder = schema.default === undefined || schema.default === '' ? '' : String(schema.default);
  if (schema.type === 'boolean') return html`<${Check} label=${label} value=${Boolean(shown)} onChange=${onChange} />`;
  if (schema.enum) return html`<${Select} label=${label} value=${shown ?? ''} onChange=${(one) => onChange(one || undefined)} options=${[...(schema.default === undefined ? [['', t('byDefault')]] : []), ...schema.enum.map((one) => [one, one])]} />`;
  if (schema.type === 'integer' || schema.type === 'number') {
    return html`<${NumberBox} label=${label} value=${shown ?? ''} min=${schema.minimum} max=${schema.maximum} whole=${schema.type === 'integer'} onChange=${onChange} onClear=${() => onChange(undefined)} />`;
  }
  const lines = schema.type === 'array';
  return html`<${TextBox} label=${lines ? t('onePerLine', { name: label }) : label} rows=${lines ? 2 : 1} placeholder=${placeholder} value=${lines ? (shown ?? []).join('\n') : shown ?? ''}
    onChange=${(text) => onChange(text === '' ? undefined : lines ? text.split('\n').filter(Boolean) : text)} />`;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export function Operate({ models }) {
  const t = useWords();
  const [model, setModel, missing] = useModel(models);
  const names = Object.keys(model.operations);
  const [wanted, setName] = useParam('operation', '');
  const name = names.includes(wanted) ? wanted : names[0];
  const [text, setText] = useParam('text', model.example ?? '');
  const [given, setGiven] = useParam('options', '{}');
  const { description, input, options: { properties } } = model.operations[name];
  const value = input.type === 'string' ? text : parsed(text);
  // Of the address only what this operation has; a default need not be said.
  const options = Object.fromEntries(Object.entries(parsed(given) ?? {}).filter(([key, value]) => key in properties && JSON.stringify(value) !== JSON.stringify(properties[key].default)));
  const set = (key) => (one) => setGiven((old) => JSON.stringify({ ...parsed(old), [key]: one })); // several may change at once
  const request = useRequest(text.trim() && value !== undefined ? (signal) => predict(model.name, name, value, options, signal) : null, [model.name, name, text, JSON.stringify(options)]);
  return html`
    <div class="bench">
      <div class="panel">
        <${ModelPicker} models=${models} value=${model.name} missing=${missing} onChange=${setModel} />
        <${Select} label=${t('operation')} value=${name} onChange=${setName} options=${names.map((one) => [one, called(one)])} />
        <p class="hint">${description}</p>
        <${TextBox} label=${t(input.type === 'string' ? 'text' : 'jsonInput')} value=${text} onChange=${setText} rows=${4} />
        ${Object.entries(properties).map(([key, schema]) => html`<div key=${`${name} ${key}`} class="field">
          <${Option} name=${key} schema=${schema} value=${options[key]} onChange=${set(key)} /><p class="hint">${schema.description}</p></div>`)}
      </div>
      <div class="results">
        <${Result} request=${request} empty=${value === undefined ? html`<${Empty} title=${t('noJson')} />` : html`<${Empty} title=${t('labelEmpty')}>${t('labelHint')}<//>`}>${(found) => html`
          <${Figure} title=${called(name)} data=${found} drawn=${false}><${Value} value=${found} title=${called(name)} /><//>`}<//>
      </div>
    </div>`;
}
