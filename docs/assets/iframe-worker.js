// A page that is opened from a folder (file:) may not start a worker. Its search runs in a hidden frame instead.
if (location.protocol === 'file:') {
  window.IFrameWorker = class extends EventTarget { // the theme asks for this name
    constructor(url) {
      super();
      const frame = document.createElement('iframe');
      frame.hidden = true;
      frame.srcdoc = '<!doctype html>';
      this.ready = new Promise((resolve) => { frame.onload = resolve; }).then(() => {
        this.scope = frame.contentWindow;
        this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent('message', { data }));
        this.scope.importScripts = async (...urls) => {
          for (const one of urls) await this.load(one);
        };
        return this.load(url);
      });
      document.body.append(frame);
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.scope.document.createElement('script');
        Object.assign(script, { src: url, onload: resolve, onerror: reject });
        this.scope.document.head.append(script);
      });
    }

    async postMessage(data) {
      await this.ready;
      this.scope.dispatchEvent(new this.scope.MessageEvent('message', { data }));
    }
  };
  window.Worker = window.IFrameWorker;
}
