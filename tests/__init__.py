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

import contextlib
import gc

# Most of what a test makes goes without the collector. It looks at the many objects of Nova
# and of pytest after each 700 new ones else, which is a twentieth of the time.
gc.set_threshold(20_000)

with contextlib.suppress(ImportError):  # some parts run without it
    import hypothesis

    # Machines differ, and this one may be busy: what is slow is no failure.
    hypothesis.settings.register_profile('kronos', deadline=None)
    hypothesis.settings.load_profile('kronos')
