// Server-sent events: handed on once for each frame, with a resynchronisation after a gap.

const kinds = [
  "push", "device", "app", "notification", "response", "activity", "token", "online", "offline", "receipt", "wake",
  "call", "reset", "lost",
];
/** Events that wait for a frame; beyond them a resynchronisation is cheaper. */
const mostWaiting = 20_000;
/** Time after which a hidden page gives its connection back, in milliseconds. */
const longestIdle = 60_000;

export class Live {
  /**
   * @param {(events: object[]) => void} batch receives the events of a frame.
   * @param {() => void} resync is called when events may be missing.
   * @param {(state: string) => void} state receives `live` and `gone`.
   */
  constructor(batch, resync, state) {
    this.batch = batch;
    this.resync = resync;
    this.state = state;
    this.waiting = [];
    this.isAsked = false;
    this.mustResync = false;
    // Events between the first fetches and the stream would be missed.
    this.wasGone = true;
    this.wait = 500;
    this.source = null;
    this.retry = null;
    this.rest = null;
    this.connect();
    document.addEventListener("visibilitychange", () => this.visibility());
  }

  connect() {
    clearTimeout(this.retry);
    this.source?.close();
    const source = new EventSource("api/events");
    this.source = source;
    source.onopen = () => {
      this.wait = 500;
      this.state("live");
      if (this.wasGone) this.lose();
      this.wasGone = false;
    };
    source.onerror = () => {
      // The browser would resume a stream of a simulator that may have started anew.
      source.close();
      if (this.source !== source) return;
      this.source = null;
      this.wasGone = true;
      this.state("gone");
      this.retry = setTimeout(() => this.connect(), this.wait);
      this.wait = Math.min(this.wait * 2, 5_000);
    };
    for (const kind of kinds) source.addEventListener(kind, (event) => this.receive(kind, event.data));
  }

  /** Gives the connection back while nobody looks, because browsers have few for a server. */
  visibility() {
    clearTimeout(this.rest);
    if (document.hidden) {
      this.rest = setTimeout(() => {
        clearTimeout(this.retry);
        this.source?.close();
        this.source = null;
        this.wasGone = true;
      }, longestIdle);
    } else if (this.source === null) {
      this.connect();
    } else {
      this.ask();
    }
  }

  receive(kind, data) {
    if (kind === "lost" || kind === "reset") return this.lose();
    if (this.waiting.length >= mostWaiting) return this.lose();
    try {
      this.waiting.push(JSON.parse(data));
    } catch {
      return this.lose();
    }
    this.ask();
  }

  lose() {
    this.waiting = [];
    this.mustResync = true;
    this.ask();
  }

  ask() {
    if (this.isAsked || (this.waiting.length === 0 && !this.mustResync)) return;
    this.isAsked = true;
    // A hidden page has no frames.
    if (document.hidden) setTimeout(() => this.deliver(), 1_000);
    else requestAnimationFrame(() => this.deliver());
  }

  deliver() {
    this.isAsked = false;
    const events = this.waiting;
    this.waiting = [];
    if (this.mustResync) {
      this.mustResync = false;
      this.resync();
    } else if (events.length > 0) {
      this.batch(events);
    }
  }
}

/** Runs a task at most once at a time and once in `pause` milliseconds; the last request is never lost. */
export class Refresher {
  constructor(task, pause) {
    this.task = task;
    this.pause = pause;
    this.running = null;
    this.isAsked = false;
    this.isClosed = false;
    this.last = -Infinity;
    this.timer = null;
  }

  ask() {
    this.isAsked = true;
    if (this.running || this.isClosed || this.timer !== null) return;
    const wait = Math.max(0, this.last + this.pause - performance.now());
    this.timer = setTimeout(() => this.run(), wait);
  }

  run() {
    this.timer = null;
    this.isAsked = false;
    this.last = performance.now();
    this.running = this.task().finally(() => {
      this.running = null;
      if (this.isAsked) this.ask();
    });
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
    this.timer = null;
  }

  open() {
    this.isClosed = false;
    this.ask();
  }
}
