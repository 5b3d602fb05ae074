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

"""When an engine asks for past write rates, and how long it keeps the answers."""

import dataclasses
import threading
import time

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.engine import write_rate_reader
from kronos_nova.rebalancer.operations import write_rates
from tests.unit.rebalancer.operations import test_write_rates as rates
from tests.unit.rebalancer.planning import test_quiet_hours as quiet

NOW, HOUR, MIB = rates.NOW, rates.HOUR, rates.MIB
conf = rates.conf


class Bench:
    """A reader whose answers come before the next cycle."""

    def __init__(self, conf, single_cycle=False):
        self.source = rates.HistorySource(
            **{f'instance-i{n}': [quiet.LOUD] + [MIB] * 23 for n in range(2)})
        self.stopping = threading.Event()
        self.reader = write_rate_reader.WriteRateReader(conf, self.stopping,
                                                        single_cycle=single_cycle)
        self.request = rates.cloud(2)

    def ask(self, now, loud=('i0',), scope=None):
        """Run a cycle; return the known instances, the awaited ones and the number of queries."""
        samples = rates.samples(self.request)
        series = {f'instance-{uuid}': quiet.LOUD for uuid in loud}
        samples['cpu'] = dataclasses.replace(samples['cpu'], dirty_rate=dataclasses.replace(
            samples['cpu'].dirty_rate, series=series))
        cluster = self.request.cluster
        if scope is not None:  # only the loud instances are on its drained host
            cluster = dataclasses.replace(cluster, scope=scope, instances={
                uuid: dataclasses.replace(i, host='a' if uuid in loud else 'b')
                for uuid, i in cluster.instances.items()})
        history = self.reader.add_rates(self.request.history, cluster, samples,
                                        rates.policy_set(), now)
        if scope is None:
            self.reader.wait_for_answers()
        return (list(history.hourly_write_rates), dict(history.awaited_write_rates),
                len(self.source.asked))


@pytest.fixture
def make_bench(conf, monkeypatch):
    def make(**options):
        bench = Bench(conf, **options)
        rates.let_open(monkeypatch, lambda: bench.source)
        return bench

    return make


@pytest.fixture
def bench(make_bench):
    return make_bench()


def test_an_engine_asks_once_an_hour_and_uses_the_answer_in_the_next_cycle(bench):
    assert bench.ask(NOW) == ([], {'i0': NOW + 300}, 1)
    assert bench.ask(NOW + 60) == (['i0'], {}, 1) == bench.ask(HOUR + 3599)
    assert bench.ask(HOUR + 3600) == (['i0'], {}, 2) == bench.ask(HOUR + 7199)


def test_an_instance_that_becomes_loud_within_the_hour_needs_a_question(bench):
    bench.ask(NOW)
    assert bench.ask(NOW + 60, ('i0', 'i1')) == (['i0'], {'i1': NOW + 360}, 1), 'pause'
    assert bench.ask(NOW + 119, ('i0', 'i1'))[2] == 1
    assert bench.ask(NOW + 120, ('i0', 'i1'))[2] == 2
    assert 'instance-i0' not in bench.source.asked[1][0], 'its answer is of this hour'
    assert bench.ask(NOW + 121, ('i0', 'i1')) == (['i0', 'i1'], {}, 2)


def test_a_failed_query_is_repeated_and_the_last_answer_serves_for_a_day(bench, caplog):
    bench.ask(NOW)
    bench.source.error = 'the server is busy'
    assert bench.ask(HOUR + 3600) == (['i0'], {}, 2)
    assert bench.ask(HOUR + 3719)[2] == 2 and bench.ask(HOUR + 3720)[2] == 3
    assert 'over the last day failed: the server is busy' in caplog.text
    for at in range(int(NOW), int(NOW) + 86400, 1800):
        assert bench.ask(at)[0] == ['i0']
    assert bench.ask(NOW + 86400)[:2] == ([], {})


def test_the_scopes_of_a_cycle_ask_in_this_cycle_one_after_the_other(bench):
    query_range, open_questions, most = bench.source.query_range, [], []

    def answer(*args):
        open_questions.append(args)
        most.append(len(open_questions))
        time.sleep(0.05)
        open_questions.pop()
        return query_range(*args)

    bench.source.query_range = answer
    for scope, uuid in ('blue', 'i0'), ('red', 'i1'):
        bench.ask(NOW, (uuid,), scope)
    bench.reader.wait_for_answers()
    assert most == [1, 1]
    assert bench.ask(NOW + 600, ('i0',), 'blue')[:2] == (['i0'], {})
    assert bench.ask(NOW + 600, ('i1',), 'red')[:2] == (['i1'], {}), 'no rates of another scope'


def test_an_engine_of_one_cycle_asks_no_source_again_that_fails(make_bench):
    bench = make_bench(single_cycle=True)
    bench.source.error = 'the server is busy'
    assert bench.ask(NOW, ('i0',), 'blue') == ([], {}, 1)
    assert bench.ask(NOW, ('i1',), 'red') == ([], {}, 1)
    bench = make_bench(single_cycle=True)
    assert bench.ask(NOW, ('i0',), 'blue') == (['i0'], {}, 1)
    assert bench.ask(NOW, ('i1',), 'red') == (['i1'], {}, 2)


def test_each_question_has_a_source_of_its_own(bench, monkeypatch, caplog):
    closed = []
    monkeypatch.setattr(bench.source, 'close', lambda: closed.append(len(bench.source.asked)))
    bench.ask(NOW)
    bench.ask(HOUR + 3600)
    assert closed == [1, 2]

    def refuse():
        raise exception.ConfigError(path='kronos.conf', field='url', problem='x', remedy='y')

    rates.let_open(monkeypatch, refuse)
    bench.ask(HOUR + 7200)
    assert 'kronos.conf' in caplog.text and 'Traceback' not in caplog.text


def test_an_unknown_past_is_a_message_and_no_wait(bench, caplog):
    caplog.set_level('INFO')
    bench.source.series = {}
    bench.ask(NOW)
    assert bench.ask(NOW + 60) == ([], {}, 1)
    assert '1 instance of drains' in caplog.text


def test_a_wait_for_an_answer_ends(bench):
    bench.source.error = 'the server is busy'
    bench.ask(NOW)
    assert bench.ask(NOW + 299)[1] == {'i0': NOW + 300}
    assert bench.ask(NOW + 300)[1] == {}


def test_rates_that_no_drain_needs_any_more_are_dropped(bench):
    bench.ask(NOW)
    assert bench.ask(NOW + 3599, ())[0] == ['i0']
    assert bench.ask(NOW + 3600, ()) == ([], {}, 1)
    assert bench.reader.add_known_rates(model.MoveHistory(), 'x', NOW) == model.MoveHistory()


def test_a_stopping_engine_asks_nothing(bench):
    bench.stopping.set()
    assert bench.ask(NOW)[2] == 0


def test_a_question_that_a_stop_breaks_off_is_no_failure(bench, monkeypatch, caplog):
    def break_off(*args, **more):
        bench.stopping.set()
        return write_rates.RateAnswer(error='no answer')

    monkeypatch.setattr(write_rates, 'read_rates', break_off)
    bench.ask(NOW)
    assert bench.stopping.is_set() and caplog.text == ''


def test_a_defect_while_asking_is_logged(bench, monkeypatch, caplog):
    monkeypatch.setattr(write_rates, 'read_rates', lambda *args, **more: 1 / 0)
    bench.ask(NOW)
    assert 'a defect of ours' in caplog.text and bench.ask(NOW + 60)[0] == []
