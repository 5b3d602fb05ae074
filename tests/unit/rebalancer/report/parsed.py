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

"""A page as a browser's parser sees it: elements in order, attributes, text."""

import dataclasses
from html import parser

VOID = {'meta', 'br', 'link', 'img', 'hr', 'input'}


@dataclasses.dataclass
class Page(parser.HTMLParser):
    """``wrong`` are end tags without a begin, and elements that are never closed."""

    elements: list[tuple[str, dict[str, str]]] = dataclasses.field(default_factory=list)
    texts: list[str] = dataclasses.field(default_factory=list)
    wrong: list[str] = dataclasses.field(default_factory=list)
    style: str = ''
    _open: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self):
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.wrong.append(f'{tag} has an attribute twice')
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag):
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f'</{tag}>')

    def handle_data(self, data):
        if self._open[-1:] == ['style']:
            self.style += data
        else:
            self.texts.append(data)

    def handle_comment(self, data):
        self.wrong.append(f'<!--{data}-->')

    def unknown_decl(self, data):
        self.wrong.append(data)

    def close(self):
        super().close()
        self.wrong += self._open

    def of(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self):
        return ' '.join(' '.join(self.texts).split())


def parse(text):
    page = Page()
    page.feed(text)
    page.close()
    return page
