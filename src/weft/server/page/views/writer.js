// One text that a language model writes, as a session of the server: it holds the state after every token, so going back,
// choosing another token and forking cost nothing that was computed before.
import { post, remove, stream } from '../api.js';

const TOP = 10; // alternatives of a token
const NEVER = ['<pad>', '<bos>', '<unk>']; // tokens that no model writes
const LOST = ['session_not_found', 'session_outdated']; // dropped by the server, or of weights that it no longer has
const [BUSY, PAUSE, ATTEMPTS] = ['session_in_use', 60, 40];

/** A request for a session. Right after a stop the session may still be in use; then it is asked again. */
async function patiently(request) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await request();
    } catch (error) {
      if (error.code !== BUSY || attempt >= ATTEMPTS) throw error;
      await new Promise((resolve) => { setTimeout(resolve, PAUSE); });
    }
  }
}

function act(id, action, body) {
  return patiently(() => post(`weft/sessions/${id}/${action}`, body));
}

function drop(id) {
  patiently(() => remove(`weft/sessions/${id}`)).catch(() => {}); // the server drops idle sessions by itself
}

function able(top) {
  return top.filter(([token]) => !NEVER.includes(token));
}

function made(session, given) {
  return session.tokens.map((token, at) => ({ token, logprob: session.logprobs[at], top: null, given: at < given }));
}

/** One thing at a time is done with a text; `stop` and `close` act at once. */
export class Writer {
  constructor(model, prompt, prompted, id, tokens) {
    Object.assign(this, { model, prompt, prompted, id, tokens, controller: null, closed: false });
  }

  /** A new text: the prompt, or its first `from` tokens, then tokens that were kept of an earlier text. */
  static async open(model, prompt, { from, tokens }, signal) {
    let session = await post('weft/sessions', { model, text: prompt }, signal);
    const prompted = session.length;
    const given = from >= 0 && from < prompted ? from : prompted;
    if (given < prompted) session = await act(session.id, 'rewind', { to: given });
    if (tokens.length) session = await act(session.id, 'read', { tokens });
    return new Writer(model, prompt, prompted, session.id, made(session, given));
  }

  /** A change of its session. One that the server has dropped is opened again with the same tokens. */
  async act(action, body) {
    try {
      return await act(this.id, action, body);
    } catch (error) {
      if (!LOST.includes(error.code)) throw error;
      const opened = await Writer.open(this.model, this.prompt, { from: this.given, tokens: this.written });
      this.id = opened.id;
      return act(this.id, action, body);
    }
  }

  get given() {
    return this.tokens.filter((one) => one.given).length;
  }

  get written() {
    return this.tokens.filter((one) => !one.given).map((one) => one.token);
  }

  /** Writes on; `show()` is called after each token. Settings are read when it starts: a change stops and restarts it. */
  async write({ count, sampling, seed }, show) {
    const controller = new AbortController();
    this.controller = controller;
    try {
      await this.act('rewind', { to: this.tokens.length }); // so that the session has these tokens, whatever came before
      if (controller.signal.aborted) return;
      const body = {
        model: this.model, prompt: '', session: this.id, max_tokens: count, ...sampling, logprobs: TOP,
        seed: seed + this.tokens.length,
      };
      for await (const event of stream('v1/completions', body, controller.signal)) {
        if (controller.signal.aborted) return;
        const found = event.choices[0]?.logprobs;
        if (!found) continue;
        this.tokens = this.tokens.concat(found.tokens.map((token, at) => ({
          token, logprob: found.token_logprobs[at], top: able(Object.entries(found.top_logprobs[at] ?? {})), given: false,
        })));
        show();
      }
    } catch (error) {
      if (error.name !== 'AbortError') throw error;
    } finally {
      if (this.controller === controller) this.controller = null;
    }
  }

  get writing() {
    return this.controller !== null;
  }

  stop() {
    this.controller?.abort();
    this.controller = null;
  }

  /** Back to the first `length` tokens, in the session too: it may hold tokens that were computed after a stop. */
  async rewind(length) {
    this.stop();
    await this.act('rewind', { to: length });
    this.tokens = this.tokens.slice(0, length);
  }

  /** Puts another token at a position and drops what came after it. */
  async choose(at, token) {
    const top = await this.alternatives(at);
    await this.rewind(at);
    await this.act('read', { tokens: [token] });
    const logprob = top.find(([name]) => name === token)?.[1] ?? null;
    this.tokens = [...this.tokens, { token, logprob, top, given: false, chosen: true }];
  }

  /** A second text with the same first `at` tokens. */
  async fork(at) {
    const session = await this.act('fork', { at });
    return new Writer(this.model, this.prompt, this.prompted, session.id, this.tokens.slice(0, at));
  }

  /** The most probable tokens at a position with their log-probabilities. */
  async alternatives(at) {
    const known = this.tokens[at]?.top;
    if (known) return known;
    const session = await this.act('fork', { at });
    const top = able(session.next);
    drop(session.id);
    this.tokens = this.tokens.map((one, place) => (place === at ? { ...one, top } : one));
    return top;
  }

  close() {
    this.stop();
    this.closed = true;
    drop(this.id);
  }
}
