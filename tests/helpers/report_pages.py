"""What a reader can take from a page: its tables as text, and counts as ranges."""

from html.parser import HTMLParser


class Tables(HTMLParser):
    """Every table of a page: rows of (text, class of the cell)."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables, self._cell = [], None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self._cell = ["", dict(attrs).get("class", "")]

    def handle_data(self, data):
        if self._cell is not None:
            self._cell[0] += data

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.tables[-1][-1].append(tuple(self._cell))
            self._cell = None


def table_of(html: str, *headings: str):
    """The table whose headings begin and end so, without its head."""
    for head, *rows in Tables(html).tables:
        names = [text for text, _ in head]
        if (names[0], names[-1]) == headings:
            return names, rows
    raise AssertionError(headings)
