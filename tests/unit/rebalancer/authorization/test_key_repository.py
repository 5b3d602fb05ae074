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

"""Keys in a directory: made, rotated, read again, and refused with the name of the file."""

import os
import stat

import pytest

from kronos_nova import exception
from kronos_nova.rebalancer.authorization import key_repository
from tests.unit.rebalancer.store import cases


@pytest.fixture
def directory(tmp_path):
    path = tmp_path / 'keys'
    key_repository.create_keys(str(path))
    return path


def read_id(path):
    return key_repository.compute_key_id(key_repository._read_public_key(str(path)))


def test_created_keys_are_private_to_their_owner_and_group(directory):
    assert sorted(os.listdir(directory)) == ['0.pem', '0.pub', '1.pem', '1.pub']
    for name in os.listdir(directory):
        mode = stat.S_IMODE(os.stat(directory / name).st_mode)
        assert mode == (0o640 if name.endswith('.pem') else 0o644), name
    with pytest.raises(exception.SigningKeyError, match='it has keys already'):
        key_repository.create_keys(str(directory))


def test_the_next_key_signs_after_a_rotation_and_old_keys_still_verify(directory):
    keys = key_repository.KeyRepository(str(directory))
    first, next_id = keys.get_signing_key()[0], read_id(directory / '0.pub')
    assert key_repository.rotate_keys(str(directory), 3) == 2
    assert keys.get_signing_key()[0] == next_id, 'its public key was there before'
    keys.get_public_key(first)
    assert read_id(directory / '0.pub') not in (first, next_id)
    assert [key.role for key in keys.list_keys()] == ['next', 'signs', 'has signed']
    assert key_repository.rotate_keys(str(directory), 3) == 3
    with pytest.raises(exception.SigningKeyError, match=f'no public key with the ID {first}'):
        keys.get_public_key(first)
    assert sorted(os.listdir(directory)) == ['0.pem', '0.pub', '2.pem', '2.pub', '3.pem', '3.pub']


@pytest.mark.parametrize('replaced', range(1, 6))
def test_a_rotation_that_was_interrupted_leaves_working_keys_and_can_be_repeated(
        directory, monkeypatch, replaced):
    """Interrupted before each of its changes of the directory."""
    key_repository.rotate_keys(str(directory), 3)
    before = {name: (directory / name).read_bytes() for name in os.listdir(directory)}
    next_id = read_id(directory / '0.pub')
    left = replaced

    def count_down(function):
        def run(*arguments):
            nonlocal left
            left -= 1
            if left == 0:
                raise OSError(28, 'No space left on device')
            return function(*arguments)
        return run

    monkeypatch.setattr(os, 'replace', count_down(os.replace))
    interrupted = False
    try:
        key_repository.rotate_keys(str(directory), 3)
    except exception.SigningKeyError as e:
        interrupted = True
        assert 'No space left on device' in str(e) and 'free space' in str(e)
    monkeypatch.undo()
    assert interrupted is (replaced <= 4)
    keys = key_repository.KeyRepository(str(directory))
    key_id, key = keys.get_signing_key()
    keys.get_public_key(key_id)
    if interrupted:
        assert key_repository.rotate_keys(str(directory), 3) == 3
    assert keys.get_signing_key()[0] == next_id, 'the next key signs, and no other was skipped'
    assert sorted(os.listdir(directory)) == ['0.pem', '0.pub', '2.pem', '2.pub', '3.pem', '3.pub']
    assert (directory / '2.pem').read_bytes() == before['2.pem']
    for number in (0, 2, 3):
        private = key_repository._read_private_key(str(directory / f'{number}.pem'))
        assert key_repository.compute_key_id(private.public_key()) == read_id(
            directory / f'{number}.pub')


def test_a_key_that_could_not_be_removed_goes_with_the_next_rotation(directory, monkeypatch):
    def refuse(path):
        raise OSError(13, 'Permission denied')

    key_repository.rotate_keys(str(directory), 3)
    monkeypatch.setattr(os, 'remove', refuse)
    assert key_repository.rotate_keys(str(directory), 3) == 3
    monkeypatch.undo()
    assert (directory / '1.pem').exists()
    assert key_repository.rotate_keys(str(directory), 3) == 4
    assert sorted(os.listdir(directory)) == ['0.pem', '0.pub', '3.pem', '3.pub', '4.pem', '4.pub']


def test_rotations_at_once_wait_for_each_other(directory):
    numbers = cases.at_once(8, lambda n: key_repository.rotate_keys(str(directory), 100))
    assert sorted(numbers) == list(range(2, 10))
    keys = key_repository.KeyRepository(str(directory))
    assert [key.number for key in keys.list_keys()] == [0, *range(9, 0, -1)]
    assert len({key.key_id for key in keys.list_keys()}) == 10


