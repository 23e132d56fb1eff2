// One text that a language model writes, as a session of the server: it holds the state after every token, so going back,
// choosing another token and forking cost nothing that was computed before.
import { post, remove, stream } from '../api.js';

const TOP = 10; // alternatives of a token
const NEVER = ['<pad>', '<bos>', '<unk>']; // tokens that no model writes
const [BUSY, PAUSE, ATTEMPTS] = [409, 60, 40];

/** A change of a session. Right after a stop the session may still be in use; then it is asked again. */
async function act(id, action, body) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await post(`weft/sessions/${id}/${action}`, body);
    } catch (error) {
      if (error.status !== BUSY || attempt >= ATTEMPTS) throw error;
      await new Promise((resolve) => { setTimeout(resolve, PAUSE); });
    }
  }
}

function able(top) {
  return top.filter(([token]) => !NEVER.includes(token));
}

function made(session, given) {
  return session.tokens.map((token, at) => ({ token, logprob: session.logprobs[at], top: null, given: at < given }));
}

export class Writer {
  constructor(model, id, tokens) {
    Object.assign(this, { model, id, tokens, controller: null });
  }

  /** A new text: the prompt, then tokens that were kept of an earlier one. */
  static async open(model, prompt, kept, signal) {
    let session = await post('weft/sessions', { model, text: prompt }, signal);
    const given = session.length;
    if (kept.length) session = await act(session.id, 'read', { tokens: kept });
    return new Writer(model, session.id, made(session, given));
  }

  get given() {
    return this.tokens.filter((one) => one.given).length;
  }

  get kept() {
    return this.tokens.filter((one) => !one.given).map((one) => one.token);
  }

  /** Writes on; `show()` is called after each token. Settings are read when it starts: a change stops and restarts it. */
  async write({ count, temperature, topP, seed }, show) {
    const controller = new AbortController();
    this.controller = controller;
    const body = {
      model: this.model, prompt: '', session: this.id, max_tokens: count, temperature, top_p: topP, logprobs: TOP,
      seed: seed + this.tokens.length,
    };
    try {
      for await (const event of stream('v1/completions', body, controller.signal)) {
        if (controller.signal.aborted) break;
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
    return !controller.signal.aborted;
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
    await act(this.id, 'rewind', { to: length });
    this.tokens = this.tokens.slice(0, length);
  }

  /** Puts another token at a position and drops what came after it. */
  async choose(at, token) {
    const top = await this.alternatives(at);
    await this.rewind(at);
    await act(this.id, 'read', { tokens: [token] });
    const logprob = top.find(([name]) => name === token)?.[1] ?? null;
    this.tokens = [...this.tokens, { token, logprob, top, given: false, chosen: true }];
  }

  /** A second text with the same first `at` tokens. */
  async fork(at) {
    const session = await act(this.id, 'fork', { at });
    return new Writer(this.model, session.id, this.tokens.slice(0, at));
  }

  /** The most probable tokens at a position with their log-probabilities. */
  async alternatives(at) {
    const known = this.tokens[at]?.top;
    if (known) return known;
    const session = await act(this.id, 'fork', { at });
    const top = able(session.next);
    remove(`weft/sessions/${session.id}`).catch(() => {});
    this.tokens = this.tokens.map((one, place) => (place === at ? { ...one, top } : one));
    return top;
  }

  close() {
    this.stop();
    remove(`weft/sessions/${this.id}`).catch(() => {}); // the server drops idle sessions by itself
  }
}
