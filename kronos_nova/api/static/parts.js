// Licensed under the Apache License, Version 2.0 (the "License"); you may
// not use this file except in compliance with the License. You may obtain
// a copy of the License at
//
//      http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
// WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
// License for the specific language governing permissions and limitations
// under the License.

// Parts of the document. Texts are text: no name of the cloud becomes markup.

import { ApiError } from './client.js';

/** Return an element with attributes and children; a string is a text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

const FOCUSABLE = 'button, a[href], summary, input, select, [tabindex]';
const rendered = new WeakMap();

/**
 * Put a fragment of the service into a box unless it is there already. Return whether the box has
 * changed.
 */
export function swap(box, html) {
  if (rendered.get(box) === html) return false;
  const parsed = new DOMParser().parseFromString(html, 'text/html');
  replaceChildren(box, parsed.body.childNodes);
  rendered.set(box, html);
  return true;
}

/** Put nodes into a box; keep what is unfolded, scrolled and focused, by its place. */
export function replaceChildren(box, nodes) {
  const opened = [...box.querySelectorAll('details')].map((details) => details.open);
  const scrolled = [...box.querySelectorAll('.wide')].map((wide) => wide.scrollLeft);
  const focused = [...box.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
  box.replaceChildren(...nodes);
  [...box.querySelectorAll('details')].forEach((details, place) => {
    if (place in opened) details.open = opened[place];
  });
  [...box.querySelectorAll('.wide')].forEach((wide, place) => {
    if (scrolled[place]) wide.scrollLeft = scrolled[place];
  });
  if (focused >= 0) box.querySelectorAll(FOCUSABLE)[focused]?.focus({ preventScroll: true });
}

/** Show a text in an element, or hide it without one. */
export function say(element, text) {
  element.textContent = text;
  element.hidden = !text;
}

/**
 * Open a dialog. Its form sends the order when the button of a value submits it; an error of the
 * order stays in the dialog. `done` gets the answer.
 */
export function openDialog(dialog, text, value, order, done) {
  const form = dialog.querySelector('form');
  const notice = dialog.querySelector('.notice');
  form.reset();
  say(notice, '');
  form.querySelector('p').textContent = text;
  // An order that is under way keeps its dialog: the answer must not close the dialog of another one.
  let busy = false;
  dialog.oncancel = (event) => { if (busy) event.preventDefault(); };
  form.onsubmit = async (event) => {
    const button = event.submitter;
    if (busy) event.preventDefault();
    if (busy || button?.value !== value) return;
    event.preventDefault();
    button.disabled = busy = true;
    try {
      const answer = await order(form.elements);
      dialog.close();
      done(answer);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      say(notice, error.message);
    } finally {
      button.disabled = busy = false;
    }
  };
  dialog.showModal();
}

export function formatTime(text) {
  return text === null ? '-' : `${text.slice(0, 10)} ${text.slice(11, 19)} UTC`;
}

export function formatScore(score) {
  return score === null ? 'not known' : score.toFixed(2);
}

export function formatSeconds(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

export function count(number, noun) {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}
