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

"""Requests to spread instances over failure domains, and the words of both.

Tenants write some of the requests: each text is read into a value of its own here, or refused.
"""

import dataclasses
import re

#: A kind of domain, such as ``rack``.
KIND = re.compile(r'[a-z][0-9a-z_-]{0,31}')
#: A domain of a kind, or a set of instances.
NAME = re.compile(r'[0-9A-Za-z][0-9A-Za-z._-]{0,63}')
#: Key of metadata, tags, extra specs (with the prefix ``kronos:``) and of the operator's file.
SPREAD = 'spread'
#: Most requests in one text, and of one owner for one instance.
MOST = 8


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class SpreadRequest:
    """An instance's request to be spread over the domains of a kind.

    ``name``: the set of the project's instances with which it is spread. Empty: its server groups;
    without one, all instances of the project with the same request and without a server group.
    """

    kind: str
    name: str = ''

    def __str__(self) -> str:
        return f'{self.kind}:{self.name}' if self.name else self.kind


#: A statement that cannot be read: it asks for nothing, and plans count it.
UNREADABLE = SpreadRequest('')


@dataclasses.dataclass(frozen=True, slots=True)
class SpreadSet:
    """Instances of one project that are spread over the domains of a kind.

    ``key`` identifies the set in a cloud; ``title`` names it for operators, without any text of
    tenants.
    """

    key: str
    kind: str
    title: str
    members: frozenset[str]


def parse_spread(text: str) -> tuple[SpreadRequest, ...]:
    """Read a value of ``kronos:spread``, such as ``rack`` or ``rack:web,pdu``.

    :returns: the requests, sorted, each once.
    :raises ValueError: the text is no list of requests; the message does not repeat it.
    """
    requests = set()
    for part in text.split(','):
        kind, colon, name = part.strip().partition(':')
        kind = kind.lower()
        if not KIND.fullmatch(kind) or bool(colon) != bool(NAME.fullmatch(name)):
            raise ValueError('it is no list of KIND or KIND:SET')
        requests.add(SpreadRequest(kind, name))
    if len(requests) > MOST:
        raise ValueError(f'it may name {MOST} kinds and sets at most')
    return tuple(sorted(requests))
