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

"""Ed25519 keys in a directory, rotated as Keystone rotates its Fernet keys.

``N.pem`` is a private key, ``N.pub`` its public key; N is a number. Key 0 signs nothing yet: it is
the next one, whose public key can reach all executors first. The largest number signs. Keys
between them have signed before, and their signatures are still accepted.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import fcntl
import hashlib
import os
import re
import stat
import threading

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from kronos_nova import exception

PRIVATE, PUBLIC = '.pem', '.pub'
_NAME = re.compile(r'(0|[1-9][0-9]{0,8})\.(pem|pub)')
_FIELD = '[signing] key_repository'
_COPY = ('Copy the directory again from the controller that rotates the keys; hosts with executors '
         'alone need its *.pub.')


@dataclasses.dataclass(frozen=True, slots=True)
class ListedKey:
    """A key of a directory: its number and ID, its place in the rotation, and its files."""

    number: int
    key_id: str
    role: str
    private: bool

    def __str__(self) -> str:
        return (f'{self.number} {self.key_id} {self.role}'
                + ('' if self.private else ' (public key alone)'))


class KeyRepository:
    """The keys of a directory, read again when it has changed.

    :param directory: its path.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._public_version: tuple[int, ...] | None = None
        self._public: dict[str, ed25519.Ed25519PublicKey] = {}
        self._private_version: tuple[int, ...] | None = None
        self._signing: tuple[str, ed25519.Ed25519PrivateKey] | None = None

    def get_public_key(self, key_id: str) -> ed25519.Ed25519PublicKey:
        """Return the public key with this ID.

        :raises SigningKeyError: the directory has no such key, or cannot be used.
        """
        with self._lock:
            self._read_changed_public_keys()
            key = self._public.get(key_id)
        if key is None:
            safe = ''.join(c for c in key_id if c.isalnum())[:16]
            raise _make_error(self.directory, f'it has no public key with the ID {safe}', _COPY)
        return key

    def get_signing_key(self) -> tuple[str, ed25519.Ed25519PrivateKey]:
        """Return the ID and the private key that sign now.

        :raises SigningKeyError: no key can sign, or the directory or a key cannot be used.
        """
        with self._lock:
            self._read_changed_private_key()
            if self._signing is None:
                raise _make_error(
                    self.directory, 'it has no private key that this user can read',
                    'Run the command as root or as the user of the engines, or make keys with '
                    'kronos-manage signing-key create.')
            return self._signing

    def count_public_keys(self) -> int:
        """Return the number of public keys.

        :raises SigningKeyError: the directory or a key cannot be used.
        """
        with self._lock:
            self._read_changed_public_keys()
            return len(self._public)

    def list_keys(self) -> list[ListedKey]:
        """Return the keys, the next one first, then the newest.

        :raises SigningKeyError: the directory or a key cannot be used.
        """
        names = _list_key_files(self.directory)
        private, public = _list_numbers(names, PRIVATE), _list_numbers(names, PUBLIC)
        newest = max({*private} & {*public} or public, default=0)
        return [ListedKey(
            number, compute_key_id(_read_public_key(_join(self.directory, number, PUBLIC))),
            'next' if number == 0 else 'signs' if number == newest else 'has signed',
            number in private) for number in sorted(public, key=lambda n: (n > 0, -n))]

    def _read_changed_public_keys(self) -> None:
        names = [name for name in _list_key_files(self.directory) if name.endswith(PUBLIC)]
        version = _read_version(self.directory, names)
        if version != self._public_version:
            keys = [_read_public_key(os.path.join(self.directory, name)) for name in names]
            self._public = {compute_key_id(key): key for key in keys}
            self._public_version = version

    def _read_changed_private_key(self) -> None:
        """Read the newest private key whose public key is there, too: a copy may be under way."""
        names = _list_key_files(self.directory)
        version = _read_version(self.directory, names)
        if version == self._private_version:
            return
        signing = None
        paired = {*_list_numbers(names, PRIVATE)} & {*_list_numbers(names, PUBLIC)} - {0}
        if paired:
            number = max(paired)
            private = _read_private_key(_join(self.directory, number, PRIVATE))
            if private is not None:
                key_id = compute_key_id(private.public_key())
                if key_id != compute_key_id(_read_public_key(
                        _join(self.directory, number, PUBLIC))):
                    raise _make_error(_join(self.directory, number, PRIVATE),
                                      f'{number}{PUBLIC} is not its public key', _COPY)
                signing = key_id, private
        self._signing, self._private_version = signing, version


def create_keys(directory: str) -> None:
    """Make the directory, the first key that signs, and the next one.

    A creation that was interrupted is completed.

    :raises SigningKeyError: it has keys already, or cannot be written.
    """
    with _explain_os_errors(directory):
        os.makedirs(directory, mode=0o755, exist_ok=True)
    with _lock_directory(directory):
        names = _list_key_files(directory)
        if names and not _list_numbers(names, PRIVATE):
            raise _make_error(directory, 'it has public keys alone, made on another host',
                              'Make keys on that host, or in an empty directory.')
        pairs = {*_list_numbers(names, PRIVATE)} & {*_list_numbers(names, PUBLIC)}
        if 0 in pairs and pairs - {0}:
            raise _make_error(directory, 'it has keys already',
                              'Replace them with kronos-manage signing-key rotate.')
        if not pairs - {0}:
            _write_key(directory, 1)
        _write_key(directory, 0)


