// The switch between the text alone and the text with its guesses. Each view has one; all say the
// same, and the choice is kept.
import {fill, make} from "./dom.js";
import {load, save} from "./store.js";

const CHOICES = {text: "Text", guesses: "Guesses"};
// Each mark: its class, and the words before, within and after it.
const LEGEND = [
  ["accepted", "", "accepted", " guess"], ["replacement", "rejected", " replacement", ""],
  ["accepted sibling", "rejected", " sibling", " accepted"], ["bonus", "", "bonus", " token"],
  ["plain", "", "plain", " decoding"],
];

const listeners = [];

export function isMarked() {
  return document.body.classList.contains("marked");
}

function set(value) {
  document.body.classList.toggle("marked", value);
  for (const input of document.querySelectorAll(".marks input")) {
    input.checked = (input.value === "guesses") === value;
  }
  for (const listen of listeners) listen(value);
}

// Calls listen(isMarked) now and after each change.
export function onMarks(listen) {
  listeners.push(listen);
  listen(isMarked());
}

function makeSwitch(place, i) {
  const choices = Object.entries(CHOICES).map(([value, word]) => make("label", {},
    make("input", {type: "radio", name: `marks-${i}`, value}), make("span", {}, word)));
  place.append(make("fieldset", {class: "switch"},
    make("legend", {class: "hidden"}, "What is shown of the text"), ...choices));
  place.addEventListener("change", (event) => {
    const isMarked = event.target.value === "guesses";
    save("marks", isMarked);
    set(isMarked);
  });
}

export function startMarks() {
  document.querySelectorAll(".marks").forEach(makeSwitch);
  for (const place of document.querySelectorAll(".marks-legend")) {
    fill(place, {}, LEGEND.map(([kind, rejected, word, after]) => make("li", {},
      make("span", {class: `token ${kind}`}, rejected ? make("s", {}, rejected) : "", word),
      after)));
  }
  set(load("marks") === true);
}
