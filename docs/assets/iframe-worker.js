// The search of a site that is opened from a folder of files: browsers start no worker from a file,
// so that its script runs in a hidden frame instead. On a server this script does nothing.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      const page = inside.document;
      // The script of the worker calls these as a worker does.
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...urls) =>
        urls.reduce((before, each) => before.then(() => load(page, each)), Promise.resolve());
      this.loaded = load(page, new URL(url, location));
    }

    postMessage(data) {
      const inside = this.frame.contentWindow;
      this.loaded.then(() => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };

  function load(page, url) {
    return new Promise((resolve, reject) => {
      const script = page.createElement("script");
      script.src = url;
      script.onload = resolve;
      script.onerror = reject;
      page.body.append(script);
    });
  }
}
