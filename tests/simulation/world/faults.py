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

"""What goes wrong, in one table, and how often.

A run draws which faults it has at all (a few at a time find more than all at
once), and then each of them at its rate whenever it could happen.
"""

import collections
import random

from tests.simulation.world import outages

#: As a fault in ``only``, for runs whose executors abort at the deadline.
ABORTS = 'executors abort at the deadline'
SLOW, ENDLESS = 'migration is slow', 'migration never ends'
#: The statuses in which Nova can leave a live migration when its nova-compute is killed, its
#: host never returns or an administrator resets the state of its instance.
LEFT = ('accepted', 'queued', 'preparing', 'running', 'post-migrating')
#: What users and operators do to an instance that is to move or moves.
MID_MOVE = ('user resizes', 'user rebuilds', 'user shelves', 'user deletes',
            'operator evacuates')
#: Fault -> chance each time that it could happen.
FAULTS = {
    # A process is gone: nothing after it runs. Drawn at each transaction that writes.
    'engine crashes before a commit': 0.03,
    'engine crashes after a commit': 0.03,
    'executor crashes before a commit': 0.03,
    'executor crashes after a commit': 0.03,
    'executor crashes before a POST': 0.15,
    'executor crashes after a POST': 0.15,
    # A process stands still and goes on later, believing what it believed. Drawn at
    # each transaction and at each request that reads.
    'engine freezes beyond its lease': 0.01,
    'executor freezes beyond its claim': 0.006,
    'engine is slow but alive': 0.01,
    'process is restarted in order': 0.01,
    'clock steps forward': 0.01,
    'clock steps back': 0.01,
    'clock of an engine steps far': 0.02,
    'clock of an executor steps far': 0.05,
    'clock of an executor drifts': 0.3,
    # The database. Drawn at each transaction.
    'database is away': 0.01,
    'database fails over within a transaction': 0.02,
    'database fails over after the commit': 0.02,
    'database is read-only': 0.02,
    'database has a full disk': 0.02,
    'database sees a deadlock': 0.02,
    # Other processes begin and commit transactions within this one. Drawn at each.
    'transactions overlap': 0.02,
    'a read overlaps with transactions': 0.03,
    # Reads of Nova and Placement.
    'Nova answers 503': 0.01,
    'Nova answers 403': 0.005,
    'Nova does not answer': 0.01,
    'Nova answers no JSON': 0.005,
    'Nova loses the marker of a page': 0.1,
    'Nova cannot read server groups': 0.1,
    'Nova cannot reach a cell': 0.05,
    'Nova lists no changes of a cell': 0.05,
    'Placement answers 500': 0.01,
    'Placement changes between two reads': 0.1,
    'Placement caps its candidates': 0.1,
    # The request for a migration.
    'POST is refused a connection': 0.1,
    'POST is lost on its way': 0.1,
    'POST is lost on its way back': 0.1,
    'POST arrives late': 0.1,
    'POST gets 500 and had no effect': 0.08,
    'POST gets 500 and had an effect': 0.08,
    'POST gets 400': 0.1,
    'POST gets 403': 0.1,
    'POST gets 409': 0.1,
    # An executor stands still for minutes while its request is under way.
    'executor freezes before its POST arrives': 0.5,
    'executor freezes after its POST arrived': 0.4,
    # The confirmation of a cold migration.
    'confirmation gets 409': 0.4,
    'confirmation is lost on its way back': 0.4,
    'executor crashes before a confirmation': 0.3,
    'executor crashes after a confirmation': 0.4,
    # What becomes of it.
    'migration is refused by the scheduler': 0.12,
    'migration is slow': 0.4,
    'migration fails': 0.2,
    'migration is cancelled': 0.12,
    'migration ends with the instance in ERROR': 0.1,
    'migration ends in error after the instance had moved': 0.08,
    'migration is refused for what the instance is': 0.06,
    'migration leaves its allocations for a while': 0.5,
    'migration leaves its allocations': 0.1,
    # A migration of which nothing comes any more. Drawn at each of ours.
    'Nova loses a request that it accepted': 0.15,
    'migration never ends': 0.25,
    # The draws before theirs leave the later ones fewer migrations.
    'Nova leaves a migration in accepted': 0.23, 'Nova leaves a migration in queued': 0.3,
    'Nova leaves a migration in preparing': 0.33, 'Nova leaves a migration in running': 0.25,
    'Nova leaves a migration in post-migrating': 0.35,
    # The abort of a live migration. Drawn at each.
    'abort puts the instance into ERROR': 0.95,
    'abort has no effect': 0.3,
    'abort gets 409': 0.25,
    # Prometheus. Drawn at each cycle's questions.
    'Prometheus is down': 0.3,
    'Prometheus gives stale samples': 0.3,
    'Prometheus gives a degraded answer': 0.3,
    'Prometheus gives NaN': 0.3,
    'Prometheus misses hosts': 0.3,
    'Prometheus uses other labels': 0.3,
    'Prometheus gives a host twice': 0.3,
    # The broker. Drawn at each message.
    'message is dropped': 0.3,
    'message is delayed': 0.3,
    'message is duplicated': 0.3,
    'message is reordered': 0.3,
    'message is forged': 0.3,
    'message is malformed': 0.3,
    # How the run begins. Drawn for each instance.
    'instance is stopped from the beginning': 0.5,
    # People. Drawn at each step.
    'operator migrates an instance': 0.03,
    'operator disables a host': 0.02,
    'operator enables a host': 0.02,
    'operator cancels a migration': 0.05,
    'operator pauses a scope': 0.01,
    'operator changes an aggregate': 0.01,
    'operator changes the policies': 0.015,
    'operator breaks the policy file': 0.005,
    'user deletes an instance': 0.01,
    'user locks an instance': 0.02,
    'user stops an instance': 0.02,
    'user resizes an instance': 0.015,
    'user rebuilds an instance': 0.02,
    'user shelves an instance': 0.01,
    'operator migrates a stopped instance': 0.03,
    'operator confirms a cold migration': 0.3,
    'operator reverts a cold migration': 0.3,
    'host goes down': 0.01,
    # Actions on an instance that has a task. Drawn at each step in which there is one.
    **{f'{action} an instance in mid-move': 0.05 for action in MID_MOVE},
}

