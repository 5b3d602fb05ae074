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

"""The choice of the step against a migration that does not converge."""

import math

from hypothesis import given
from hypothesis import strategies as st

from kronos_nova import model
from kronos_nova.rebalancer.executors import escalation

MIB = 1024 * 1024
FORCE, COLD = model.EscalationKind
BOTH = escalation.EscalationLimits((COLD, FORCE), arrival_seconds=600, longest_pause=60)
LIMITS = escalation.EscalationLimits((FORCE,), arrival_seconds=600, longest_pause=60)


def copy(sent, written, remaining, *, samples=4, every=10.0):
    """Samples of a migration with these MiB/s, of which so many MiB remain now."""
    return [escalation.CopySample(
        1000.0 + n * every, int((5000 + sent * n * every) * MIB),
        int((remaining - (written - sent) * (samples - 1 - n) * every) * MIB))
        for n in range(samples)]


def choose(samples, now=1000.0 + 590, limits=LIMITS, steps=(), deadline=5000.0):
    return escalation.choose_step(
        escalation.CopyObservation(1000.0, deadline, samples, 10.0, tuple(steps)), limits, now)


def kind(step):
    return step and step.kind


def test_rates_follow_from_sent_and_remaining_bytes():
    rates = escalation.measure_rates(copy(sent=100, written=120, remaining=3000))
    assert rates == escalation.CopyRates(3000 * MIB, 100 * MIB, 120 * MIB)
    assert (rates.finish_seconds, rates.arrival_seconds) == (30, math.inf)
    slower = escalation.measure_rates(copy(sent=100, written=40, remaining=3000))
    assert slower.arrival_seconds == 50


def test_few_or_close_samples_give_no_rate():
    assert escalation.measure_rates([]) is None
    assert escalation.measure_rates(copy(100, 120, 3000, samples=2)) is None
    assert escalation.measure_rates(copy(100, 120, 3000, every=5.0, samples=3)) is None
    assert escalation.measure_rates(copy(100, 120, 3000, every=5.0, samples=4)) is not None


def test_samples_of_another_copy_give_no_rate():
    one = copy(100, 120, 3000)
    assert escalation.measure_rates([*one, escalation.CopySample(2000.0, 0, 1)]) is None


def test_empty_memory_is_not_written():
    """QEMU sends no empty page, so the rest falls faster than the sent bytes grow."""
    assert escalation.measure_rates(copy(100, -50, 3000)).written == 0


def test_migration_that_writes_faster_than_the_link_is_forced_at_the_last_moment():
    samples = copy(sent=100, written=120, remaining=3000)  # 30 s, times 1.5, and two looks: 65 s
    assert choose(samples, now=1000 + 534) is None
    step = choose(samples, now=1000 + 536)
    assert (step.kind, step.at, step.answer) == (FORCE, 1536, None)
    assert step.reason == ('it does not arrive within 600 s: its guest writes 120.0 MiB/s, 100.0 '
                           'MiB/s are sent, and 3000 MiB remain; a pause of 30 s lets it arrive')


def test_migration_that_arrives_in_time_goes_on():
    samples = copy(sent=100, written=40, remaining=3000)  # 50 s
    assert choose(samples, now=1000 + 550) is None
    assert choose(samples, now=1000 + 551) is not None


def test_longer_pause_than_allowed_is_never_chosen():
    assert choose(copy(100, 120, 6000), now=1599.0) is not None
    assert choose(copy(100, 120, 6001), now=1599.0) is None
    assert choose(copy(100, 120, 6001), now=1e9) is None


def test_stalled_migration_is_not_forced():
    """Nothing is sent: a paused guest would stay paused."""
    assert choose(copy(0, 50, 3000), now=1e9) is None


def test_step_is_chosen_after_the_time_is_over_as_well():
    assert choose(copy(100, 120, 3000), now=1e9) is not None


def test_nothing_is_chosen_that_is_not_allowed_or_was_taken():
    samples = copy(100, 120, 3000)
    assert choose(samples, limits=escalation.EscalationLimits()) is None
    assert choose(samples, steps=[model.EscalationStep(FORCE, 0.0, '')]) is None
    cold = escalation.EscalationLimits((COLD,))
    assert kind(choose(samples, now=1600.0, limits=cold)) is COLD
    assert choose(samples, now=1600.0, limits=cold,
                  steps=[model.EscalationStep(COLD, 0.0, '')]) is None