@pytest.mark.parametrize('names', [['0.pem', '0.pub'], ['1.pem', '1.pub'], ['0.pub'], ['1.pub'],
                                   ['0.pem'], ['0.pem', '0.pub', '1.pub']])
def test_a_creation_that_was_interrupted_is_completed(directory, names):
    for name in names:
        os.remove(directory / name)
    key_repository.create_keys(str(directory))
    keys = key_repository.KeyRepository(str(directory))
    keys.get_signing_key()
    assert [(key.number, key.private) for key in keys.list_keys()] == [(0, True), (1, True)]
    key_repository.rotate_keys(str(directory), 3)


def test_the_next_key_alone_signs_nothing(directory):
    os.remove(directory / '1.pem')
    with pytest.raises(exception.SigningKeyError, match='no private key'):
        key_repository.KeyRepository(str(directory)).get_signing_key()


def test_no_keys_are_made_beside_the_public_keys_of_another_host(directory):
    for name in ('0.pem', '1.pem'):
        os.remove(directory / name)
    with pytest.raises(exception.SigningKeyError, match='made on another host'):
        key_repository.create_keys(str(directory))


def test_a_private_key_signs_only_when_its_public_key_is_there(directory):
    """A copy of the directory is under way."""
    first = key_repository.KeyRepository(str(directory)).get_signing_key()[0]
    key_repository.rotate_keys(str(directory), 3)
    os.rename(directory / '2.pub', directory / 'later')
    keys = key_repository.KeyRepository(str(directory))
    assert keys.get_signing_key()[0] == first
    os.rename(directory / 'later', directory / '2.pub')
    assert keys.get_signing_key()[0] != first


def test_a_mode_that_is_repaired_lets_the_same_process_sign_again(directory):
    keys = key_repository.KeyRepository(str(directory))
    first = keys.get_signing_key()[0]
    os.chmod(directory / '1.pem', 0o644)
    with pytest.raises(exception.SigningKeyError, match='every user'):
        keys.get_signing_key()
    keys.get_public_key(first)  # verification goes on
    os.chmod(directory / '1.pem', 0o640)
    assert keys.get_signing_key()[0] == first


def test_public_keys_alone_verify_and_cannot_sign(directory):
    for name in ('0.pem', '1.pem'):
        os.remove(directory / name)
    keys = key_repository.KeyRepository(str(directory))
    assert keys.count_public_keys() == 2
    assert [str(key).partition('(')[2] for key in keys.list_keys()] == ['public key alone)'] * 2
    with pytest.raises(exception.SigningKeyError, match='no private key that this user can read'):
        keys.get_signing_key()
    with pytest.raises(exception.SigningKeyError, match='it has no next key'):
        key_repository.rotate_keys(str(directory), 3)


def test_other_files_are_no_keys(directory):
    for name in ('README', '1.pem.new', '01.pem', 'x.pub', '-1.pub', '1.PUB'):
        (directory / name).write_text('no key')
    assert key_repository.KeyRepository(str(directory)).count_public_keys() == 2


def spoil_text(directory):
    (directory / '1.pub').write_text('no key')
    return '1.pub'


def spoil_private_text(directory):
    (directory / '1.pem').write_text('no key')
    return '1.pem'


def open_to_all(directory):
    os.chmod(directory / '1.pem', 0o644)
    return '1.pem'


def mix_keys(directory):
    os.replace(directory / '0.pub', directory / '1.pub')
    return '1.pem'


def take_all_away(directory):
    for name in os.listdir(directory):
        os.remove(directory / name)
    os.rmdir(directory)
    return 'keys'


def swap_kinds(directory):
    os.replace(directory / '0.pem', directory / '1.pub')
    return '1.pub'


@pytest.mark.parametrize('spoil', [spoil_text, spoil_private_text, open_to_all,
                                   mix_keys, take_all_away, swap_kinds])
def test_an_unusable_key_is_named_with_a_remedy_and_works_again_when_repaired(directory, tmp_path,
                                                                              spoil):
    keys = key_repository.KeyRepository(str(directory))
    keys.get_signing_key()
    name = spoil(directory)
    for _ in range(2):
        with pytest.raises(exception.SigningKeyError) as error:
            keys.get_signing_key()
        assert error.value.kwargs['path'].endswith(f'/{name}')
        assert error.value.kwargs['field'] == '[signing] key_repository'
        assert error.value.kwargs['remedy']
    if directory.exists():
        take_all_away(directory)
    key_repository.create_keys(str(directory))
    keys.get_signing_key()