#: A run has each fault with this chance.
PRESENT = 0.2
#: Fault -> its own chance, for what can happen in few runs only.
PRESENT_OF = {'instance is stopped from the beginning': 0.5, 'confirmation gets 409': 0.5,
              'confirmation is lost on its way back': 0.5,
              'executor crashes before a confirmation': 0.5,
              'executor crashes after a confirmation': 0.5,
              'operator confirms a cold migration': 0.5,
              'operator reverts a cold migration': 0.5,
              'abort puts the instance into ERROR': 0.95, 'abort has no effect': 0.5,
              'abort gets 409': 0.5, 'Nova leaves a migration in running': 0.6,
              'Nova leaves a migration in post-migrating': 0.3,
              'Nova leaves a migration in preparing': 0.35,
              'Nova leaves a migration in queued': 0.25}

#: Drawn from a chance of their own: what else happens does not depend on them.
APART = ('clock of an executor steps far', 'clock of an executor drifts')
#: Drawn from a chance for each by itself.
ALONE = frozenset({
    'executor freezes before its POST arrives', 'executor freezes after its POST arrived',
    'Nova loses a request that it accepted', 'migration never ends',
    'abort puts the instance into ERROR', 'abort has no effect', 'abort gets 409',
    'Nova lists no changes of a cell', 'Placement caps its candidates',
    *(f'Nova leaves a migration in {status}' for status in LEFT),
    *(f'{action} an instance in mid-move' for action in MID_MOVE)})

#: Faults that can happen at a request for a migration or after it only: a run has up to four.
#: Some of them need others.
AT_REQUESTS: dict[str, tuple[str, ...]] = {
    name: () for name in FAULTS
    if name.startswith(('POST ', 'migration ', 'Nova leaves ', 'executor freezes before',
                        'executor freezes after'))
    or name in ('executor crashes before a POST', 'executor crashes after a POST',
                'Nova loses a request that it accepted')}
AT_REQUESTS |= {
    'migration leaves its allocations': ('migration fails',),
    'migration leaves its allocations for a while': ('migration fails',)}
AT_REQUESTS |= {name: (ABORTS, SLOW)
                for name in FAULTS if name.startswith('abort ')}
#: Faults of cold migrations: a run of stopped instances and a drain has two of them.
OF_COLD = ('confirmation gets 409', 'confirmation is lost on its way back',
           'executor crashes before a confirmation', 'executor crashes after a confirmation',
           'operator confirms a cold migration', 'operator reverts a cold migration')