def test_cold_migration_comes_after_the_time_is_over_alone():
    samples = copy(100, 120, 6001)  # too long for a pause
    assert choose(samples, now=1599.0, limits=BOTH) is None
    assert kind(choose(samples, now=1600.0, limits=BOTH)) is COLD


def test_force_comes_before_a_cold_migration():
    assert kind(choose(copy(100, 120, 3000), now=1600.0, limits=BOTH)) is FORCE


def test_stalled_migration_is_moved_cold():
    assert kind(choose(copy(0, 50, 3000), now=1600.0, limits=BOTH)) is COLD


def test_cold_migration_waits_for_the_end_of_the_force():
    samples = copy(100, 120, 3000)
    for answer in (None, model.ACCEPTED):  # 60 s, times 1.5, and two looks
        forced = [model.EscalationStep(FORCE, 1600.0, '', answer)]
        assert choose(samples, now=1709.0, limits=BOTH, steps=forced) is None
        assert kind(choose(samples, now=1710.0, limits=BOTH, steps=forced)) is COLD
    refused = [model.EscalationStep(FORCE, 1600.0, '', 'Nova refused: HTTP 403')]
    assert kind(choose(samples, now=1600.0, limits=BOTH, steps=refused)) is COLD


def test_slow_migration_that_arrives_by_its_deadline_is_not_moved_cold():
    samples = copy(sent=10, written=5, remaining=10000)  # 2000 s
    assert choose(samples, now=1600.0, limits=BOTH, deadline=3600.0) is None
    assert kind(choose(samples, now=1600.0, limits=BOTH, deadline=3599.0)) is COLD


amounts = st.integers(0, 2**50)
samples_of = st.lists(st.builds(
    escalation.CopySample, st.floats(0, 1e9), amounts, amounts), max_size=20).map(
        lambda found: sorted(found, key=lambda sample: sample.at))


@given(samples=samples_of, now=st.floats(0, 1e10), began_at=st.floats(0, 1e10),
       deadline=st.floats(0, 1e10), look=st.floats(0, 600),
       allowed=st.sets(st.sampled_from(model.EscalationKind)),
       taken=st.sets(st.sampled_from(model.EscalationKind)), pause=st.floats(1, 1e4))
def test_step_is_allowed_new_and_ends_within_the_longest_pause(
        samples, now, began_at, deadline, look, allowed, taken, pause):
    limits = escalation.EscalationLimits(tuple(allowed), 600, pause)
    steps = tuple(model.EscalationStep(each, 0.0, '') for each in sorted(taken))
    step = escalation.choose_step(escalation.CopyObservation(
        began_at, deadline, samples, look, steps), limits, now)
    if step is None:
        return
    assert step.kind in allowed - taken and step.at == now
    rates = escalation.measure_rates(samples)
    if step.kind is FORCE:
        assert rates.sent > 0 and rates.finish_seconds <= pause
    else:
        assert now >= began_at + 600 and now + rates.arrival_seconds > deadline


@given(sent=st.integers(1, 1000), over=st.integers(0, 1000), remaining=st.integers(0, 10**5),
       look=st.integers(1, 60))
def test_migration_that_never_converges_leaves_by_force_in_time_or_cold(
        sent, over, remaining, look):
    """Looked at every ``look`` seconds, each step comes once, and the rest arrives in time."""
    samples = copy(sent, sent + over, remaining)
    finish = escalation.measure_rates(samples).finish_seconds
    steps = []
    for now in range(1000, 2001, look):
        step = escalation.choose_step(escalation.CopyObservation(
            1000.0, 5000.0, samples, look, tuple(steps)), BOTH, float(now))
        if step is not None:
            steps.append(step)
    assert [step.kind for step in steps] == ([FORCE, COLD] if finish <= 60 else [COLD])
    assert all(step.at + finish <= 1600 for step in steps if step.kind is FORCE)
