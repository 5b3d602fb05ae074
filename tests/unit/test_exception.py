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

"""Errors: one sentence for people, one code for machines."""

import pytest

from kronos_nova import exception


def every(cls=exception.KronosException):
    yield cls
    for child in cls.__subclasses__():
        yield from every(child)


def ours():
    return [c for c in dict.fromkeys(every()) if c.__module__ == exception.__name__]


def test_codes_are_unique_and_in_one_namespace():
    codes = [c.code for c in ours()]
    assert len(set(codes)) == len(codes)
    assert all(c.startswith('kronos.') for c in codes)


@pytest.mark.parametrize('cls', ours(), ids=lambda c: c.__name__)
def test_the_message_is_filled_from_keywords_only(cls):
    class Any(dict):
        def __missing__(self, key):
            return f'<{key}>'
    fields = Any()
    message = cls.msg_fmt % fields
    assert '%(' not in message and message.strip()


def test_a_missing_field_is_a_programming_error():
    with pytest.raises(KeyError):
        exception.CollectError(what='servers')


def test_text_with_a_percent_sign_in_a_field_is_not_a_format():
    error = exception.CollectError(what='100%s', service='Nova', problem='%(boom)s')
    assert '100%s' in str(error) and '%(boom)s' in str(error)
    assert error.kwargs['what'] == '100%s'


def test_a_message_may_be_given_whole():
    assert str(exception.KronosException('it is so')) == 'it is so'


def test_wire_types_are_kronos_names():
    kinds = {c.wire_type for c in every(exception.MigrationError)
             if c.__module__ == exception.__name__}
    # It has no hooks, and no word for a defect.
    assert kinds - {'HookFailed', 'UnexpectedError'} == {
        'PreFlightError', 'MigrationFailed', 'MigrationTimeout', 'PlacementRejected',
        'NovaClientError'}


def test_permanent_errors_are_not_retriable():
    final = {c.__name__ for c in every(exception.MigrationError) if not c.retriable}
    assert final == {'AbortSuspected', 'AllocationsLeft', 'HookNotAllowed', 'InstanceInError',
                     'InstanceRefused', 'MigrationAbandoned', 'OtherCell', 'PreFlightError',
                     'TaskNotAuthorized'}


@pytest.mark.parametrize(('said', 'found'), [
    ('it said no', 'it said no.'), ('Correct it.', 'Correct it.'),
    (exception.MigrationFailed(instance_uuid='i', problem='no'), 'Instance i: no.')])
def test_a_formatted_sentence_ends_before_the_next_one(said, found):
    assert exception.format_sentence(said) == found
