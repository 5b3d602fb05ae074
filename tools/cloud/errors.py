# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""What the sandbox can refuse to do; every error reads as one message with a remedy."""


class SandboxError(Exception):
    """Ends a command with its message on stderr and exit code ``code``."""

    code = 1


class NotPossibleHere(SandboxError):
    """The machine lacks something: a program, memory, disk, a free port."""

    code = 2


class AlreadyThere(SandboxError):
    """The sandbox is up, or a crashed run left something behind."""

    code = 3


class NotUp(SandboxError):
    """The command needs a running sandbox."""

    code = 4


class ServiceDied(SandboxError):
    """A process that was started has ended, or never became ready."""

    code = 5
