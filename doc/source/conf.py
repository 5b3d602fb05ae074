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

"""Sphinx configuration of the documentation."""

from pathlib import Path
import shutil
import sys

from kronos_nova.wiring import tools

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'ext'))
# Who lists options loads oslo.service.
tools.native_threads()

project = 'kronos-nova'
copyright = 'OpenStack contributors'
author = 'OpenStack contributors'

extensions = [
    'cliff.sphinxext',
    'openstackdocstheme',
    'oslo_config.sphinxext',
    'oslo_policy.sphinxext',
    'program_help',
    'sphinx.ext.autodoc',
    'sphinx.ext.graphviz',
]
# Graphviz draws the picture of the rooms; without it the page names the source.
if shutil.which('dot'):
    tags.add('dot')  # noqa: F821 (Sphinx defines it)
graphviz_output_format = 'svg'
exclude_patterns: list[str] = []
html_theme = 'openstackdocs'
html_static_path = ['_static']
pygments_style = 'native'

openstackdocs_repo_name = 'openstack/kronos-nova'
openstackdocs_auto_name = False
openstackdocs_auto_version = False
openstackdocs_use_storyboard = False
openstackdocs_bug_project = 'kronos-nova'

autoprogram_cliff_app_dist_name = 'kronos-nova'
# What every table has is told once, in reference/commands.rst.
autoprogram_cliff_ignored = [
    '--help', '--format', '--column', '--sort-column', '--sort-ascending', '--sort-descending',
    '--max-width', '--fit-width', '--print-empty', '--noindent', '--quote', '--prefix']

autodoc_member_order = 'bysource'
autodoc_typehints = 'description'
