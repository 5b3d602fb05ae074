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


"""The filters that kronos-nova adds to nova-scheduler, one file each.

nova.conf names the function below, so that a new filter needs no change there.
"""

from kronos_nova import plugins


def all_filters() -> list[type]:
    """Return every class in the entry points kronos_nova.filters."""
    return plugins.all_classes(plugins.FILTERS)
