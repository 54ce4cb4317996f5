// Rows of equal height of which only the visible ones have elements. Elements are used again for other rows.

/** Tallest content that browsers lay out exactly; beyond it positions are scaled. */
const tallest = 12_000_000;
const margin = 3;

export class Rows {
  /**
   * @param {HTMLElement} viewport scrolls.
   * @param {{height: number, header?: number, create: () => HTMLElement,
     show: (element: HTMLElement, index: number) => void,
   *   moved?: () => void}} options
   */
  constructor(viewport, options) {
    this.viewport = viewport;
    this.options = options;
    this.count = 0;
    this.pool = [];
    this.isAsked = false;
    this.body = document.createElement("div");
    this.body.className = "rows";
    this.body.setAttribute("role", "presentation");
    viewport.append(this.body);
    viewport.addEventListener("scroll", () => this.ask(), { passive: true });
    // Reading sizes between changes would lay the page out in the midst of a frame.
    this.height = viewport.clientHeight;
    this.observer = new ResizeObserver(() => {
      this.height = viewport.clientHeight;
      this.ask();
    });
    this.observer.observe(viewport);
    /** First row that is visible, and the row after the last, by the latest drawing. */
    this.first = 0;
    this.last = 0;
  }

  /** Height of the visible rows; `header` pixels of the viewport are above them. */
  get view() { return this.height - (this.options.header ?? 0); }
  get full() { return this.count * this.options.height; }
  get scaled() { return Math.min(this.full, tallest); }

  /** Distance of the first visible pixel from the top of all rows. */
  top(scroll) {
    const room = this.scaled - this.view;
    if (this.full <= tallest || room <= 0) return scroll;
    return (scroll / room) * (this.full - this.view);
  }

  setCount(count) {
    if (count !== this.count) {
      this.count = count;
      this.body.style.setProperty("height", `${this.scaled}px`);
    }
    this.ask();
  }

  /** Forgets all elements, because their form has changed. */
  rebuild() {
    for (const row of this.pool) row.element.remove();
    this.pool = [];
    this.ask();
  }

  ask() {
    if (this.isAsked) return;
    this.isAsked = true;
    requestAnimationFrame(() => {
      this.isAsked = false;
      this.draw(false);
    });
  }

  /** Draws the visible rows. `all`: also those whose index has not changed. */
  draw(all) {
    const height = this.options.height;
    const scroll = this.viewport.scrollTop;
    const top = this.top(scroll);
    this.first = Math.max(0, Math.floor(top / height));
    this.last = Math.min(this.count, Math.ceil((top + this.view) / height));
    const first = Math.max(0, this.first - margin);
    const last = Math.min(this.count, this.last + margin);
    const size = Math.max(this.pool.length, last - first);
    while (this.pool.length < size) {
      const element = this.options.create();
      element.classList.add("row");
      this.body.append(element);
      this.pool.push({ element, index: -1, y: -1, isHidden: false });
    }
    const shift = scroll - top;
    const used = new Set();
    for (let index = first; index < last; index += 1) {
      const row = this.pool[index % size];
      used.add(row);
      const y = Math.round(index * height + shift);
      if (row.y !== y) {
        row.element.style.setProperty("transform", `translateY(${y}px)`);
        row.y = y;
      }
      if (row.index !== index || all) {
        row.index = index;
        this.options.show(row.element, index);
      }
      if (row.isHidden) row.element.hidden = row.isHidden = false;
    }
    for (const row of this.pool) {
      if (used.has(row)) continue;
      row.index = -1;
      row.element.hidden = row.isHidden = true;
    }
    this.options.moved?.();
  }

  /** Scrolls so far that a row is visible. */
  reveal(index) {
    const height = this.options.height;
    const top = this.top(this.viewport.scrollTop);
    const view = this.view;
    let wanted = top;
    if (index * height < top) wanted = index * height;
    else if ((index + 1) * height > top + view) wanted = (index + 1) * height - view;
    if (wanted === top) return;
    const ratio = this.full <= tallest ? 1 : (this.scaled - view) / (this.full - view);
    this.viewport.scrollTop = wanted * ratio;
    this.draw(false);
  }

  close() { this.observer.disconnect(); }
}
