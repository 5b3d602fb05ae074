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

"""Numbers with their nouns, for texts that people read."""


def count_noun(number: int, singular: str, more: str | None = None) -> str:
    """Return ``1 move`` or ``2,000 moves``.

    :param more: the plural, if it is not ``singular`` with an *s*.
    """
    return f'{number:,} {singular if number == 1 else more or singular + "s"}'


def choose_form(number: int, singular: str, more: str) -> str:
    """Return the verb or pronoun that agrees with the number."""
    return singular if number == 1 else more


def count_with_verb(number: int, singular: str) -> str:
    """Return ``1 instance is`` or ``2 instances are``."""
    return f'{count_noun(number, singular)} {choose_form(number, "is", "are")}'
