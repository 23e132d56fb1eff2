// The page: header, the view that the address names, and what every view needs (models, language, theme).
import { html, render, useEffect, useErrorBoundary, useRef, useState } from './vendor/htm-preact-standalone.module.js';
import { MODELS_CHANGED, get, setKey, useRequest } from './api.js';
import { Language, LANGUAGES, firstLanguage, keepLanguage, named, useWords } from './language.js';
import { link, useAddress } from './location.js';
import { Empty, Failure, Progress } from './components/status.js';
import { Compare } from './views/compare.js';
import { Forecast } from './views/forecast.js';
import { Label } from './views/label.js';
import { Learn } from './views/learn.js';
import { Look } from './views/look.js';
import { Operate } from './views/operate.js';
import { Translate } from './views/translate.js';
import { Write } from './views/write.js';

// Each view, and the models it can use: those for which the server names one of these views.
const VIEWS = {
  write: [Write, ['write']],
  translate: [Translate, ['translate']],
  label: [Label, ['tag', 'segment', 'classify', 'fill']],
  forecast: [Forecast, ['forecast']],
  operate: [Operate, ['operate']],
  look: [Look, ['look']],
  learn: [Learn, []],
  compare: [Compare, ['operate', 'look']],
};
const THEMES = ['auto', 'light', 'dark'];
const THEME = 'weft-theme';
const ICONS = {
  auto: 'M10 3a7 7 0 0 0 0 14zM10 3a7 7 0 0 1 0 14',
  light: 'M10 6.5a3.5 3.5 0 1 0 0 7a3.5 3.5 0 1 0 0-7M10 1.5v2M10 16.5v2M1.5 10h2M16.5 10h2M4 4l1.4 1.4M14.6 14.6L16 16M16 4l-1.4 1.4M5.4 14.6L4 16',
  dark: 'M16.5 12A7 7 0 0 1 8 3.5a7 7 0 1 0 8.5 8.5z',
};

function usable(models, kinds) {
  return models.filter((model) => kinds.some((kind) => model.views.includes(kind)));
}

function Header({ view, models, language, setLanguage, theme, setTheme }) {
  const t = useWords();
  const { params } = useAddress();
  // The text goes along to views that read one, so a look inside is one press away.
  const kept = params.text ? { text: params.text } : {};
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  const other = language === 'en' ? 'zh' : 'en';
  const shown = Object.entries(VIEWS).filter(([, [, kinds]]) => !kinds.length || usable(models, kinds).length);
  const params_ = (name, kinds) => {
    const model = usable(models, kinds).find((one) => one.name === params.model);
    return name === 'learn' ? {} : model ? { model: model.name, ...kept } : {};
  };
  return html`<header class="header"><a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById('main').focus(); }}>${t('skip')}</a>
    <div class="header-row">
      <a class="brand" href=${link('')}><img src="page/icon.svg" alt="" />weft</a>
      <nav class="nav" aria-label=${t('views')}>${shown.map(([name, [, kinds]]) => html`<a key=${name} href=${link(name, params_(name, kinds))}
        aria-current=${name === view ? 'page' : undefined}>${t(`view-${name}`)}</a>`)}</nav>
      <div class="switches">
        <button onClick=${() => setLanguage(other)} lang=${other}>${LANGUAGES[other]}</button>
        <button onClick=${() => setTheme(next)} aria-label=${t('theme', { theme: t(`theme-${theme}`) })} title=${t('theme', { theme: t(`theme-${theme}`) })}>
          <svg viewBox="0 0 20 20" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linecap="round"><path d=${ICONS[theme]} />
            ${theme === 'auto' ? html`<path d="M10 3a7 7 0 0 0 0 14z" fill="currentColor" />` : null}</svg></button>
      </div>
    </div></header>`;
}

function KeyForm({ retry }) {
  const t = useWords();
  const submit = (event) => {
    event.preventDefault();
    setKey(event.target.elements.key.value);
    retry();
  };
  return html`<main><form class="key-form" onSubmit=${submit}><h1>${t('keyTitle')}</h1>
    <div class="field"><label for="key">${t('key')}</label><input id="key" name="key" type="password" autocomplete="off" required /></div>
    <button class="button primary">${t('open')}</button></form></main>`;
}

/** A view that none of the models has. */
function NoModel({ models }) {
  const t = useWords();
  return html`<${Empty} title=${t('noModel')}>${t('noModelHint', { models: models.map((one) => `${one.name} (${named(t, 'task', one.task)})`).join(', ') })}<//>`;
}

/** A view that fails shows its error; the rest of the page goes on. */
function Safe({ children }) {
  const [error, reset] = useErrorBoundary((found) => console.error(found));
  return error ? html`<${Failure} error=${error} retry=${reset} />` : children;
}

/** A view below its heading. models: null until they are known. */
function Main({ view, models, request }) {
  const t = useWords();
  if (!models) {
    return html`<main class="view"><h1 class="hidden">weft</h1>
      ${request.error ? html`<${Failure} error=${request.error} retry=${request.retry} />` : html`<${Progress} busy=${request.busy} />`}</main>`;
  }
  const [View, kinds] = VIEWS[view];
  const able = usable(models, kinds);
  return html`<main class="view" id="main" tabindex="-1">
    <div class="view-head"><h1>${t(`view-${view}`)}</h1><p>${t(`${view}Intro`)}</p></div>
    <${Safe} key=${view}>${able.length || !kinds.length ? html`<${View} models=${able} />` : html`<${NoModel} models=${models} />`}<//></main>`;
}

function Page() {
  const [language, setLanguage] = useState(firstLanguage);
  const [theme, setTheme] = useState(() => window.localStorage.getItem(THEME) ?? 'auto');
  const address = useAddress();
  const request = useRequest((signal) => get('weft/models', signal), []);
  useEffect(() => {
    window.addEventListener(MODELS_CHANGED, request.retry);
    return () => window.removeEventListener(MODELS_CHANGED, request.retry);
  }, []);
  useEffect(() => {
    document.documentElement.lang = language === 'zh' ? 'zh-CN' : 'en';
    keepLanguage(language);
  }, [language]);
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    window.localStorage.setItem(THEME, theme);
  }, [theme]);
  const loaded = useRef(null); // the list stays while it is asked for again
  if (request.data) loaded.current = request.data;
  const models = loaded.current?.models ?? [];
  const names = Object.keys(VIEWS);
  const first = names.find((name) => usable(models, VIEWS[name][1]).length) ?? 'learn';
  const view = names.includes(address.view) ? address.view : first;
  return html`<${Language.Provider} value=${language}>
    ${request.error?.status === 401 ? html`<${KeyForm} retry=${request.retry} />` : html`
      <${Header} view=${view} models=${models} language=${language} setLanguage=${setLanguage} theme=${theme} setTheme=${setTheme} />
      <${Main} view=${view} models=${loaded.current && models} request=${request} />`}
  <//>`;
}

// `weft serve --open` hands the key over in the address; it is taken out of it at once.
const given = new URLSearchParams(window.location.hash.slice(1)).get('key');
if (given) {
  setKey(given);
  window.history.replaceState(null, '', '#/');
  window.dispatchEvent(new HashChangeEvent('hashchange'));
}
render(html`<${Page} />`, document.getElementById('app'));
