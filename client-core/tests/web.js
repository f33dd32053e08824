// A scripted server: requests wait in a list until a test answers them.
(() => {
  const calls = [];
  const sources = [];
  class Source extends EventTarget {
    constructor(url) {
      super();
      this.url = url;
      this.open = true;
      sources.push(this);
    }
    close() {
      this.open = false;
    }
  }
  window.script = {
    install() {
      if (window.EventSource === Source) return;
      window.EventSource = Source;
      window.fetch = async (input, init) => {
        const request = new Request(input, init);
        const call = { method: request.method, url: request.url, body: await request.clone().text(), aborted: false };
        const answered = new Promise((resolve, reject) => Object.assign(call, { resolve, reject }));
        request.signal.addEventListener("abort", () => {
          call.aborted = true;
          const error = new DOMException("given up", "AbortError");
          call.reject(error);
          call.controller?.error(error);
        });
        calls.push(call);
        return answered;
      };
    },
    take(method, path) {
      const at = calls.findIndex((call) => call.method === method && call.url === location.origin + path);
      return at < 0 ? undefined : calls.splice(at, 1)[0];
    },
    answer(call, status, type, body, retryAfter) {
      const headers = { "content-type": type, ...(retryAfter ? { "retry-after": retryAfter } : {}) };
      call.resolve(new Response(body, { status, headers }));
    },
    fail(call) {
      call.reject(new TypeError("Failed to fetch"));
    },
    stream(call) {
      const body = new ReadableStream({ start: (controller) => { call.controller = controller; } });
      call.resolve(new Response(body, { headers: { "content-type": "text/event-stream" } }));
    },
    say(call, bytes) {
      call.controller.enqueue(bytes);
    },
    sources: (url) => sources.filter((source) => source.open && source.url === url),
    push: (source, data) => source.dispatchEvent(new MessageEvent("message", { data })),
    break: (source) => source.dispatchEvent(new Event("error")),
    steal(name) {
      let release;
      const held = new Promise((resolve) => { release = resolve; });
      navigator.locks.request(name, { steal: true }, () => held);
      return release;
    },
    hide(name) {
      const value = window[name];
      window[name] = undefined;
      return value;
    },
    show(name, value) {
      window[name] = value;
    },
  };
})();
