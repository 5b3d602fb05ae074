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

"""Write the sample configuration files of etc/kronos, or check them.

    python tools/generate_samples.py           writes them
    python tools/generate_samples.py --check   exits 1, with a diff, if one is out of date
"""

import difflib
from pathlib import Path
import subprocess
import sys
import tempfile

TOP = Path(__file__).resolve().parent.parent
CONFIG_GENERATOR, POLICY_GENERATOR = 'oslo-config-generator', 'oslopolicy-sample-generator'
# configuration of a generator -> (the generator, the sample)
SAMPLES = {
    TOP / 'tools/config/kronos.conf': (
        CONFIG_GENERATOR, TOP / 'etc/kronos/kronos.conf.sample'),
    TOP / 'tools/config/nova-scheduler.conf': (
        CONFIG_GENERATOR, TOP / 'etc/kronos/nova-scheduler.conf.sample'),
    TOP / 'tools/config/policy.conf': (POLICY_GENERATOR, TOP / 'etc/kronos/policy.yaml.sample'),
}


def generate(program: str, config: Path) -> str:
    """Return the sample that a generator makes of one of its configuration files."""
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / 'sample'
        done = subprocess.run(
            [Path(sys.executable).with_name(program),
             f'--config-file={config}', f'--output-file={output}'],
            check=False, cwd=TOP, stderr=subprocess.PIPE, text=True)
        # A namespace that cannot be loaded is only a warning there.
        if done.returncode or 'Could not load' in done.stderr:
            sys.exit(f'{program} failed on {config.relative_to(TOP)}:\n{done.stderr}')
        return output.read_text()


def main() -> int:
    stale = 0
    for config, (program, sample) in SAMPLES.items():
        wanted = generate(program, config)
        found = sample.read_text() if sample.exists() else ''
        if wanted == found:
            continue
        if '--check' not in sys.argv[1:]:
            sample.write_text(wanted)
            print(f'wrote {sample.relative_to(TOP)}')
            continue
        stale += 1
        name = str(sample.relative_to(TOP))
        sys.stdout.writelines(difflib.unified_diff(
            found.splitlines(True), wanted.splitlines(True), name, f'{name} (generated)'))
        print(f'{name} is out of date: run python tools/generate_samples.py')
    return 1 if stale else 0


if __name__ == '__main__':
    sys.exit(main())
