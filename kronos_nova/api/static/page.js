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

// The live page: sign in, show the views of the service, and follow its events.

import { ApiError, forgetToken, hasToken, keepToken, send, signIn } from './client.js';
import { Drains } from './drains.js';
import { Filters } from './filters.js';
import { HeatMap } from './heat.js';
import { count, make, openDialog, say, swap } from './parts.js';

/** Seconds of a request for events; milliseconds after an event until the views are asked for: the
 * service renders a view once a second. */
const WAIT = 25, DEBOUNCE = 1100;
/** Milliseconds between two refreshes at most; between two questions where none can wait. */
const REFRESH = 60_000, POLL = 8_000;
/** Milliseconds before a request that failed is sent again, at first and at most. */
const RETRY = 1_000, SLOWEST = 30_000;

const find = (id) => document.getElementById(id);
const state = { rules: new Set(), scopes: [], scope: null, stop: null, timer: null, due: Infinity,
  refreshing: null, again: false };
const map = new HeatMap(find('scope'), find('tip'), find('announce'), (host) => {
  find('check-form').elements.host.value = host;
  find('announce').textContent = `${host} is chosen for a drain check.`;
});
const filters = new Filters(find('filters'), find('matches'), find('found'), map);
const drains = new Drains(find, (rule) => state.rules.has(`kronos:drain:${rule}`), (answer) => {
  announce(answer.approval_problem ?? (answer.approvals_missing
    ? tellMissing(answer.approvals_missing) : `Nova has changed host ${answer.host}.`));
  refresh();
});

/** Tell a reader, also one who does not see the page, the effect of an order. */
function announce(text) {
  find('announce').textContent = text;
  say(find('effect'), text);
}

function tellMissing(number) {
  return `${count(number, 'more approval')} by other people ${number === 1 ? 'is' : 'are'} needed.`;
}

function showSignIn(text = '') {
  state.stop?.abort();
  unschedule();
  forgetToken();
  for (const id of ['content', 'who', 'scopes-nav']) find(id).hidden = true;
  for (const id of ['state', 'as-of']) find(id).textContent = '';
  for (const id of ['overview', 'failures', 'scope', 'drains']) swap(find(id), '');
  find('sign-in').hidden = false;
  say(find('notice'), text);
  find('password-form').elements.user_name.focus();
}

/** Begin with the token that is kept: show the views, then follow the events. */
async function begin() {
  state.stop?.abort();
  state.stop = new AbortController();
  let rights;
  try {
    rights = await send('GET', 'rights');
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    showSignIn(error.status === 401 ? 'The token is not valid, or no longer.' : error.message);
    return;
  }
  state.rules = new Set(rights.rules);
  find('sign-in').hidden = true;
  say(find('notice'), '');
  find('who').firstElementChild.textContent = `${rights.user_name} in ${rights.project_name}`;
  for (const id of ['content', 'who']) find(id).hidden = false;
  await follow(state.stop.signal);
}

/** Refresh the views after each event, until the signal; a failed request is sent again. */
async function follow(signal) {
  let marker = null, delay = RETRY;
  while (!signal.aborted) {
    try {
      if (marker === null) {
        marker = (await send('GET', 'events', { signal })).marker;
        await refresh();
      } else {
        const answer = await send('GET', 'events', { signal,
          query: { since: marker, wait_seconds: document.hidden ? 0 : WAIT } });
        marker = answer.marker;
        if (answer.events.length) schedule(DEBOUNCE);
        if (!answer.waited || document.hidden) await sleep(POLL, signal);
      }
      delay = RETRY;
      find('state').textContent = 'Live';
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) { showSignIn('The token is no longer valid.'); return; }
      find('state').textContent = `Not live: ${error.message}`;
      if (!(error instanceof ApiError)) console.error(error);
      if (error.status === 404) marker = null;
      await sleep(delay, signal);
      delay = Math.min(2 * delay, SLOWEST);
    }
  }
}

function sleep(milliseconds, signal) {
  return new Promise((wake) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      document.removeEventListener('visibilitychange', end);
      wake();
    };
    const timer = setTimeout(end, milliseconds);
    signal.addEventListener('abort', end);
    document.addEventListener('visibilitychange', end);
  });
}

/** Refresh after a time, or earlier where that is scheduled already. */
function schedule(milliseconds) {
  const due = performance.now() + milliseconds;
  if (state.due <= due) return;
  unschedule();
  state.due = due;
  state.timer = setTimeout(() => { unschedule(); refresh(); }, milliseconds);
}

function unschedule() {
  clearTimeout(state.timer);
  state.due = Infinity;
}

/**
 * Ask for all views; show an error beside the views of before. While they come, another refresh is
 * due after them: they may be older than what it is asked for.
 */
