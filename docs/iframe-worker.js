/* Workers in an iframe: browsers refuse `new Worker` to pages that are opened as files, and the search needs one. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc =
        "<script>window.postMessage = (data) => parent.postMessage(data, '*');" +
        "window.importScripts = (...urls) => urls.reduce((after, url) => after.then(() => new Promise((done, failed) => {" +
        "const script = document.createElement('script'); script.src = url; script.onload = done; script.onerror = failed;" +
        "document.body.append(script); })), Promise.resolve());</script><script src=\"" + url + "\"></script>";
      this.loaded = new Promise((done) => frame.addEventListener("load", done, { once: true }));
      this.frame = frame;
      window.addEventListener("message", (event) => {
        if (event.source === frame.contentWindow) {
          this.dispatchEvent(new MessageEvent("message", { data: event.data }));
        }
      });
      const append = () => document.body.append(frame);
      document.body ? append() : addEventListener("DOMContentLoaded", append);
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
