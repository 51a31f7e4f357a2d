// A list of which one item at a time can be reached with the tabulator, and the others with the
// arrow keys (the ARIA pattern of a listbox). Pointing at an item, or a tap, selects it, too.

const STEPS = {
  ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: 10, PageUp: -10,
  Home: -Infinity, End: Infinity,
};

export class Roving {
  // Calls onSelect(index) when another item is selected.
  constructor(list, onSelect) {
    this.list = list;
    this.items = [];
    this.current = -1;
    this.onSelect = onSelect;
    list.addEventListener("keydown", (event) => this.onKey(event));
    list.addEventListener("focusin", (event) => this.onPoint(event));
    list.addEventListener("pointerover", (event) => {
      // A finger may only want to scroll; a tap is a click.
      if (event.pointerType !== "touch") this.onPoint(event);
    });
    list.addEventListener("click", (event) => this.onPoint(event)?.focus({preventScroll: true}));
  }

  clear() {
    this.items = [];
    this.current = -1;
  }

  add(item) {
    item.setAttribute("role", "option");
    item.setAttribute("aria-selected", "false");
    item.tabIndex = this.items.length ? -1 : 0;
    item.dataset.at = this.items.length;
    this.items.push(item);
  }

  onPoint(event) {
    const item = event.target.closest("[data-at]");
    if (item && Number(item.dataset.at) !== this.current) this.select(Number(item.dataset.at));
    return item;
  }

  onKey(event) {
    const step = STEPS[event.key];
    if (step === undefined || !this.items.length || event.ctrlKey || event.altKey) return;
    event.preventDefault();
    const at = Number(event.target.closest("[data-at]")?.dataset.at ?? this.current);
    const next = Math.min(Math.max(at + step, 0), this.items.length - 1);
    this.items[next].focus();
  }

  // Marks the item and tells; the focus stays where it is.
  select(index) {
    this.mark(index);
    this.onSelect(index);
  }

  // Marks the item, or none (-1), without telling.
  mark(index) {
    const old = this.items[this.current];
    old?.setAttribute("aria-selected", "false");
    if (old) old.tabIndex = -1;
    this.current = index;
    const item = this.items[index];
    item?.setAttribute("aria-selected", "true");
    if (item ?? this.items[0]) (item ?? this.items[0]).tabIndex = 0;
  }
}

// Scrolls a list so far that the item is seen, and nothing else of the page.
export function reveal(list, item) {
  const outer = list.getBoundingClientRect(), inner = item.getBoundingClientRect();
  if (inner.top < outer.top) list.scrollTop -= outer.top - inner.top + 4;
  else if (inner.bottom > outer.bottom) list.scrollTop += inner.bottom - outer.bottom + 4;
}
