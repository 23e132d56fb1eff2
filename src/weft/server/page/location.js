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
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== '')).toString();
  return `#/${view}${query ? `?${query}` : ''}`;
}

function announce() {
  listeners.forEach((listener) => listener(current));
}

window.addEventListener('hashchange', () => {
  current = parse(window.location.hash);
  announce();
});

/** Opens a view with these settings, as a new step of the browser's history. */
export function go(view, params = {}) {
  clearTimeout(timer);
  current = { view, params };
  window.history.pushState(null, '', address(current));
  announce();
}

/** The address of a view with these settings. */
export function link(view, params = {}) {
  return address({ view, params });
}

/** Changes settings of the current view. Browsers limit how often an address may change, so it follows a moment later. */
export function change(params) {
  current = { view: current.view, params: { ...current.params, ...params } };
  clearTimeout(timer);
  timer = setTimeout(() => window.history.replaceState(null, '', address(current)), 150);
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

/** One setting of the view, of the type of its initial value; the initial value is not written to the address. */
export function useParam(name, initial) {
  const { params } = useAddress();
  const given = params[name];
  let value = initial;
  if (given !== undefined) {
    value = given;
    if (typeof initial === 'number') value = Number.isFinite(Number(given)) ? Number(given) : initial;
    if (typeof initial === 'boolean') value = given === '1';
  }
  const set = (next) => {
    let text = typeof next === 'boolean' ? (next ? '1' : '0') : String(next);
    if (next === initial) text = '';
    change({ [name]: text });
  };
  return [value, set];
}
