"""Write counts as CSV: one line for each site of each launch.

The first line names the columns: `launch` (from 0), `chip`, `how`, the description of the site, then the fields of
`memlane.record.SiteCounts` and values derived from them. RFC 4180 with line feeds, plain digits whatever the locale; a number without
meaning for a site is an empty field.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from memlane.record import Counts


def counts_csv(launches: Sequence[Counts]) -> str:
    """Return the sites of some launches as text; empty if there are none."""
    rows = [{"launch": number, **row} for number, counts in enumerate(launches) for row in counts.to_table()]
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()
