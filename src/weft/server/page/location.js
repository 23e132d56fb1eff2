// The state of the page is its address: the view and its settings stand after the '#', so a link shows what its sender
// saw. A browser does not send this part to the server.
import { useEffect, useState } from './vendor/htm-preact-standalone.module.js';

const listeners = new Set();
let timer = 0;
let current = parse(window.location.hash);

function parse(hash) {
  const [view, query = ''] = hash.replace(/^#\/?/, '').split('?');
  return { view: decodeURIComponent(view), params: Object.fromEntries(new URLSearchParams(query)) };
}

function address({ view, params }) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== undefined)).toString();
  return `#/${view}${query ? `?${query}` : ''}`;
}

// Writes a change that waits for its turn, so that the step of the history that a link leaves, or a reload, has it.
function flush() {
  if (!timer) return;
  clearTimeout(timer);
  timer = 0;
  window.history.replaceState(null, '', address(current));
}

document.addEventListener('click', flush, true);
window.addEventListener('pagehide', flush);

function announce() {
  listeners.forEach((listener) => listener(current));
}

window.addEventListener('hashchange', () => {
  clearTimeout(timer);
  timer = 0;
  current = parse(window.location.hash);
  announce();
});

/** The address of a view with these settings. */
export function link(view, params = {}) {
  return address({ view, params });
}

/** Changes settings of the current view. Browsers limit how often an address may change, so it follows a moment later. */
export function change(params) {
  current = { view: current.view, params: { ...current.params, ...params } };
  clearTimeout(timer);
  timer = setTimeout(flush, 150);
  announce();
}

/** The current view and its settings. */
export function useAddress() {
  const [value, set] = useState(current);
  useEffect(() => {
    listeners.add(set);
    set(current);
    return () => listeners.delete(set);
  }, []);
  return value;
}

/**
 * One setting of the view, of the type of its initial value; the initial value is not written to the address. What sets
 * it takes a value, or a function of the value that it has then.
 */
export function useParam(name, initial) {
  const { params } = useAddress();
  const read = (given) => {
    if (given === undefined) return initial;
    if (typeof initial === 'number') return given.trim() !== '' && Number.isFinite(Number(given)) ? Number(given) : initial;
    return typeof initial === 'boolean' ? given === '1' : given;
  };
  const set = (made) => {
    const next = typeof made === 'function' ? made(read(current.params[name])) : made;
    const text = typeof next === 'boolean' ? (next ? '1' : '0') : String(next);
    change({ [name]: next === initial ? undefined : text });
  };
  return [read(params[name]), set];
}