STOPPED = 'instance is stopped from the beginning'
#: As a fault in ``only``, for runs of stopped instances and a drain.
DRAIN = 'stopped instances are drained'
#: A run is one of stopped instances, or has more faults at its requests, with this chance; then
#: these faults strike with the other.
COLD, REQUESTS, OFTEN = 0.2, 0.9, 0.6
#: Few migrations come far enough to fail. A run in which one leaves its allocations also has
#: refused ones, with this chance.
LEAVES, REFUSED, REFUSING = (
    'migration leaves its allocations', 'migration is refused by the scheduler', 0.5)
#: A run of no stopped instances has executors that abort endless migrations, with this chance.
ABORTING = 0.33


#: How often a fault of requests is chosen, as a multiple: it needs others, or others leave no
#: room for it.
WEIGHTS = {
    'migration leaves its allocations': 9, 'migration leaves its allocations for a while': 10,
    'abort puts the instance into ERROR': 10, 'abort has no effect': 6, 'abort gets 409': 4,
    'POST is lost on its way back': 3, 'Nova leaves a migration in post-migrating': 5,
    'Nova leaves a migration in accepted': 3, 'Nova leaves a migration in queued': 3,
    'Nova leaves a migration in preparing': 3, 'Nova leaves a migration in running': 3,
    'POST gets 500 and had an effect': 4, 'POST arrives late': 3, 'POST gets 409': 3,
    'migration is cancelled': 3, 'migration ends with the instance in ERROR': 3,
    'migration ends in error after the instance had moved': 3,
    'executor crashes after a POST': 3, 'executor freezes before its POST arrives': 1,
    'executor freezes after its POST arrived': 1, 'migration is slow': 1,
    'migration never ends': 1, 'Nova loses a request that it accepted': 1}


class Faults:
    """Draws the faults of one run and counts them.

    :param crowds: the run has more of what few runs can have.
    """

    def __init__(self, rng: random.Random, counts: 'collections.Counter[str]',
                 only: frozenset[str] | None = None, seed: int = 0,
                 crowds: bool = True) -> None:
        self._rng = rng
        self.apart = random.Random(f'apart {seed}')
        self._alone = {name: random.Random(f'{name} {seed}') for name in ALONE}
        self._counts = counts
        self.present = only if only is not None else frozenset(
            name for name in FAULTS
            if self._chance(name).random() < PRESENT_OF.get(name, PRESENT))
        #: Chances of this run that differ from those of the table.
        self._often: dict[str, float] = {}
        #: Its instances are stopped, and a host is to be drained.
        self.cold = self.crowded = False
        if DRAIN in self.present:
            self.cold, self._often = True, {STOPPED: 0.9}
        if only is None:
            self.present |= outages.draw(random.Random(f'outages {seed}'))
            if crowds:
                self._crowd(random.Random(f'crowd {seed}'), random.Random(f'aborting {seed}'),
                            seed)
        self.active = True

    def _crowd(self, rng: random.Random, aborting: random.Random, seed: int) -> None:
        """Give the run more of what few runs can have."""
        self.cold = rng.random() < COLD
        if self.cold:
            # Few of them come to be confirmed when much else happens.
            chosen = [STOPPED, *rng.sample(OF_COLD, 2)]
            self.present = frozenset(name for name in self.present if not name.startswith(
                ('user ', 'operator ', 'migration ', 'Nova leaves ', 'POST ')))
        elif rng.random() < REQUESTS:
            weighed = [name for name in sorted(AT_REQUESTS) for _ in range(
                WEIGHTS.get(name, 2))]
            chosen = sorted(set(rng.sample(weighed, 4)))
            chosen += [other for name in chosen for other in AT_REQUESTS[name]]
        else:
            chosen = []
        self.present |= set(chosen)
        self._often = {name: 0.15 if name.startswith('operator') else OFTEN for name in chosen}
        if LEAVES in chosen and REFUSED not in self.present:
            # Of its own chance: what else happens does not depend on it.
            self.present |= {REFUSED}
            self._often[REFUSED] = REFUSING
            self._alone[REFUSED] = random.Random(f'refusing {seed}')
        if not self.cold and aborting.random() < ABORTING:
            self.present |= {ABORTS, ENDLESS, *(n for n in FAULTS if n.startswith('abort '))}
            self._often[ENDLESS] = OFTEN
        if self.cold:
            self._often[STOPPED] = 0.9
        self.crowded = bool(chosen)

    def _chance(self, name: str) -> random.Random:
        return self._alone.get(name) or (self.apart if name in APART else self._rng)

    def hit(self, name: str) -> bool:
        """Whether it happens now."""
        if self.active and name in self.present and (
                self._chance(name).random() < self._often.get(name, FAULTS[name])):
            self._counts[name] += 1
            return True
        return False
