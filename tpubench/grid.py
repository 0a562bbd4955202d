"""Tables as text: aligned columns for a terminal, markdown for a document."""

from __future__ import annotations

from collections.abc import Sequence

NOTHING = "-"

Column = tuple[str, list[str], bool]  # title, cells, whether they stand to the left


def plain(columns: Sequence[Column], width: int | None = None) -> list[str]:
    """Aligned lines. ``width``, in characters, breaks a table that is wider into one below the other.

    The first column heads each. Nothing is ever cut off.
    """
    lines: list[str] = []
    for i, block in enumerate(_blocks(columns, width)):
        widths = [_width(column) for column in block]

        def line(cells: Sequence[str], block: Sequence[Column] = block, widths: list[int] = widths) -> str:
            aligned = (
                f"{cell:<{size}}" if left else f"{cell:>{size}}"
                for cell, size, (_, _, left) in zip(cells, widths, block, strict=True)
            )
            return "  ".join(aligned).rstrip()

        lines += [""] if i else []
        lines += [line([title for title, _, _ in block]), line(["-" * size for size in widths])]
        lines += [line([cells[row] for _, cells, _ in block]) for row in range(len(block[0][1]))]
    return lines


def markdown(columns: Sequence[Column]) -> list[str]:
    """The lines of a markdown table."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    lines = [line([title for title, _, _ in columns]), line(["---" if left else "---:" for _, _, left in columns])]
    return lines + [line([cells[i] for _, cells, _ in columns]) for i in range(len(columns[0][1]))]


def _width(column: Column) -> int:
    title, cells, _ = column
    return max(len(title), *map(len, cells)) if cells else len(title)


def _blocks(columns: Sequence[Column], width: int | None) -> list[list[Column]]:
    """The columns in blocks no wider than ``width``, where a column allows it; the first column heads each."""
    head, *rest = columns
    blocks, used = [[head]], _width(head)
    for column in rest:
        if width is not None and len(blocks[-1]) > 1 and used + 2 + _width(column) > width:
            blocks.append([head])
            used = _width(head)
        blocks[-1].append(column)
        used += 2 + _width(column)
    return blocks
