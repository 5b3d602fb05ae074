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

"""Read the cloud and judge the move of ``kronos why-not``."""

import argparse

from kronos_nova import model
from kronos_nova.cli import _cloud
from kronos_nova.rebalancer.operations import why_not

PROG = 'kronos why-not'


def judge_move(args: argparse.Namespace) -> why_not.Answer:
    """Judge the move of an instance to a host.

    :raises KronosException: an input cannot be read, or the instance or host does not exist.
    """
    conf, policy_set = _cloud.read_configuration(
        PROG, args.config_file, 'Says why a move was not made.', live=not args.snapshot)
    seen = (_cloud.read_snapshot(conf, policy_set, args.snapshot) if args.snapshot
            else _cloud.read_live_cloud(conf, policy_set))
    instance = seen.cluster.instances.get(args.instance)
    if instance is None:
        raise _cloud.make_not_found_error('INSTANCE', args.instance, seen.cluster.instances,
                                          'no host has such an instance')
    if args.host not in seen.cluster.hosts:
        raise _cloud.make_not_found_error('HOST', args.host, seen.cluster.hosts,
                                          'no such compute host')
    request = _cloud.request(conf, policy_set, seen, _cloud.of_instance(seen, instance))
    phase = model.Phase(args.phase or policy_set.mode)
    return why_not.why_not(request, args.instance, args.host, phase)
