// Requests to the server: JSON, server-sent events, errors with the server's own message, and a hook that runs them.
import { useEffect, useState } from './vendor/htm-preact-standalone.module.js';

const KEY = 'weft-api-key';
const SLOW = 300; // ms, after which progress is shown

export const MODELS_CHANGED = 'weft-models-changed'; // an event of the window: the server does not have a model any more

/** What the server refused, or that it did not answer (status 0). */
export class ApiError extends Error {
  constructor(status, message, code = '') {
    super(message);
    Object.assign(this, { status, code });
  }
}

export function setKey(key) {
  window.sessionStorage.setItem(KEY, key);
}

function headers(body) {
  const key = window.sessionStorage.getItem(KEY);
  return {
    ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
    ...(key ? { Authorization: `Bearer ${key}` } : {}),
  };
}

function messageOf(body, status) {
  const found = body?.error?.message ?? body?.error ?? body?.detail ?? body?.message;
  return typeof found === 'string' ? found : `HTTP ${status}`;
}

async function send(method, path, body, signal) {
  let response;
  try {
    const options = { method, signal, headers: headers(body) };
    if (body !== undefined) options.body = JSON.stringify(body);
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, '');
  }
  if (!response.ok) {
    const found = await response.json().catch(() => null);
    if (found?.error?.code === 'model_not_found') window.dispatchEvent(new Event(MODELS_CHANGED));
    throw new ApiError(response.status, messageOf(found, response.status), found?.error?.code);
  }
  return response;
}

async function json(method, path, body, signal) {
  const response = await send(method, path, body, signal);
  return response.status === 204 ? null : response.json();
}

export const get = (path, signal) => json('GET', path, undefined, signal);
export const post = (path, body, signal) => json('POST', path, body, signal);
export const remove = (path) => json('DELETE', path);

/** The result of a probe of a model on a text. */
export async function look(model, probe, text, options, signal) {
  return post(`weft/look/${encodeURIComponent(model)}/${probe}`, { text, options }, signal);
}

/** The record of one text from the command that fits the model. */
export async function predict(model, operation, text, options, signal) {
  const path = `weft/predict/${encodeURIComponent(model)}`;
  const found = await post(path, { texts: [text], options, operation }, signal);
  return found.results[0];
}

/** The events of a stream, parsed, until "[DONE]". */
export async function* stream(path, body, signal) {
  const response = await send('POST', path, { ...body, stream: true }, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith('data:')) continue;
      const text = line.slice(5).trim();
      if (text === '[DONE]') return;
      const event = JSON.parse(text);
      if (event.error) throw new ApiError(500, messageOf(event, 500));
      yield event;
    }
  }
}

/**
 * Runs a request whenever one of `inputs` changes and cancels the one before.
 *
 * `make(signal)` returns a promise; null in its place means that there is nothing to ask. The last result stays while the
 * next is on its way; `fresh` says whether it belongs to the current inputs. `busy` is true only after 300 ms, so quick
 * answers do not flicker.
 */
export function useRequest(make, inputs) {
  const [state, set] = useState({ data: null, error: null, busy: false, of: [] });
  const [again, retry] = useState(0);
  useEffect(() => {
    if (!make) {
      set({ data: null, error: null, busy: false, of: inputs });
      return undefined;
    }
    const controller = new AbortController();
    const timer = setTimeout(() => set((old) => ({ ...old, busy: true })), SLOW);
    make(controller.signal)
      .then((data) => !controller.signal.aborted && set({ data, error: null, busy: false, of: inputs }))
      .catch((error) => {
        if (controller.signal.aborted) return;
        if (!(error instanceof ApiError)) console.error(error);
        set({ data: null, error, busy: false, of: inputs });
      })
      .finally(() => clearTimeout(timer));
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [...inputs, again]);
  const fresh = state.of.length === inputs.length && state.of.every((one, at) => Object.is(one, inputs[at]));
  return { ...state, fresh, retry: () => retry((count) => count + 1) };
}
