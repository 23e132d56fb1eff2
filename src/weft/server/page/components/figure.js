// The frame of every figure: its title, what it shows, and the menu that saves it.
import { html, useRef } from '../vendor/htm-preact-standalone.module.js';
import { post } from '../api.js';
import { useWords } from '../language.js';
import { saveFigure } from '../save.js';
import { Menu } from './controls.js';

/**
 * A figure. What is saved is the SVG among its children, or, where they are text, the drawing that the server makes of
 * `figure`. `data` is what is saved as JSON; without a drawing nothing else is.
 */
export function Figure({ title, note = '', data, figure, drawn = true, tools, children }) {
  const t = useWords();
  const body = useRef(null);
  const save = async (kind) => {
    const element = body.current.querySelector('.drawn svg, svg.drawing');
    const svg = kind === 'json' || element ? '' : (await post('weft/draw', { figure: { title, ...figure } })).file;
    await saveFigure(kind, { element, svg, title, note, data });
  };
  const items = [['svg', t('saveSvg')], ['html', t('saveHtml')], ['json', t('saveJson')]]
    .filter(([kind]) => drawn || kind === 'json').map(([kind, text]) => [kind, text, () => save(kind)]);
  return html`<figure class="figure">
    <figcaption>
      <div class="figure-head"><h2>${title}</h2>
        <div class="figure-tools">${tools}<${Menu} label=${t('save')} items=${items} /></div></div>
      ${note ? html`<p class="figure-note">${note}</p>` : null}
    </figcaption>
    <div class="figure-body" ref=${body}>${children}</div>
  </figure>`;
}
