// Entries of a form as the body of a request. Fields that are empty are left out, so that the
// server's own defaults hold.

const NUMBERS = ["max_tokens", "temperature", "top_p", "top_k", "min_p"];
const OWN_WORDS = ["rule", "tree_rule", "strategy"];

function valueOf(form, name) {
  return form.elements[name]?.value.trim() ?? "";
}

// One on each line; blanks count, and \n stands for a line break.
function stopTexts(form) {
  const lines = form.elements.stop?.value.split("\n") ?? [];
  return lines.filter((line) => line).map((line) => line.replaceAll("\\n", "\n"));
}

function ownFields(form) {
  const own = {};
  if (valueOf(form, "n_draft")) own.n_draft = Number(valueOf(form, "n_draft"));
  for (const name of OWN_WORDS) {
    if (valueOf(form, name)) own[name] = valueOf(form, name);
  }
  return own;
}

// The fields of a request that are entered. The seed is a BigInt, because it may have more digits
// than a number of JavaScript holds.
export function fieldsOf(form) {
  const fields = {};
  for (const name of NUMBERS) {
    if (valueOf(form, name)) fields[name] = Number(valueOf(form, name));
  }
  const stop = stopTexts(form), own = ownFields(form), seed = valueOf(form, "seed");
  if (stop.length) fields.stop = stop;
  if (seed) fields.seed = BigInt(seed);
  if (Object.keys(own).length) fields.outrider = own;
  return fields;
}

export function toJson(body, indent) {
  const text = JSON.stringify(body, (_, value) =>
    typeof value === "bigint" ? `\0${value}` : value, indent);
  return text.replace(/"seed":( ?)"\\u0000(-?\d+)"/, '"seed":$1$2');
}

// A request of the page itself, as text: a stream that tells of its rounds and of its tokens. more:
// fields beside those of the form; own: fields of "outrider" that replace the form's.
export function bodyOf(form, more, own = {}) {
  const fields = fieldsOf(form);
  return toJson({
    ...fields, ...more, stream: true, stream_options: {include_usage: true},
    outrider: {show_drafts: true, ...fields.outrider, ...own},
  });
}

// Opens the part of the form that hides an element.
function unfold(element) {
  element.closest("details")?.setAttribute("open", "");
}

// A field that the browser itself refuses can only be focused and named where it is seen.
export function unfoldWrong(form) {
  form.addEventListener("invalid", (event) => unfold(event.target), true);
}

// Marks the field that the server has refused, and no other. "outrider.n_draft" is n_draft here.
export function markWrong(form, field) {
  const name = field?.split(".").pop();
  for (const element of form.elements) {
    const isWrong = Boolean(name) && element.name === name;
    element.toggleAttribute("aria-invalid", isWrong);
    if (isWrong) {
      unfold(element);
      element.focus();
    }
  }
}

// Ctrl+Enter sends the form from any of its fields.
export function sendOnEnter(form) {
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
}

// While a request runs it can be stopped, and not be sent again; the focus moves along.
export function setRunning(send, stop, isRunning) {
  const hadFocus = document.activeElement === (isRunning ? send : stop);
  send.disabled = isRunning;
  stop.disabled = !isRunning;
  if (hadFocus) (isRunning ? stop : send).focus();
}
