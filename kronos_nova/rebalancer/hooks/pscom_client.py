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


"""The MQTT side of the pscom hook: its topics, its requests, and the answers by process.

The connection's thread calls back; one lock protects all shared state.
"""

from collections.abc import Callable
from collections.abc import Mapping
import json
import re
import threading
from typing import Any

from oslo_config import cfg
from oslo_utils import uuidutils

from kronos_nova import exception
from kronos_nova.rebalancer.hooks import base

_LEVEL = re.compile('[^+#/\\x00-\\x1f\\x7f\\ud800-\\udfff]{1,255}')
_PLACEHOLDER = re.compile(r'\{([a-z]+)\}')
PLACEHOLDERS = frozenset({'host', 'name', 'uuid', 'process'})
PROCESS = 'process'
MOST = 100_000


def is_level(text: str) -> bool:
    """Return whether the text may be one level of a topic to publish to."""
    return _LEVEL.fullmatch(text) is not None and not text.startswith('$')


def _build_config_error(option: str, problem: str) -> exception.ConfigError:
    return exception.ConfigError(
        path='kronos.conf', field=f'[hook_pscom] {option}', problem=problem,
        remedy='Use {host}, {name}, {uuid} and {process} only.')


class TopicTemplate:
    """A topic below [mqtt] prefix, of which some levels are placeholders.

    :raises ConfigError: it cannot be used.
    """

    def __init__(self, prefix: str, option: str, template: str) -> None:
        self._levels = [*prefix.split('/'), *template.split('/')]
        self.names = [match[1] for level in self._levels
                      if (match := _PLACEHOLDER.fullmatch(level)) is not None]
        for level in template.split('/'):
            if not _PLACEHOLDER.fullmatch(level) and (
                    not is_level(level) or '{' in level or '}' in level):
                raise _build_config_error(option,
                                          f'{level!r} is neither a plain level nor a placeholder')
        if unknown := set(self.names) - PLACEHOLDERS:
            raise _build_config_error(option, f'unknown placeholder {{{min(unknown)}}}')
        if len(set(self.names)) < len(self.names):
            raise _build_config_error(option, 'a placeholder stands there twice')
        if not {'name', 'uuid'} & set(self.names):
            raise _build_config_error(option, 'without {name} or {uuid} the answer of another '
                                              'instance would '
                                  'count')

    @property
    def topic_filter(self) -> str:
        """The topic filter to subscribe to."""
        return '/'.join('+' if _PLACEHOLDER.fullmatch(level) else level
                        for level in self._levels)

    def render_topic(self, values: Mapping[str, str]) -> str | None:
        """Return the topic; None when a value cannot be a level."""
        levels = [values[match[1]] if (match := _PLACEHOLDER.fullmatch(level)) else level
                  for level in self._levels]
        return '/'.join(levels) if all(is_level(values[name]) for name in self.names) else None

    def parse_topic(self, topic: str) -> dict[str, str] | None:
        """Return the values of a topic; None when the topic is another one."""
        levels = topic.split('/')
        if len(levels) != len(self._levels):
            return None
        values: dict[str, str] = {}
        for expected, level in zip(self._levels, levels, strict=True):
            if (match := _PLACEHOLDER.fullmatch(expected)) is not None:
                values[match[1]] = level
            elif expected != level:
                return None
        return values if all(map(is_level, values.values())) else None


def find_unknown_placeholder(payload: str) -> str | None:
    """Return a placeholder of a payload that has no meaning."""
    return min(set(_PLACEHOLDER.findall(payload)) - PLACEHOLDERS, default=None)


def render_payload(payload: str, values: Mapping[str, str]) -> str:
    """Return the payload; values stand in quotes, as tenants choose names."""
    return _PLACEHOLDER.sub(lambda match: json.dumps(values[match[1]]), payload)


