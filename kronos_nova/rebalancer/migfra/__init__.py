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

"""migfra, the protocol by which HPC schedulers start, stop and move instances over MQTT.

``protocol`` reads tasks, ``replies`` writes results, ``messaging.mqtt`` carries both.
``conf.permits`` holds the permitted requests, ``names`` finds the server that a task names.
``power`` starts, stops, pauses and unpauses (``probes`` tell whether a server answers), ``moves``
makes plans of requests; ``service`` keeps all requests in the database and continues them, also
those that a process which died had begun.
"""
