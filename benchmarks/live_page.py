# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""Measure the live page in Chromium: frames, the time until it shows an event, sizes of answers.

Keystone, uWSGI with the configuration that is shipped, and Chromium are real and run on this
machine. The cloud is generated; a scope has all of its hosts, and moves under way. The pointer,
the wheel and the keys are events of the browser. A frame is late if it comes more than 17 ms after
the one before: the browser draws 60 frames a second, by software where it has no graphics
processor::

    python benchmarks/live_page.py --hosts 2000 --moves 100
"""

import argparse
from collections.abc import Callable
import gzip
import json
import pathlib
import random
import sys
import tempfile
import time
from typing import Any
import uuid

if __name__ == '__main__':
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from selenium.webdriver import ActionChains
import sqlalchemy as sa

from benchmarks import api
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.snapshots import readings
from kronos_nova.rebalancer.store import api as stores
from kronos_nova.rebalancer.store import readings as stored_readings
from kronos_nova.rebalancer.store import tables
from tests.fixtures import chromium
from tests.fixtures import live_page
from tests.integration import test_api
from tests.unit.rebalancer.store import cases

SCOPE = api.SCOPE
#: Milliseconds; the browser rounds 1000 / 60.
LATE = 17.0
RECORD = '''
const frames = window.frames_ = []; window.tasks_ = [];
window.observer_ = new PerformanceObserver(
  (list) => window.tasks_.push(...list.getEntries().map((task) => task.duration)));
window.observer_.observe({entryTypes: ['longtask']});
const note = (at) => {
  frames.push(at);
  if (frames === window.frames_) requestAnimationFrame(note);
};
requestAnimationFrame(note);'''
STOP = '''
const frames = window.frames_; window.frames_ = null;
window.observer_.takeRecords().forEach((task) => window.tasks_.push(task.duration));
window.observer_.disconnect();
return [frames, window.tasks_];'''


def publish_cloud(store: stores.Store, hosts: int, instances: int) -> list[str]:
    """Publish a generated cloud as the scope :data:`SCOPE`; return its hosts."""
    reading = api.build_reading(hosts, instances)
    encoded = readings.ReadingEncoder().encode_reading(reading)
    cases.save(store, 0, scope=SCOPE, now=store.now())
    assert store.readings.publish_reading(stored_readings.Publication(
        'b' * 36, 'benchmark', 1, readings.FORMAT, reading.taken_at, encoded.names,
        encoded.changed, [SCOPE]))
    return sorted(reading.cluster.hosts)


def save_moves(store: stores.Store, hosts: list[str], moves: int,
               state: TaskState = TaskState.SUBMITTED) -> str:
    """Store a plan whose tasks have a state; return its UUID."""
    draw, now = random.Random(moves), store.now()

    def make(plan_id: str, scope: str) -> Any:
        source, destination = draw.sample(hosts, 2)
        return cases.make_task(
            plan_id, scope, instance_uuid=str(uuid.uuid4()), instance_name=f'web-{draw.random()}',
            from_host=source, to_host=destination, alternates=(), memory_mb=4096, not_before=now,
            deadline=now + 3600)

    plan_id: str = cases.save(store, [make] * moves, scope=SCOPE, now=now)[0]
    with store.engine.begin() as connection:
        connection.execute(sa.update(tables.task).where(tables.task.c.plan_id == plan_id).values(
            state=state.value, expires_at=now + 3600, updated_at=now))
    return plan_id


class Measurement:
    """Frames while a person does something on the page."""

    def __init__(self, page: live_page.LivePage) -> None:
        self._page = page

    def measure(self, act: Callable[[], object]) -> dict[str, float]:
        self._page.run(RECORD)
        act()
        frames, tasks = self._page.run(STOP)
        gaps = sorted(later - earlier for earlier, later in zip(frames, frames[1:], strict=False))
        return {'frames': len(gaps), 'p50_ms': gaps[len(gaps) // 2],
                'p99_ms': gaps[min(len(gaps) - 1, int(0.99 * len(gaps)))], 'longest_ms': gaps[-1],
                'late_share': sum(gap > LATE for gap in gaps) / len(gaps),
                'longest_task_ms': max(tasks, default=0.0)}

    def rest(self) -> None:
        time.sleep(5.0)

    def point(self) -> None:
        """Move the pointer over the squares of the first drawing, line by line."""
        box = self._page.run(
            'const drawing = document.querySelector("svg.squares"); drawing.scrollIntoView();'
            'const box = drawing.getBoundingClientRect();'
            'return [box.left, box.top, box.width, box.height]')
        chain = ActionChains(self._page.driver, duration=16)
        for step in range(200):
            chain.w3c_actions.pointer_action.move_to_location(
                round(box[0] + box[2] * (step % 40 + 0.5) / 40),
                round(box[1] + box[3] * (step // 40 + 0.5) / 5))
        chain.perform()

    def scroll(self) -> None:
        """Scroll the page to its end."""
        self._page.run('scrollTo(0, 0)')
        height = self._page.run('return document.documentElement.scrollHeight - innerHeight')
        self._page.driver.execute_cdp_cmd('Input.synthesizeScrollGesture', {
            'x': 400, 'y': 400, 'yDistance': -height, 'speed': 2500, 'gestureSourceType': 'mouse'})

    def type_filter(self) -> None:
        """Type a part of a name and remove it."""
        self._page.find('#filters [name=host]').click()
        for key in ['1', '9', '7', '\ue003', '\ue003', '\ue003']:
            self._page.press(key)
            time.sleep(0.15)


def measure_page(service: Any, page: live_page.LivePage,
                 args: argparse.Namespace) -> dict[str, Any]:
    hosts = publish_cloud(service.store, args.hosts, args.instances)
    save_moves(service.store, hosts, args.moves)
    begun = time.monotonic()
    page.open(service.tokens['manager'], SCOPE)
    page.wait(lambda: len(page.find_all('.flight')) >= args.moves)
    measured: dict[str, Any] = {'opening': {'seconds': time.monotonic() - begun}}
    page.wait(lambda: page.read_text('#state') == 'Live')
    view = service.send('GET', f'/v1/views/scope?scope={SCOPE}', 'reader')[1]
    whole = json.dumps(view).encode()
    measured['answer of a scope'] = {
        'kb': len(whole) / 1e3, 'html_kb': len(view['html'].encode()) / 1e3,
        'gzip_kb': len(gzip.compress(whole)) / 1e3}
    measured['document'] = {'elements': page.run('return document.querySelectorAll("*").length')}
    frames = Measurement(page)
    for name, act in (('at rest', frames.rest), ('pointer over the squares', frames.point),
                      ('scrolling', frames.scroll), ('typing a filter', frames.type_filter)):
        measured[name] = frames.measure(act)
    shown = []

    def show_plan() -> None:
        plan_id = save_moves(service.store, hosts, 1, TaskState.PENDING)
        saved = time.monotonic()
        page.wait(lambda: page.run('return document.body.textContent.includes(arguments[0])',
                                   plan_id))
        shown.append(time.monotonic() - saved)
        page.wait(lambda: page.run(
            'return document.querySelectorAll("tr[data-move]").length > arguments[0]',
            args.moves + len(shown) - 1))
        time.sleep(1.0)

    for number in range(args.refreshes):
        measured[f'refresh {number + 1}'] = frames.measure(show_plan)
    measured['from an event to the page'] = {'seconds': sum(shown) / len(shown),
                                             'longest': max(shown)}
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or '').split('\n')[0])
    parser.add_argument('--hosts', type=int, default=2000)
    parser.add_argument('--instances', type=int, default=20000)
    parser.add_argument('--moves', type=int, default=100)
    parser.add_argument('--refreshes', type=int, default=3)
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix='kronos-page-') as name:
        directory = pathlib.Path(name)
        with (test_api.run_service(directory) as service,
              chromium.drive(directory, '--window-size=1400,900') as driver):
            measured = measure_page(service, live_page.LivePage(driver, service.url), args)
    if args.json:
        print(json.dumps(measured))
    else:
        api.print_measured(measured)


if __name__ == '__main__':
    main()
