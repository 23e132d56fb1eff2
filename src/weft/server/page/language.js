// English and Chinese. `t(name, values)` is the text of a name in the current language, with {values} put in.
import { createContext, useContext } from './vendor/htm-preact-standalone.module.js';
import en from './words/en.js';
import zh from './words/zh.js';

export const LANGUAGES = { en: 'English', zh: '中文' };
export const WORDS = { en, zh };
const KEPT = 'weft-language';

export const Language = createContext('en');

/** The language chosen before, or the browser's. */
export function firstLanguage() {
  const kept = window.localStorage.getItem(KEPT);
  if (kept in LANGUAGES) return kept;
  return navigator.language.toLowerCase().startsWith('zh') ? 'zh' : 'en';
}

export function keepLanguage(language) {
  window.localStorage.setItem(KEPT, language);
}

/** A gate or a part of the state of a layer: by its label, if its type has one, and its letter. */
export function partName(t, layer, name) {
  const label = layer.labels[name];
  if (label === undefined) return t(name in layer.gates ? 'gateName' : 'stateName', { name });
  return `${named(t, 'part', label)} ${name}`;
}

export const useLanguage = () => useContext(Language);

/** The name of something that the server names, such as a probe, an option or a metric; as it is where this page does not know it. */
export function named(t, kind, name) {
  return `${kind}-${name}` in WORDS.en ? t(`${kind}-${name}`) : name.replaceAll('_', ' ');
}

/** The name of a metric within a sentence. */
export function metricName(t, metric) {
  return named(t, 'metric', metric).replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase());
}

export function useWords() {
  const language = useLanguage();
  return (name, values = {}) => {
    const text = WORDS[language][name] ?? WORDS.en[name];
    if (text === undefined) throw new Error(`no text is named ${name}`);
    return text.replace(/\{(\w+)\}/g, (_, key) => String(values[key]));
  };
}
