// Everything that the page keeps in this browser: forms as they were left, what is unfolded, and
// conversations. A browser that keeps nothing (a private window may refuse) goes on without.

const PREFIX = "outrider.";

export function load(name) {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + name)) ?? undefined;
  } catch {
    return undefined;
  }
}

// False: the browser refuses, most likely because its room for this server is used up.
export function save(name, value) {
  try {
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export function forget(name) {
  try {
    localStorage.removeItem(PREFIX + name);
  } catch {
    // Nothing was kept.
  }
}

// Names that begin so.
export function namesWith(begin) {
  try {
    return Object.keys(localStorage).filter((name) => name.startsWith(PREFIX + begin))
      .map((name) => name.slice(PREFIX.length));
  } catch {
    return [];
  }
}

// Calls onChange(name) when another tab has changed something.
export function watchOtherTabs(onChange) {
  addEventListener("storage", (event) => {
    if (event.key?.startsWith(PREFIX)) onChange(event.key.slice(PREFIX.length));
  });
}

// ---- forms ----

// Fields without a name, and those of "except", are not kept.
function valuesOf(form, except) {
  return Object.fromEntries([...new FormData(form)].filter(([name]) => !except.includes(name)));
}

// A choice among options that have not come yet is left to who makes the options.
function restore(form, values) {
  for (const [name, value] of Object.entries(values)) {
    const field = form.elements[name];
    if (field && typeof value === "string") field.value = value;
  }
}

// Fills the form as it was left, and keeps it from now on. Returns what was kept.
export function keepForm(form, except = []) {
  const values = load(form.id) ?? {};
  restore(form, values);
  form.addEventListener("input", () => save(form.id, valuesOf(form, except)));
  return values;
}

// A part that can be unfolded is as the reader left it.
export function keepFold(details) {
  details.open = load(details.id) ?? details.open;
  details.addEventListener("toggle", () => save(details.id, details.open));
}
