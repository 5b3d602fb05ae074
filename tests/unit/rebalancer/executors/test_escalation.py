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

"""The choice of the step against a migration that does not converge, by guests copied in rounds."""

import dataclasses
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from kronos_nova import model
from kronos_nova.rebalancer.executors import escalation
from tests.unit.rebalancer.executors import copied_guests

MIB = 1024 * 1024
(FORCE,) = model.EscalationKind
LIMITS = escalation.EscalationLimits((FORCE,), arrival_seconds=600, longest_pause=60)
#: Its rest leaps to 3000 MiB every 10 s, and 1000 MiB/s are sent.
COUNTS = [(1000.0, 7000, 3000), (1005.0, 9000, 1000), (1010.0, 9900, 100), (1015.0, 12000, 3000),
          (1020.0, 14000, 1000), (1025.0, 17000, 3000)]


def record(*amounts):
    """Return a history of (time, MiB sent, MiB that remain)."""
    history = escalation.CopyHistory()
    for at, sent, remaining in amounts:
        history.record_sample(escalation.CopySample(at, sent * MIB, remaining * MIB), at)
    return history


def choose(rates, now=1000.0 + 590, limits=LIMITS, steps=(), age=0.0, look=10.0, handover=2.5):
    return escalation.choose_step(escalation.CopyObservation(
        1000.0, rates, age, look, tuple(steps), handover), limits, now)


def rates(longest=30.0, written=120.0, sent=100.0):
    """Rates of a guest whose rest takes so many seconds at most."""
    return escalation.CopyRates(
        20.0 * sent * MIB, 25.0 * sent * MIB, longest * sent * MIB, longest_at_end=math.inf,
        sent=sent * MIB, speed=sent * MIB, written=written * MIB, counted=30.0 * sent * MIB,
        counted_seconds=10.0, round_seconds=30.0)


def test_bound_has_the_pages_that_the_guest_may_have_written_since_the_last_count():
    found = escalation.measure_rates(record(*COUNTS))
    # 15 s at most since the last count, and 5000 MiB were written in at least 4 s.
    assert found.longest == (3000 + 5000 * 15 / 4) * MIB
    assert found.written == 5000 * MIB / 10
    assert found.remaining == found.expected == 3000 * MIB
    assert found.sent == 7100 * MIB / 16 and found.speed == 7100 * MIB / 15


def test_counts_are_dated_by_the_rest_of_their_round():
    found = escalation.measure_rates(record(*COUNTS))
    # 1000 MiB remained at 1020, 100 MiB at 1010; each was sent before the count.
    assert found.counted_seconds == pytest.approx(5 - 1000 / (7100 / 15))
    assert found.round_seconds == pytest.approx(10 + (1000 - 100) / (7100 / 15))
    assert found.counted == 5000 * MIB
    # 15 s, and 3000 MiB more, at most since the last count.
    assert found.longest_at_end == pytest.approx(
        5000 * (15 + 3000 / (7100 / 16)) / 4 * MIB)


@pytest.mark.parametrize(('seconds', 'left', 'since'), [
    (0.0, 20.0, 10.0), (5.0, 15.0, 15.0), (20.0, 0.0, 30.0), (22.0, 28.0, 2.0), (60.0, 0.0, 40.0)])
def test_round_goes_on_after_the_newest_sample(seconds, left, since):
    """A new one begins once it is sent, with the bytes of the last count."""
    assert rates().find_round(seconds) == (left, since)


@pytest.mark.parametrize(('seconds', 'expected'), [
    (20.0, 30.0),  # At the end of the round all is written again, and nothing of it is sent.
    (5.0, 15.0 + 30.0 * (1 + 15 / 30) / 2), (22.0, 28.0 + 30.0 * (1 + 2 / 30) / 2)])
def test_expected_pause_has_the_rest_and_what_the_guest_writes(seconds, expected):
    assert rates().expect_pause(seconds) == pytest.approx(expected)


