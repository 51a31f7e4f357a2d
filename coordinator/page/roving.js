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
    this.isActive = true;
    this.onSelect = onSelect;
    list.addEventListener("keydown", (event) => this.onKey(event));
    list.addEventListener("focusin", (event) => this.onPoint(event));
    list.addEventListener("pointerover", (event) => {
      // A finger may only want to scroll; a tap is a click.
      if (event.pointerType !== "touch") this.onPoint(event);
    });
    list.addEventListener("click", (event) => {
      const item = this.onPoint(event);
      if (item) item.focus({preventScroll: true});
    });
  }

  clear() {
    this.items = [];
    this.current = -1;
  }

  add(item) {
    item.dataset.at = this.items.length;
    this.items.push(item);
    if (this.isActive) this.enter(item);
  }

  // As long as it is not active, the list is a text like any other, which is read and scrolled.
  setActive(isActive) {
    if (isActive === this.isActive) return;
    this.isActive = isActive;
    this.list.setAttribute("role", isActive ? "listbox" : "group");
    if (isActive) this.list.removeAttribute("tabindex");
    else this.list.tabIndex = 0;
    this.mark(-1);
    this.items.forEach((item) => isActive ? this.enter(item) : this.leave(item));
  }

  enter(item) {
    item.setAttribute("role", "option");
    item.setAttribute("aria-selected", "false");
    item.tabIndex = item === this.items[0] ? 0 : -1;
  }

  leave(item) {
    for (const name of ["role", "aria-selected", "tabindex"]) item.removeAttribute(name);
  }

  onPoint(event) {
    const item = this.isActive && event.target.closest("[data-at]");
    if (item && Number(item.dataset.at) !== this.current) this.select(Number(item.dataset.at));
    return item;
  }

  onKey(event) {
    const step = STEPS[event.key];
    if (step === undefined || !this.isActive || !this.items.length) return;
    if (event.ctrlKey || event.altKey) return;
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
    if (this.isActive && (item ?? this.items[0])) (item ?? this.items[0]).tabIndex = 0;
  }
}

// Scrolls a list so far that the item is seen, and nothing else of the page.
export function reveal(list, item) {
  const outer = list.getBoundingClientRect(), inner = item.getBoundingClientRect();
  if (inner.top < outer.top) list.scrollTop -= outer.top - inner.top + 4;
  else if (inner.bottom > outer.bottom) list.scrollTop += inner.bottom - outer.bottom + 4;
}
