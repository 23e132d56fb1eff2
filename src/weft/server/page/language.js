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

/** The name of a task, also of one that this page does not know. */
export function taskName(t, task) {
  return `task-${task}` in WORDS.en ? t(`task-${task}`) : task;
}

/** A gate or a part of the state of a layer: by its label, if its type has one, and its letter. */
export function partName(t, layer, name) {
  const label = layer.labels[name];
  if (label === undefined) return t(name in layer.gates ? 'gateName' : 'stateName', { name });
  return `${`part-${label}` in WORDS.en ? t(`part-${label}`) : label} ${name}`;
}

export function useWords() {
  const language = useContext(Language);
  return (name, values = {}) => {
    const text = WORDS[language][name] ?? WORDS.en[name];
    if (text === undefined) throw new Error(`no text is named ${name}`);
    return text.replace(/\{(\w+)\}/g, (_, key) => String(values[key]));
  };
}
