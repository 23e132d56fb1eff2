// What is shown where there is no result: progress, an error with what to do, an empty state.
import { html, useRef } from '../vendor/htm-preact-standalone.module.js';
import { useWords } from '../language.js';

/** A thin moving line; its place is kept so that nothing jumps when it comes and goes. */
export function Progress({ busy }) {
  const t = useWords();
  return html`<div class="progress" role="status" aria-live="polite">
    ${busy ? html`<span class="progress-line"></span><span class="hidden">${t('working')}</span>` : null}
  </div>`;
}

export function Failure({ error, retry }) {
  const t = useWords();
  const text = error.status === 0 ? t('noAnswer') : error.message;
  const title = error.status === 503 ? t('serverBusy') : error.status === 504 ? t('tookTooLong') : t('failed');
  return html`<div class="failure" role="alert">
    <strong>${title}</strong>
    <p>${text}</p>
    ${retry ? html`<button class="button" onClick=${retry}>${t('tryAgain')}</button>` : null}
  </div>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${children ? html`<p>${children}</p>` : null}</div>`;
}

/**
 * The result of a request: its progress, its error, or what `children(data)` makes of its data.
 *
 * While the answer to another question is on its way the last result stays as it was drawn: an old answer is never shown
 * with the text, model or settings of the new question.
 */
export function Result({ request, children, empty }) {
  const drawn = useRef(null);
  if (!request.data) drawn.current = null;
  else if (request.fresh || !drawn.current) drawn.current = children(request.data);
  return html`<div class="result" aria-busy=${request.busy ? 'true' : 'false'}>
    <${Progress} busy=${request.busy} />
    ${request.error ? html`<${Failure} error=${request.error} retry=${request.retry} />`
      : request.data ? html`<div class=${request.busy ? 'stale' : ''}>${drawn.current}</div>`
        : request.busy ? null : empty ?? null}
  </div>`;
}
