// What is entered in a form, as the body of a request. Fields that are empty are left out, so that
// the server's own defaults hold.

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
  const own = {show_drafts: true};
  if (valueOf(form, "n_draft")) own.n_draft = Number(valueOf(form, "n_draft"));
  for (const name of OWN_WORDS) {
    if (valueOf(form, name)) own[name] = valueOf(form, name);
  }
  return own;
}

// The body as text. more: fields beside those of the form; own: fields of "outrider" that replace
// the form's. The seed is put in as it was written, because it may have more digits than a number
// of JavaScript holds.
export function bodyOf(form, more, own = {}) {
  const body = {...more, stream: true};
  for (const name of NUMBERS) {
    if (valueOf(form, name)) body[name] = Number(valueOf(form, name));
  }
  const stop = stopTexts(form);
  if (stop.length) body.stop = stop;
  body.outrider = {...ownFields(form), ...own};
  const text = JSON.stringify(body);
  const seed = valueOf(form, "seed");
  return seed ? `${text.slice(0, -1)},"seed":${BigInt(seed)}}` : text;
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