def test_earlier_counts_bound_a_round_that_is_longer_than_the_last_one():
    later = [(at + 25, sent + 10000, rest) for at, sent, rest in COUNTS[1:]]
    found = escalation.measure_rates(record(*COUNTS, *later))
    assert found.longest == (3000 + 2 * 5000) * MIB, '19 s at least'


@pytest.mark.parametrize('amounts', [
    [], COUNTS[:1], COUNTS[:4],
    [(1000.0 + 10 * n, 1000 * n, 9000 - 1000 * n) for n in range(9)]])
def test_without_two_counts_nothing_is_known(amounts):
    """The rest falls in each round, also that of a guest that writes all its memory again."""
    assert escalation.measure_rates(record(*amounts)) is None


def test_headers_that_are_sent_are_no_count():
    amounts = [(1000.0 + 10 * n, 1000 * n, 20000 - 960 * n) for n in range(9)]
    assert not record(*amounts).counts


def test_amounts_of_another_copy_drop_the_first():
    assert escalation.measure_rates(record(*COUNTS, (2000.0, 0, 1))) is None


def test_amounts_that_nova_has_not_written_again_grow_old():
    history = record(*COUNTS)
    same = escalation.CopySample(COUNTS[-1][0], 1, 1)
    history.record_sample(same, 5000.0)
    assert history.measure_age(1100.0) == 75.0
    history.record_sample(escalation.CopySample(2000.0, 0, 0, is_postcopy=True), 1100.0)
    assert history.measure_age(1100.0) == 75.0
    assert escalation.CopyHistory().measure_age(1100.0) == math.inf


def test_step_comes_at_the_last_moment():
    found = rates()  # 30 s and the handover, times 1.5, and two looks: 68.75 s
    assert choose(found, now=1000 + 531) is None
    step = choose(found, now=1000 + 532)
    assert (step.kind, step.at, step.answer) == (FORCE, 1532, None)
    assert step.reason == (
        'it does not arrive within 600 s: its guest writes 120.0 MiB/s, 100.0 MiB/s are sent, and '
        '2000 to 3000 MiB remain; a pause of at most 32 s lets it arrive')
    assert choose(found, now=1e9) is not None, 'the time is over'


def test_step_waits_for_the_end_of_the_round():
    """There the guest has written as much, and nothing remains of the round."""
    found = dataclasses.replace(rates(), longest_at_end=50.0 * 100 * MIB)
    at = 1000 + 545  # 55 s before the time is over.
    assert choose(found, now=at, look=6.0, age=3.9) is None
    # It is 9 s after the sample that a guest is paused; the next look may come too late.
    step = choose(found, now=at, look=6.0, age=4.0)
    assert step.expected_seconds == 2.0 + 11.0 + 30.0 * (1 + 19 / 30) / 2 + 2.5


def test_step_does_not_wait_where_the_end_of_the_round_is_too_late_or_too_long():
    found = dataclasses.replace(rates(), longest_at_end=50.0 * 100 * MIB)
    # It would be expected 15 + 2 + 30 + 2.5 s from now.
    assert choose(found, now=1000 + 550.4, look=6.0) is None
    assert choose(found, now=1000 + 550.5, look=6.0) is not None
    longer = dataclasses.replace(rates(), longest_at_end=57.6 * 100 * MIB)
    assert choose(longer, now=1000 + 545, look=6.0) is not None


def test_migration_that_arrives_soon_goes_on():
    found = rates(written=50.0)  # 50 s
    assert choose(found, now=1000 + 540) is None and choose(found, now=1e9) is None
    assert choose(rates(written=60.0), now=1e9) is not None, '62.5 s are longer than a pause'


def test_longer_pause_than_allowed_is_never_chosen():
    assert choose(rates(longest=57.5), now=1599.0) is not None
    assert choose(rates(longest=57.6), now=1e9) is None
    assert choose(rates(longest=40.0), now=1e9, handover=20.0) is not None
    assert choose(rates(longest=40.0), now=1e9, handover=20.1) is None


