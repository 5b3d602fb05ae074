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

"""An option type for networks in CIDR notation."""

import ipaddress
from typing import Any

from kronos_nova.conf import value_type

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class NetworkType(value_type.ValueType):
    """A network in CIDR notation, such as ``10.20.0.0/16`` or ``2001:db8::/32``."""

    NAME = 'network'

    def __call__(self, value: Any) -> Network:
        try:
            return ipaddress.ip_network(str(value).strip())
        except ValueError as e:
            raise ValueError(f'{value!r} is not a network: {e}. Write it as 10.20.0.0/16') from e
