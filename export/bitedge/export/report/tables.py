"""Tables for people: plain text, and Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Lay out rows under a header; columns of numbers are set flush right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    numeric = [all(_is_number(row[i]) for row in cells) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        return "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, cells)])


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Write the same table in Markdown."""
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    rule = ["---:" if all(_is_number(row[i]) for row in cells) else "---" for i in range(len(header))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [list(header), rule, *cells])


def _is_number(text: str) -> bool:
    return text[:1].isdigit() or text in ("-", "")