def test_handover_is_a_part_of_the_expected_seconds_and_of_the_wait_for_the_end_of_a_round():
    quiet, busy = (choose(rates(), now=1e9, handover=seconds) for seconds in (2.5, 20.0))
    assert busy.expected_seconds == quiet.expected_seconds + 17.5
    found = dataclasses.replace(rates(), longest_at_end=40.0 * 100 * MIB)
    # At the end of the round it would be expected 15 + 2 + 30 + 20 s from now.
    assert choose(found, now=1000 + 532.9, look=6.0, handover=20.0) is None
    assert choose(found, now=1000 + 533.1, look=6.0, handover=20.0) is not None
    longer = dataclasses.replace(rates(), longest_at_end=40.1 * 100 * MIB)
    assert choose(longer, now=1000 + 532.9, look=6.0, handover=20.0) is not None


def test_handover_is_learnt_from_the_newest_arrivals_of_an_hour():
    history = escalation.HandoverHistory()
    assert history.expect_handover(0.0) == 2.5
    history.record_arrival(30.0, 10.0, 1000.0)
    assert history.expect_handover(1000.0) == 2.5, 'one alone may be an exception'
    history.record_arrival(24.0, 10.0, 1001.0)
    assert history.expect_handover(1001.0) == 14.0
    for _ in range(9):
        history.record_arrival(9.0, 10.0, 1002.0)
    assert history.expect_handover(1002.0) == 0.0
    assert history.expect_handover(1002.0 + 3601.0) == 2.5


@pytest.mark.parametrize('found', [None, rates(sent=0.0)])
def test_guest_without_rates_or_network_is_not_paused(found):
    assert choose(found, now=1e9) is None


def test_old_amounts_pause_no_guest():
    assert choose(rates(), now=1e9, age=30.0) is not None
    assert choose(rates(), now=1e9, age=31.0) is None


def test_nothing_is_chosen_that_is_not_allowed_or_was_taken():
    assert choose(rates(), limits=escalation.EscalationLimits()) is None
    assert choose(rates(), steps=[model.EscalationStep(FORCE, 0.0, '')]) is None


def test_patience_after_the_step_is_longer_than_its_pause():
    assert LIMITS.compute_patience(10.0) == 110.0


guests = st.builds(
    lambda memory, part, writes, link: copied_guests.Guest(
        memory, memory * part, writes * link, link),
    st.sampled_from([2048.0, 8192.0, 32768.0]), st.floats(0.01, 1.0), st.floats(0.05, 6.0),
    st.sampled_from([50.0, 100.0, 1000.0]))


def migrate(guest, longest, look, seconds=1500):
    """Look at a migration; return its step, and the pauses that may follow, in seconds."""
    limits = escalation.EscalationLimits((FORCE,), 300.0, longest)
    history = escalation.CopyHistory()
    for now in range(seconds):
        if now % 5 == 0:
            newest = guest.sample(float(now))
        if now % look == look - 1:
            history.record_sample(newest, float(now))
            step = escalation.choose_step(escalation.CopyObservation(
                0.0, escalation.measure_rates(history), history.measure_age(float(now)),
                float(look)), limits, float(now))
            if step is not None:
                pauses = [guest.pause_seconds]
                for _ in range(5):  # Until Nova's compute node pauses it.
                    guest.pass_second()
                    pauses.append(0.0 if guest.has_arrived else guest.pause_seconds)
                return step, pauses
        guest.pass_second()
        if guest.has_arrived:
            break
    return None, []


@settings(max_examples=60, deadline=None)
@given(guest=guests, longest=st.sampled_from([10.0, 30.0, 60.0, 120.0]),
       look=st.sampled_from([1, 5, 10, 30]))
def test_real_pause_is_at_most_the_longest(guest, longest, look):
    _, pauses = migrate(guest, longest, look)
    assert max(pauses, default=0.0) <= longest