def rotate_keys(directory: str, max_active_keys: int) -> int:
    """Let the next key sign, make a new next key, and remove the oldest ones.

    A rotation that was interrupted is completed.

    :returns: the number of the key that signs now.
    :raises SigningKeyError: the directory has no next key, or cannot be written.
    """
    with _lock_directory(directory):
        numbers = _list_numbers(_list_key_files(directory), PRIVATE)
        next_key = (_read_private_key(_join(directory, 0, PRIVATE)) if 0 in numbers else None)
        if next_key is None:
            raise _make_error(
                directory, f'it has no next key, 0{PRIVATE}, that this user can read',
                'Rotate on the controller where kronos-manage signing-key create made the keys; '
                'create completes a directory that lacks it.')
        newest = max(numbers)
        with _explain_os_errors(directory):
            # First of all: where the disk is full, nothing has changed.
            new = _prepare_key(directory)
            if newest > 0 and _is_same_key(directory, newest, next_key):
                signing = newest  # of a rotation that was interrupted
            else:
                signing = newest + 1
                _install_key(directory, signing, next_key)
            for suffix in (PUBLIC, PRIVATE):
                os.replace(f'{new}{suffix}', _join(directory, 0, suffix))
            kept = sorted({*numbers, signing} - {0})[-(max_active_keys - 1):]
            for name in _list_key_files(directory):
                if int(name.partition('.')[0]) not in (0, *kept):
                    # Else the next rotation removes it.
                    with contextlib.suppress(OSError):
                        os.remove(os.path.join(directory, name))
    return signing


def compute_key_id(key: ed25519.Ed25519PublicKey) -> str:
    """Return the ID of a key: it stays when a rotation gives the key another number."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]


def _list_key_files(directory: str) -> list[str]:
    """Return the names of the files of keys, sorted; other files are ignored."""
    with _explain_os_errors(directory):
        return sorted(name for name in os.listdir(directory) if _NAME.fullmatch(name))


def _list_numbers(names: list[str], suffix: str) -> list[int]:
    """Return the numbers of the files with this suffix, the smallest first."""
    return sorted(int(name.removesuffix(suffix)) for name in names if name.endswith(suffix))


def _read_version(directory: str, names: list[str]) -> tuple[int, ...]:
    """Return numbers that differ when one of the files was made, removed or written."""
    with _explain_os_errors(directory):
        found: list[int] = []
        for name in names:
            about = os.stat(os.path.join(directory, name))
            found += [about.st_ino, about.st_mtime_ns, about.st_ctime_ns, about.st_mode]
        return tuple(found)


def _read_public_key(path: str) -> ed25519.Ed25519PublicKey:
    with _explain_os_errors(path), open(path, 'rb') as f:
        data = f.read()
    try:
        key = serialization.load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise _make_error(path, 'it is no Ed25519 public key in PEM format', _COPY)
    return key


def _read_private_key(path: str) -> ed25519.Ed25519PrivateKey | None:
    """Return the private key; None: this user may not read it."""
    try:
        with open(path, 'rb') as f:
            data, mode = f.read(), os.fstat(f.fileno()).st_mode
    except PermissionError:
        return None
    except OSError as e:
        raise _make_error(path, e.strerror or str(e), 'Check the path.') from None
    if mode & stat.S_IRWXO:
        raise _make_error(path, 'every user of the machine can read or write it',
                          f'chmod o= {path}')
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise _make_error(path, 'it is no Ed25519 private key in PEM format without a password',
                          _COPY)
    return key


def _is_same_key(directory: str, number: int, key: ed25519.Ed25519PrivateKey) -> bool:
    """Return whether the number has this key, with both files."""
    private = _read_private_key(_join(directory, number, PRIVATE))
    return (private is not None and os.path.exists(_join(directory, number, PUBLIC))
            and private.private_bytes_raw() == key.private_bytes_raw())


def _write_key(directory: str, number: int) -> None:
    with _explain_os_errors(directory):
        new = _prepare_key(directory)
        for suffix in (PUBLIC, PRIVATE):
            os.replace(f'{new}{suffix}', _join(directory, number, suffix))


def _prepare_key(directory: str) -> str:
    """Write the files of a new key under another name; return their path without the suffix."""
    path = os.path.join(directory, 'new')
    _write_files(directory, path, ed25519.Ed25519PrivateKey.generate())
    return path


def _install_key(directory: str, number: int, key: ed25519.Ed25519PrivateKey) -> None:
    """Give a key a number: the public key first, as readers want both."""
    path = os.path.join(directory, 'installed')
    _write_files(directory, path, key)
    for suffix in (PUBLIC, PRIVATE):
        os.replace(f'{path}{suffix}', _join(directory, number, suffix))


def _write_files(directory: str, path: str, key: ed25519.Ed25519PrivateKey) -> None:
    about = os.stat(directory)
    for suffix, mode, data in (
            (PUBLIC, 0o644, key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)),
            (PRIVATE, 0o640, key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption()))):
        descriptor = os.open(f'{path}{suffix}', os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, 'wb') as f:
            f.write(data)
            f.flush()
            os.fsync(descriptor)
        # root makes keys for the user of the daemons: the owner of the directory.
        os.chown(f'{path}{suffix}', about.st_uid, about.st_gid)
        os.chmod(f'{path}{suffix}', mode)


def _join(directory: str, number: int, suffix: str) -> str:
    return os.path.join(directory, f'{number}{suffix}')


@contextlib.contextmanager
def _lock_directory(directory: str) -> Iterator[None]:
    """Let one process at a time change the directory."""
    with _explain_os_errors(directory):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _explain_os_errors(path: str) -> Iterator[None]:
    """Raise SigningKeyError, which names the path, for an error of the file system."""
    try:
        yield
    except OSError as e:
        raise _make_error(path, e.strerror or str(e), 'Check the path, its owner, its permissions '
                                                      'and the free space.') from None


def _make_error(path: str, problem: str, remedy: str) -> exception.SigningKeyError:
    return exception.SigningKeyError(path=path, field=_FIELD, problem=problem, remedy=remedy)
