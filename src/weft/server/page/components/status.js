// What is shown where there is no result: progress, an error with what to do, an empty state.
import { html } from '../vendor/htm-preact-standalone.module.js';
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

/** The result of a request: its progress, its error, or what `children(data)` makes of its data. */
export function Result({ request, children, empty }) {
  return html`<div class="result" aria-busy=${request.busy ? 'true' : 'false'}>
    <${Progress} busy=${request.busy} />
    ${request.error ? html`<${Failure} error=${request.error} retry=${request.retry} />`
      : request.data ? html`<div class=${request.busy ? 'stale' : ''}>${children(request.data)}</div>`
        : request.busy ? null : empty ?? null}
  </div>`;
}