@settings(max_examples=30, deadline=None)
@given(memory=st.sampled_from([2048.0, 8192.0]), part=st.floats(0.01, 1.0),
       writes=st.floats(0.01, 0.4), look=st.sampled_from([1, 5, 10]))
def test_guest_that_converges_in_time_is_not_forced(memory, part, writes, look):
    """Its writes leave more than half of the network to the copy."""
    guest = copied_guests.Guest(memory, memory * part, writes * 100, 100.0)
    step, _ = migrate(guest, 60.0, look)
    assert step is None and guest.has_arrived


@pytest.mark.parametrize(('memory', 'working_set', 'writes'), [
    (8192.0, 6000.0, 120.0), (8192.0, 3000.0, 120.0), (4096.0, 500.0, 1000.0),
    (4096.0, 2000.0, 100.0)])
def test_guest_that_does_not_converge_is_forced_in_time(memory, working_set, writes):
    guest = copied_guests.Guest(memory, working_set, writes, 100.0)
    step, pauses = migrate(guest, 60.0, 10)
    assert step is not None and step.at < 300 and max(pauses) <= 60


@pytest.mark.parametrize('look', [1, 5, 10])
@pytest.mark.parametrize(('memory', 'working_set', 'writes'), [
    (8192.0, 2000.0, 1000.0), (8192.0, 3000.0, 120.0), (4096.0, 1500.0, 500.0),
    (4096.0, 2500.0, 150.0)])
def test_expected_seconds_are_within_30_percent(memory, working_set, writes, look):
    """Guests that write all pages again at once, and guests that come round once a round."""
    step, pauses = migrate(copied_guests.Guest(memory, working_set, writes, 100.0), 65.0, look)
    assert step.expected_seconds == pytest.approx(2 + pauses[2] + 2.5, rel=0.3)
    assert pauses[2] < working_set / 100.0 + look + 7, 'the end of a round'


def test_guest_whose_working_set_is_too_large_is_not_forced():
    guest = copied_guests.Guest(65536.0, 60000.0, 120.0, 100.0)
    assert migrate(guest, 60.0, 10, seconds=6000) == (None, [])
    assert guest.rounds >= 2 and not guest.has_arrived


@pytest.mark.parametrize(('arrive_by', 'waiting', 'parallel', 'seconds'), [
    (None, 9, 1, 600.0), (1900.0, 0, 1, 600.0), (1300.0, 0, 1, 300.0), (1300.0, 2, 1, 100.0),
    (1300.0, 2, 2, 150.0), (1300.0, 3, 2, 100.0), (1000.0, 0, 1, 0.0), (10.0, 5, 1, 0.0),
    # At least 60 s, until fewer remain.
    (1300.0, 99, 1, 60.0), (1060.0, 9, 1, 60.0), (1059.0, 9, 1, 59.0), (1001.0, 9, 1, 1.0)])
def test_moves_that_wait_share_the_deadline(arrive_by, waiting, parallel, seconds):
    found = escalation.apply_deadline(LIMITS, arrive_by, 1000.0, waiting, parallel)
    assert dataclasses.replace(found, cause='') == dataclasses.replace(
        LIMITS, arrival_seconds=seconds)
    assert ('the deadline of the drain' in found.cause) == (seconds < 600)


def test_past_the_deadline_the_step_comes_once_rates_are_known():
    late = escalation.apply_deadline(LIMITS, 900.0, 1000.0, 0, 1)
    assert choose(rates(), now=1020.0) is None
    assert choose(rates(), now=1020.0, limits=late).kind is FORCE
    assert choose(None, now=1020.0, limits=late) is None
    forbidden = escalation.apply_deadline(escalation.EscalationLimits(), 900.0, 1000.0, 0, 1)
    assert choose(rates(), now=1020.0, limits=forbidden) is None, 'no step is configured'
    assert choose(rates(longest=70.0), now=1020.0, limits=late) is None, 'a pause too long'