class PscomClient:
    """MQTT client of the pscom hook.

    :param conf: the groups ``mqtt`` and ``hook_pscom``.
    :raises ConfigError: paho-mqtt is not installed, or an option cannot be used.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        try:
            # needs paho-mqtt, which is optional
            from kronos_nova.rebalancer.messaging import mqtt  # noqa: PLC0415
        except ModuleNotFoundError:
            raise exception.ConfigError(
                path='kronos.conf', field='[hooks] enabled', problem='pscom needs paho-mqtt',
                remedy='Install it: pip install "kronos-nova[rebalancer,mqtt]".') from None
        if not conf.mqtt.host:
            raise exception.ConfigError(
                path='kronos.conf', field='[mqtt] host', problem='pscom needs a broker, and the '
                'name is not set', remedy='Name the broker of the processes.')
        self.request = TopicTemplate(conf.mqtt.prefix, 'request_topic',
                                     conf.hook_pscom.request_topic)
        self.response = TopicTemplate(conf.mqtt.prefix, 'response_topic',
                                      conf.hook_pscom.response_topic)
        if PROCESS not in self.response.names:
            raise _build_config_error('response_topic',
                                      'without {process} answers cannot be counted')
        self._payloads = {'suspend': conf.hook_pscom.suspend_payload,
                          'resume': conf.hook_pscom.resume_payload}
        for task, payload in self._payloads.items():
            if (unknown := find_unknown_placeholder(payload)) is not None:
                raise _build_config_error(f'{task}_payload', f'unknown placeholder {{{unknown}}}')
        self._lock = threading.Lock()
        #: Topic of a response -> number of its last answer; 0: the process was only seen.
        self._answers: dict[str, int] = {}
        self._count = 0
        # A message from the time when we were away answers no request of ours.
        self._connection = mqtt.MqttConnection(
            conf, f'kronos-pscom-{uuidutils.generate_uuid()[:8]}', self._handle_message,
            keeps_session=False)
        self._connection.subscribe_topics([self.response.topic_filter])

    def start(self) -> None:
        """Connect in the background, with further tries; return at once."""
        self._connection.start()

    def stop(self) -> None:
        self._connection.stop()

    @property
    def is_ready(self) -> bool:
        """True when the broker would send us an answer that comes now."""
        return self._connection.hearing.is_set()

    @property
    def has_common_request(self) -> bool:
        """True when one request is for all processes of an instance."""
        return PROCESS not in self.request.names

    def list_answering(self, instance: Mapping[str, str]) -> set[str]:
        """Return the processes of an instance that have answered, or left a retained message."""
        return self.list_newly_answering(instance, -1)

    def count_answers(self) -> int:
        """Return the number of answers so far; an answer counts only after it."""
        with self._lock:
            return self._count

    def list_newly_answering(self, instance: Mapping[str, str], since: int) -> set[str]:
        """Return the processes of an instance that answered after the first ``since`` answers."""
        with self._lock:
            topic_values = [self.response.parse_topic(topic)
                            for topic, number in self._answers.items() if number > since]
        return {values[PROCESS] for values in topic_values if values is not None and all(
            instance[name] == value for name, value in values.items() if name != PROCESS)}

    def publish_request(self, instance: Mapping[str, str], process: str,
                        task: str) -> Callable[[], bool]:
        """Publish a request, at least once.

        :param process: empty: all processes of the instance.
        :returns: a function that tells whether the broker has the request.
        :raises StepFailed: it cannot be sent now.
        """
        values = {**instance, PROCESS: process}
        topic = self.request.render_topic(values)
        if topic is None:
            raise base.StepFailed(problem=f'cannot have one of {instance} or {process!r} in an '
                                          'MQTT '
                                      'topic')
        broker_answers: list[bool] = []
        self._connection.publish_message(topic, render_payload(self._payloads[task], values) + '\n',
                                         broker_answers.append)

        def has_arrived() -> bool:
            if False in broker_answers:
                raise base.StepFailed(problem='could not publish: the broker has not taken it; see '
                                              'its '
                                          'access control')
            return bool(broker_answers)
        return has_arrived

    # In the connection's thread.

    def _handle_message(self, heard: Any) -> None:
        heard.acknowledge()
        key = heard.topic
        if self.response.parse_topic(key) is None:
            return
        with self._lock:
            if heard.retained:
                # An old message: the process is there, and answers no request of ours. Empty:
                # the process has gone.
                if heard.payload:
                    self._record_answer(key, self._answers.get(key, 0))
                else:
                    self._answers.pop(key, None)
                return
            self._count += 1
            self._record_answer(key, self._count)

    def _record_answer(self, key: str, number: int) -> None:
        self._answers.pop(key, None)
        if len(self._answers) >= MOST:
            del self._answers[next(iter(self._answers))]
        self._answers[key] = number
