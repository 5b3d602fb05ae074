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

// Requests to the API with the token of the reader. The token is kept by this tab alone.

const KEY = 'kronos-token', FAREWELL = 'kronos-farewell';
/** Milliseconds after which a request has failed; a request for events waits less. */
const PATIENCE = 70_000;
const ROOT = new URL('../v1/', import.meta.url);
const SIGN_IN = new URL('tokens', import.meta.url);

/** An answer that is an error; status 0: no answer came. */
export class ApiError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export function hasToken() {
  return sessionStorage.getItem(KEY) !== null;
}

export function keepToken(token) {
  sessionStorage.setItem(KEY, token);
}

/** Forget the token; the page shows the text when it is loaded again. */
export function forgetToken(text) {
  sessionStorage.removeItem(KEY);
  sessionStorage.setItem(FAREWELL, text);
}

export function takeFarewell() {
  const text = sessionStorage.getItem(FAREWELL) ?? '';
  sessionStorage.removeItem(FAREWELL);
  return text;
}

/** Send a request below /v1; return the document of the answer, null for an empty one. */
export async function send(method, path, { query = {}, body, signal } = {}) {
  const address = new URL(path, ROOT);
  for (const [name, value] of Object.entries(query)) address.searchParams.set(name, value);
  const headers = { 'X-Auth-Token': sessionStorage.getItem(KEY) ?? '' };
  return exchange(address, method, headers, body, signal);
}

/** Return the token that Keystone issues for a name and a password. */
export async function signIn(login) {
  return (await exchange(SIGN_IN, 'POST', {}, login)).token;
}

async function exchange(address, method, headers, body, signal) {
  const signals = [AbortSignal.timeout(PATIENCE), ...(signal ? [signal] : [])];
  const options = { method, headers: { Accept: 'application/json', ...headers },
    signal: AbortSignal.any(signals),
    cache: 'no-store', credentials: 'omit', redirect: 'error' };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers['Content-Type'] = 'application/json';
  }
  let answer, document;
  try {
    answer = await fetch(address, options);
    document = answer.status === 204 ? null : await answer.json();
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(answer?.status ?? 0, answer ? `The service answers with status ${answer.status}.`
      : 'The service does not answer.');
  }
  if (!answer.ok) {
    throw new ApiError(answer.status, document?.errors?.[0]?.detail ?? `Status ${answer.status}.`);
  }
  return document;
}