function refresh() {
  state.again = state.refreshing !== null;
  state.refreshing ??= (async () => {
    try {
      const overview = await send('GET', 'views/overview');
      showOverview(overview);
      await Promise.all([showScope(), drains.refresh()]);
      find('as-of').textContent = `as of ${new Date().toISOString().slice(11, 19)} UTC`;
      say(find('notice'), '');
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 401) showSignIn('The token is no longer valid.');
      else say(find('notice'), error.message);
    } finally {
      state.refreshing = null;
      if (hasToken()) schedule(state.again ? DEBOUNCE : REFRESH);
      state.again = false;
    }
  })();
  return state.refreshing;
}

function showOverview(view) {
  state.scopes = view.scopes;
  const box = find('overview');
  swap(box, view.html);
  swap(find('failures'), view.failures_html);
  const waiting = box.querySelectorAll('[data-approve-plan]');
  for (const button of waiting) button.hidden = !state.rules.has('kronos:plan:approve');
  document.title = waiting.length ? `(${waiting.length}) Kronos` : 'Kronos';
  if (!view.scopes.includes(state.scope)) state.scope = readHash() ?? view.worst_scope;
  const links = view.scopes.map((scope) => make('li', {}, make('a', {
    href: `#scope=${encodeURIComponent(scope)}`,
    ...(scope === state.scope ? { 'aria-current': 'page' } : {}) }, make('bdi', {}, scope))));
  find('scopes-nav').hidden = view.scopes.length < 2;
  const list = find('scopes-nav').querySelector('ul');
  if (list.innerText !== view.scopes.join('\n') || !list.querySelector('[aria-current]')) {
    list.replaceChildren(...links);
  }
}

async function showScope() {
  const { scope } = state;
  find('scope-section').hidden = scope === null;
  if (scope === null) return;
  const view = await send('GET', 'views/scope', { query: { scope } });
  if (scope !== state.scope) return;
  const changed = swap(find('scope'), view.html);
  if (changed) map.attach(view);
  filters.attach(view);
  const names = find('hosts');
  if (names.childElementCount !== view.hosts.length || changed) {
    names.replaceChildren(...view.hosts.map((host) => make('option', { value: host.name })));
  }
}

function readHash() {
  const scope = new URLSearchParams(location.hash.slice(1)).get('scope');
  return state.scopes.includes(scope) ? scope : null;
}

function chooseScope(scope) {
  state.scope = scope;
  for (const link of find('scopes-nav').querySelectorAll('a')) {
    if (link.textContent === scope) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  refresh();
}

async function showPlan(planId) {
  const box = find('plan-view');
  try {
    swap(box.lastElementChild, (await send('GET', 'views/plan', { query: { plan_id: planId } })).html);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    say(find('notice'), error.message);
    return;
  }
  box.hidden = false;
  box.scrollIntoView();
  find('plan-name')?.focus();
}

function openApproval(planId, moves) {
  openDialog(find('approve'), `${count(moves, 'move')} of plan ${planId} may begin then.`, 'approve',
    ({ reason }) => send('POST', `plans/${planId}/approve`, {
      body: reason.value.trim() ? { reason: reason.value.trim() } : {} }),
    (answer) => {
      announce(answer.approvals_missing ? tellMissing(answer.approvals_missing)
        : `${count(answer.tasks.length, 'task')} may begin.`);
      refresh();
    });
}

find('password-form').addEventListener('submit', async (event) => {
  event.preventDefault();
  const form = event.target;
  try {
    keepToken(await signIn(Object.fromEntries(new FormData(form))));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    say(find('notice'), error.message);
    return;
  } finally {
    form.elements.password.value = '';
  }
  begin();
});
find('token-form').addEventListener('submit', (event) => {
  event.preventDefault();
  keepToken(event.target.elements.token.value.trim());
  event.target.reset();
  begin();
});
find('sign-out').addEventListener('click', () => showSignIn());
find('check-form').addEventListener('submit', (event) => {
  event.preventDefault();
  drains.check(event.target.elements.host.value.trim());
});
find('overview').addEventListener('click', (event) => {
  const { showPlan: plan, approvePlan, moves, showScope: place } = event.target.closest('button')?.dataset ?? {};
  if (plan) showPlan(plan);
  else if (approvePlan) openApproval(approvePlan, Number(moves));
  else if (place) {
    location.hash = `scope=${encodeURIComponent(state.scopes[place])}`;
    find('scope-section').scrollIntoView();
  }
});
find('close-plan').addEventListener('click', () => { find('plan-view').hidden = true; });
addEventListener('hashchange', () => { const scope = readHash(); if (scope) chooseScope(scope); });
document.addEventListener('visibilitychange', () => {
  if (!document.hidden && !find('content').hidden) schedule(0);
});

if (hasToken()) begin();
else showSignIn();
